from collections.abc import Iterator

import pytest

from tests.journeys.server import Server, running


@pytest.fixture(scope="package")
def demo() -> Iterator[Server]:
    """The demo model on one CPU worker with both roles; shared by tests that leave it as it was."""
    with running() as server:
        yield server


@pytest.fixture(scope="package")
def split() -> Iterator[Server]:
    """The demo model on two vision owners and one engine."""
    with running(workers="cpu:vision,cpu:vision,cpu:language") as server:
        yield server
