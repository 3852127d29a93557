from collections.abc import Iterator

import pytest

from tests.journeys.pupils import (
    KIMI_TEXTS,
    KIMI_TOKENS,
    TEXTS,
    THINKING_TEXTS,
    XML_TEXTS,
    Pupil,
    pupil,
)
from tests.journeys.server import Server, running
from tests.templates import KIMI_TOOLS, QWEN_THINKING, QWEN_TOOLS, QWEN_XML


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


@pytest.fixture(scope="package")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Markers are spelt: the vocabulary has no tokens for them."""
    yield from pupil(tmp_path_factory.mktemp("qwen"), "qwen2_5_vl", TEXTS, template=QWEN_TOOLS)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Calls are tags."""
    yield from pupil(tmp_path_factory.mktemp("coder"), "qwen3_vl", XML_TEXTS, template=QWEN_XML)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Markers are tokens of the vocabulary, as in public checkpoints."""
    yield from pupil(
        tmp_path_factory.mktemp("thinker"),
        "qwen3_vl",
        THINKING_TEXTS,
        template=QWEN_THINKING,
        tokens=("<think>", "</think>", "<tool_call>", "</tool_call>"),
    )


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Markers of thoughts are tokens, those of calls are spelt."""
    yield from pupil(
        tmp_path_factory.mktemp("kimi"),
        "kimi_k25",
        KIMI_TEXTS,
        template=KIMI_TOOLS,
        tokens=KIMI_TOKENS,
        prompt_end="<think>",
    )
