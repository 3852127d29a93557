"""Vision and language take turns: an answer goes on between any two bounded vision batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from torch import Tensor

from tests.fakes import FakeLanguage
from tests.plans import make_plan
from tests.workers.harness import prompt_job
from tests.workers.peer import Peer
from tests.workers.vision.jobs import Memory
from tests.workers.vision.towers import Averager, make_job, pixels_payload, random_picture
from workers.messages import Encoded, EncodeJob, Failed, FromWorker, Tokens
from workers.vision.owner import Owner
from workers.wire import pack

KEY = bytes(range(32))
NUM_BATCHES = 6
IMAGES_PER_BATCH = 2
PATCHES_PER_IMAGE = 8


@dataclass
class NotedTower(Averager):
    """Notes each of its passes, with the number of patches."""

    notes: list[str] = field(default_factory=list)

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        self.notes.append(f"vision {len(patches)}")
        return super().encode(patches, grids)


class NotedLanguage(FakeLanguage):
    """Notes each of its steps."""

    notes: list[str]

    def step(self) -> list[FromWorker]:
        self.notes.append("language")
        return super().step()


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.gateway.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    with peer.connection, peer.other_end:
        yield peer
        peer.connection.close()
        assert peer.has_ended()


def images(memory: Memory) -> list[EncodeJob]:
    plan = make_plan((8, 16), grid=(1, 2, 4), patch_size=4, num_tokens=2)
    return [
        make_job(memory, f"image-{n}", plan, pixels_payload(memory, random_picture(8, 16, n)))
        for n in range(NUM_BATCHES * IMAGES_PER_BATCH)
    ]


@pytest.mark.parametrize("looks_ahead", [False, True])
def test_a_language_step_comes_between_every_two_vision_batches(
    memory: Memory, peer: Peer, looks_ahead: bool
) -> None:
    tower, language = NotedTower(), NotedLanguage(peer.arenas)
    language.notes = tower.notes
    limit = IMAGES_PER_BATCH * PATCHES_PER_IMAGE
    peer.start(Owner(tower, memory.worker, limit, KEY, looks_ahead), language)
    frames = [pack(prompt_job("stream", [4], max_tokens=2 * NUM_BATCHES))]

    peer.send(b"".join(frames + [pack(job) for job in images(memory)]))

    told = read_until_all_are_encoded(peer)
    passes = [note for note in tower.notes if note != "language"]
    assert passes == [f"vision {limit}"] * NUM_BATCHES
    turns = [f"vision {limit}", "language"] * NUM_BATCHES
    assert tower.notes[: len(turns) - 1] == turns[:-1]
    # The caller sees the same: a token of the stream between the images of any two batches.
    batches = "".join(told).strip("t").split("t")
    assert batches == ["e" * IMAGES_PER_BATCH] * NUM_BATCHES


def read_until_all_are_encoded(peer: Peer) -> list[str]:
    """The events in their order: e for an image, t for a token."""
    told: list[str] = []
    while told.count("e") < NUM_BATCHES * IMAGES_PER_BATCH:
        event = peer.next()
        assert not isinstance(event, Failed)
        if isinstance(event, Encoded | Tokens):
            told.append("e" if isinstance(event, Encoded) else "t")
    return told
