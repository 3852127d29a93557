"""The library in C, which has to be there where a compiler is."""

import shutil

import pytest

from workers.native.attention import AttentionKernel
from workers.native.library import NoKernel, load
from workers.native.rows import RowKernel


@pytest.fixture(autouse=True, scope="session")
def _library() -> None:
    try:
        load()
    except NoKernel as error:
        if "built" in str(error) and shutil.which("cc"):
            raise
        pytest.skip(str(error))


@pytest.fixture
def kernel() -> AttentionKernel:
    return AttentionKernel()


@pytest.fixture
def row_kernel() -> RowKernel:
    return RowKernel()
