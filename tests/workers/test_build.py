"""Real stages are made from a real checkpoint, and broken libraries are explained."""

import errno
import os
import sys

import msgspec
import pytest

from config.settings import DEMO_MODEL
from tests.workers.harness import start_message
from workers.arena import Arena, Arenas
from workers.build import CannotStart, build_stages

pytestmark = pytest.mark.slow


def arenas() -> Arenas:
    arena = Arena(0, 1 << 20)
    own = Arenas([os.dup(arena.file_number)])
    arena.close()
    return own


@pytest.mark.parametrize("roles", [("vision",), ("language",), ("vision", "language")])
def test_stages_and_facts_are_those_of_the_roles(roles: tuple[str, ...]) -> None:
    progress: list[tuple[int, int]] = []
    vision, language, ready = build_stages(
        start_message(str(DEMO_MODEL), roles),
        arenas(),
        lambda done, total: progress.append((done, total)),
    )
    assert (vision is not None, language is not None) == ("vision" in roles, "language" in roles)
    assert (ready.embedding_bytes_per_token > 0) == ("vision" in roles)
    assert (ready.max_context_tokens > 0) == ("language" in roles)
    assert (ready.kv_cache_tokens > 0) == ("language" in roles)
    assert progress
    assert progress[-1][0] == progress[-1][1] > 0


def test_libraries_that_cannot_be_imported_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(CannotStart, match="pip install --force-reinstall torch torchvision"):
        build_stages(start_message(str(DEMO_MODEL), ("vision",)), arenas(), lambda _, __: None)


def test_want_of_a_temporary_folder_is_not_blamed_on_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def import_module(name: str) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("importlib.import_module", import_module)
    with pytest.raises(CannotStart, match=r"^torch wants .*\['/tmp'\].*TMPDIR$"):
        build_stages(start_message(str(DEMO_MODEL), ("vision",)), arenas(), lambda _, __: None)


def test_device_that_is_not_there_is_named() -> None:
    start = msgspec.structs.replace(start_message(str(DEMO_MODEL), ("vision",)), device="cuda:99")
    with pytest.raises(CannotStart, match=r"cuda:99.*FOVEA_WORKERS"):
        build_stages(start, arenas(), lambda _, __: None)


def test_a_kv_cache_that_fits_no_memory_is_named() -> None:
    start = start_message(str(DEMO_MODEL), ("language",))
    start = msgspec.structs.replace(start, kv_cache_tokens=10**12)
    with pytest.raises(CannotStart, match=r"cpu.*FOVEA_KV_CACHE_TOKENS=1000000000000"):
        build_stages(start, arenas(), lambda _, __: None)


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"attention": "flashinfer"}, "FOVEA_ATTENTION"),
        ({"cuda_graphs": True}, "FOVEA_CUDA_GRAPHS"),
    ],
)
def test_what_only_a_gpu_can_do_stops_the_start_on_a_cpu(
    wish: dict[str, object], named: str
) -> None:
    start = start_message(str(DEMO_MODEL), ("language",))
    start = msgspec.structs.replace(start, **wish)
    with pytest.raises(CannotStart, match=f"{named}.*cpu"):
        build_stages(start, arenas(), lambda _, __: None)
