"""An arena for tests of the owner."""

from collections.abc import Iterator

import pytest

from tests.workers.vision.jobs import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    """One link's arena, gone after the test."""
    memory = Memory()
    yield memory
    memory.gateway.close()
