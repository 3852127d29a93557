"""A run that was stopped goes on as if it had not been."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

from ops.demo_model.optimiser import orthogonal
from ops.demo_model.train import Plan, Trainer

SHIPPED = Path("workers/demo_model")
MAX_BYTES = 20_000_000


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a real run: threads that wait for each other would dominate steps this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _plan(work: Path, *, is_warm: bool) -> Plan:
    return Plan(
        source=SHIPPED,
        work=work,
        is_warm=is_warm,
        is_polish=False,
        num_steps=4,
        num_vision_steps=0 if is_warm else 1,
        num_rows=1,
        seed=7,
        muon_rate=0.01,
        adam_rate=0.001,
        decay_from=0.5,
        save_minutes=60,
    )


def _weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.learner.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [True, False])
def test_resuming_gives_the_same_weights(tmp_path: Path, is_warm: bool) -> None:
    plan = _plan(tmp_path, is_warm=is_warm)
    straight = Trainer(plan)
    for _ in range(2):
        straight.step()
    stopped = Trainer(plan)
    stopped.step()
    stopped.save()
    resumed = Trainer(plan)
    assert resumed.progress.step == 1
    resumed.step()
    ours, theirs = _weights(straight), _weights(resumed)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_polish_leaves_the_tower_and_moves_the_decoder(tmp_path: Path) -> None:
    trainer = Trainer(replace(_plan(tmp_path, is_warm=True), is_polish=True))
    before = _weights(trainer)
    trainer.step()
    moved = {
        name for name, tensor in _weights(trainer).items() if not torch.equal(tensor, before[name])
    }
    assert not [name for name in moved if ".visual." in name]
    assert [name for name in moved if ".language_model." in name]


@pytest.mark.slow
def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    plan = _plan(tmp_path, is_warm=False)
    first, second = Trainer(plan), Trainer(replace(plan, seed=8))
    name = "model.lm_head.weight"
    assert not torch.equal(first.learner.state_dict()[name], second.learner.state_dict()[name])


@pytest.mark.slow
def test_export_is_a_checkpoint_of_the_trained_weights(tmp_path: Path) -> None:
    trainer = Trainer(_plan(tmp_path, is_warm=True))
    trainer.step()
    trainer.save()
    target = tmp_path / "export"
    loaded = Qwen3VLForConditionalGeneration.from_pretrained(target, dtype=torch.bfloat16)
    for name, tensor in trainer.learner.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.bfloat16())
    assert AutoTokenizer.from_pretrained(target).chat_template
    assert (target / "model.safetensors").stat().st_size < MAX_BYTES


def test_shipped_weights_are_small_and_bfloat16() -> None:
    file = SHIPPED / "model.safetensors"
    assert file.stat().st_size < MAX_BYTES
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.bfloat16}


@pytest.mark.parametrize("shape", [(2, 24, 16), (3, 16, 40)])
def test_orthogonal_evens_out_singular_values(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.max() < 1.3
    assert values.min() > 0.5
