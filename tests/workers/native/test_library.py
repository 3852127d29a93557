"""Where the library comes from, and what happens where it is not."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from workers.native import library
from workers.native.library import NoKernel, load
from workers.native.rows import serves

SOURCES = Path(library.__file__).parent


def test_it_serves_bfloat16_on_a_cpu_only() -> None:
    assert serves(torch.zeros(1, dtype=torch.bfloat16))
    assert not serves(torch.zeros(1))
    assert not serves(torch.zeros(1, dtype=torch.bfloat16, device="meta"))


def test_without_the_library_there_is_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("workers.native.library.__file__", str(tmp_path / "library.py"))
    with pytest.raises(NoKernel, match="not built"):
        load()
    assert not serves(torch.zeros(1, dtype=torch.bfloat16))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["attention.c", "products.c", "rows.c"])
def test_the_compiler_finds_nothing_to_warn_of(name: str, tmp_path: Path) -> None:
    flags = ["-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "-o", str(tmp_path / "out")]
    subprocess.run(["cc", *flags, str(SOURCES / name)], check=True)
