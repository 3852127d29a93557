"""Frames cross sockets whole, in order, and within bounds."""

import random
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from workers.messages import Abort, GenerateJob, Tokens
from workers.sampling import Sampling
from workers.wire import (
    MAX_BACKLOG_BYTES,
    MAX_FRAME_BYTES,
    Channel,
    FrameTooLong,
    Splitter,
    job_id_of,
    pack,
)


def generate_job(job_id: str, token_ids: bytes) -> GenerateJob:
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=1, stop_token_ids=()
    )
    return GenerateJob(
        job_id=job_id,
        salt=b"",
        token_ids=token_ids,
        spans=(),
        sampling=sampling,
        seconds_left=1.0,
    )


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    gateway, worker = socket.socketpair()
    gateway.settimeout(10)
    with gateway, worker:
        yield gateway, worker


def read_all(connection: socket.socket, num_frames: int) -> list[bytes]:
    splitter, bodies = Splitter(), list[bytes]()
    while len(bodies) < num_frames:
        bodies += splitter.feed(connection.recv(1 << 20))
    return bodies


def test_any_cut_of_the_stream_gives_the_same_frames() -> None:
    messages = [Abort(job_id="x" * length) for length in (0, 1, 40, 300)]
    stream = b"".join(pack(message) for message in messages)
    chance = random.Random(5)
    for _ in range(200):
        cuts = sorted(chance.choices(range(len(stream) + 1), k=chance.randrange(9)))
        splitter, bodies = Splitter(), list[bytes]()
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            bodies += splitter.feed(stream[start:end])
        assert [msgspec.msgpack.decode(body, type=Abort) for body in bodies] == messages


def test_frame_above_the_limit_is_refused_at_both_ends() -> None:
    with pytest.raises(FrameTooLong, match=str(MAX_FRAME_BYTES)):
        pack(generate_job("a", bytes(MAX_FRAME_BYTES)))
    with pytest.raises(FrameTooLong, match=str(MAX_FRAME_BYTES + 1)):
        list(Splitter().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big")))


def test_frames_before_a_broken_one_still_count() -> None:
    bodies = Splitter().feed(pack(Abort(job_id="a")) + b"\xff" * 9)
    assert msgspec.msgpack.decode(next(bodies), type=Abort).job_id == "a"
    with pytest.raises(FrameTooLong):
        next(bodies)


def test_three_megabytes_arrive_whole(sockets: tuple[socket.socket, socket.socket]) -> None:
    gateway, worker = sockets
    job = generate_job("big", random.Random(1).randbytes(3 << 20))
    channel, bodies = Channel(worker), list[bytes]()
    sender = threading.Thread(target=gateway.sendall, args=[pack(job)])
    sender.start()
    while not bodies:
        bodies = channel.receive(wait=True)
    sender.join()
    assert msgspec.msgpack.decode(bodies[0], type=GenerateJob) == job


def test_receive_without_wait_returns_at_once(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    assert Channel(sockets[1]).receive(wait=False) == []


@pytest.mark.slow
def test_slow_reader_bounds_the_backlog_and_loses_nothing(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    gateway, worker = sockets
    channel = Channel(worker)
    message = Tokens(job_id="a", token_ids=tuple(range(70_000, 170_000)))
    num_fitting = MAX_BACKLOG_BYTES // len(pack(message))
    sent: list[int] = []

    def send_all() -> None:
        for number in range(3 * num_fitting):
            channel.send(Tokens(job_id=str(number), token_ids=message.token_ids))
            sent.append(number)
        channel.drain()

    sender = threading.Thread(target=send_all)
    sender.start()
    sender.join(0.2)
    assert sender.is_alive()
    assert num_fitting <= len(sent) <= num_fitting + 2
    bodies = read_all(gateway, 3 * num_fitting)
    sender.join(10)
    events = [msgspec.msgpack.decode(body, type=Tokens) for body in bodies]
    assert [event.job_id for event in events] == [str(n) for n in range(3 * num_fitting)]


def test_end_of_file_closes_the_channel_after_the_last_frame(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    gateway, worker = sockets
    channel = Channel(worker)
    gateway.sendall(pack(Abort(job_id="last")))
    gateway.close()
    assert len(channel.receive(wait=True)) == 1
    assert channel.closed
    assert channel.receive(wait=True) == []


def test_writing_to_a_gateway_that_is_gone_does_nothing(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    gateway, worker = sockets
    channel = Channel(worker)
    gateway.close()
    for _ in range(3):
        channel.send(Abort(job_id="nobody"))
    channel.drain()
    assert channel.closed


def test_job_is_found_in_a_message_that_is_not_understood() -> None:
    assert job_id_of(msgspec.msgpack.encode({"job_id": "a", "nonsense": 3})) == "a"
    for other in ({"job_id": 3}, ["job_id"], 7):
        assert job_id_of(msgspec.msgpack.encode(other)) is None
    assert job_id_of(b"\xc1garbage") is None
