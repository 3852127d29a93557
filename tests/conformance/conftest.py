"""Two real servers for clients as they come: one knows shapes, one says what it is told to."""

from collections.abc import Iterator

import pytest

from tests.journeys.pupils import TEXTS, Pupil, pupil
from tests.journeys.server import Server, running
from tests.templates import QWEN_TOOLS


@pytest.fixture(scope="package")
def demo() -> Iterator[Server]:
    """The demo model; an answer that is not bounded ends soon."""
    with running(max_context_tokens=256) as server:
        yield server


@pytest.fixture(scope="package")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """A model that recites calls of functions."""
    texts = TEXTS | {"json": '{"shape": "circle", "of": [1.5, "日本"]}'}
    yield from pupil(tmp_path_factory.mktemp("caller"), "qwen2_5_vl", texts, template=QWEN_TOOLS)
