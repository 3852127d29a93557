"""Ways to compute attention: which one is chosen, and what FlashInfer is told of a step."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tests.workers.language.models import Model
from tests.workers.language.test_attention import CASES, make_case
from workers.families.decoder import Decoder, LayerKv
from workers.language import paths
from workers.language.attention import reference_attention
from workers.language.inputs import build_attention
from workers.language.native import NativePath, why_not_native
from workers.language.paths import FlashInferPath, NoSuchPath, choose_path

CPU = torch.device("cpu")


class Wrapper:
    """FlashInfer's, after its documentation: plain attention over pages [n, heads, size, dim]."""

    def __init__(self, workspace: Tensor, layout: str) -> None:
        assert workspace.dtype == torch.uint8
        assert layout == "HND"
        self.num_plans = 0

    def plan(self, *arguments: Any, causal: bool, sm_scale: float, **_: Any) -> None:
        assert causal
        self.num_plans += 1
        self.rows, self.pages, self.indices, self.last = (each.tolist() for each in arguments[:4])
        self.shape, self.scale = arguments[4:], sm_scale

    def run(self, query: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:
        num_heads, num_key_heads, width, size = self.shape
        assert query.is_contiguous()
        assert query.shape[1:] == (num_heads, width)
        outputs = []
        for at, last in enumerate(self.last):
            pages = self.indices[self.pages[at] : self.pages[at + 1]]
            length = (len(pages) - 1) * size + last
            keys, values = (
                store[pages].transpose(0, 1).reshape(num_key_heads, -1, width)[:, :length]
                for store in cache
            )
            rows = query[self.rows[at] : self.rows[at + 1]].transpose(0, 1)
            num_before = length - rows.shape[1]
            outputs.append(reference_attention(rows, keys, values, num_before, self.scale))
        return torch.cat(outputs)


LIBRARY = SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=Wrapper)


@pytest.mark.parametrize("parts", CASES)
def test_a_step_as_flashinfer_is_told_it_equals_the_reference(
    parts: list[tuple[int, int]],
) -> None:
    case = make_case(parts)
    path = FlashInferPath(cast("Decoder", SimpleNamespace(device=torch.device("cpu"))), LIBRARY)
    case = replace(case, attention=path(case.cache, case.slots, case.slices, torch.float32))
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)
    assert path._wrapper.num_plans == 1


@pytest.mark.parametrize("parts", CASES)
def test_a_step_as_the_kernel_is_told_it_equals_the_reference(
    parts: list[tuple[int, int]],
) -> None:
    case = make_case(parts, content=float("nan"), dtype=torch.bfloat16)
    decoder = SimpleNamespace(kv_spec=case.cache.spec, device=CPU, dtype=torch.bfloat16)
    if reason := why_not_native(cast("Decoder", decoder)):
        pytest.skip(reason)
    attend = choose_path("auto", cast("Decoder", decoder))
    assert isinstance(attend, NativePath)
    attention = attend(case.cache, case.slots, case.slices, torch.bfloat16)
    found, expected = replace(case, attention=attention).run(), case.expected()
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(case.run(), expected, rtol=2e-2, atol=1e-2)


def test_a_decoder_that_the_kernel_does_not_serve_is_refused_with_the_reason(
    model: Model,
) -> None:
    latent = SimpleNamespace(kv_spec=(LayerKv(1, 20, 16, True),), device=CPU, dtype=torch.bfloat16)
    with pytest.raises(NoSuchPath, match="latent"):
        choose_path("native", cast("Decoder", latent))
    with pytest.raises(NoSuchPath, match=r"float32|latent"):
        choose_path("native", model.decoder)


def test_a_cpu_has_the_way_that_runs_everywhere(model: Model) -> None:
    assert choose_path("auto", model.decoder) is build_attention
    assert choose_path("torch", model.decoder) is build_attention


def test_a_way_that_cannot_be_had_is_refused_with_the_reason(deep_model: Model) -> None:
    with pytest.raises(NoSuchPath, match="the engine runs on cpu"):
        choose_path("flashinfer", deep_model.decoder)


class Half:
    """A decoder that FlashInfer serves, but for what a test changes."""

    device = torch.device("cuda:0")
    dtype = torch.bfloat16

    def __init__(self, width: int = 64, is_latent: bool = False) -> None:
        self.kv_spec = ((2, width, width, is_latent),)


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "find_spec", lambda _: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


@pytest.mark.usefixtures("_gpu")
def test_auto_takes_flashinfer_only_where_it_serves_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reason(decoder: Any) -> str:
        decoder.kv_spec = tuple(LayerKv(*layer) for layer in decoder.kv_spec)
        return paths._why_not_flashinfer(decoder)

    assert reason(Half()) == ""
    assert "heads" in reason(Half(width=80))
    assert "heads" in reason(Half(is_latent=True))
    single = Half()
    single.dtype = torch.float32
    assert "float32" in reason(single)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert "capability" in reason(Half())
    monkeypatch.setattr(paths, "find_spec", lambda _: None)
    assert "not installed" in reason(Half())
