"""Keys are looked up in a file that may change under us."""

import logging
import os
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.edge.key_ring import KeyRing
from gateway.edge.keys import KeyFileError
from gateway.errors import InvalidKey, KeyNotAllowed

CHAT = "/v1/chat/completions"


def line(name: str, key: str, *words: str) -> str:
    return " ".join((name, f"sha256:{sha256(key.encode()).hexdigest()}", *words)) + "\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Ring:
    """A ring over a file; each `write` is seen at the next look."""

    def __init__(self, folder: Path, text: str) -> None:
        self.path = folder / "keys"
        self.clock = Clock()
        self.path.write_text(text)
        self.ring = KeyRing(self.path, self.clock)

    def write(self, text: str) -> None:
        fresh = self.path.with_name("fresh")
        fresh.write_text(text)
        os.replace(fresh, self.path)
        self.clock.now += 1

    def lets_in(self, key: str, path: str = CHAT) -> bool:
        try:
            self.ring.account(key.encode(), path)
        except InvalidKey:
            return False
        return True


def test_known_keys_have_accounts_of_their_own(tmp_path: Path) -> None:
    ring = Ring(tmp_path, line("a", "one") + line("b", "two")).ring
    one, two = ring.account(b"one", CHAT), ring.account(b"two", CHAT)
    assert ring.account(b"one", CHAT) is one
    assert len({one.tenant, two.tenant, b""}) == 3
    for wrong in (b"", b"One", b"one ", b"a", sha256(b"one").hexdigest().encode()):
        with pytest.raises(InvalidKey):
            ring.account(wrong, CHAT)


def test_scopes_open_their_routes_alone(tmp_path: Path) -> None:
    text = line("a", "one") + line("m", "two", "scope=metrics") + line("r", "three", "scope=all")
    ring = Ring(tmp_path, text).ring
    for key, path in ((b"one", "/metrics"), (b"two", CHAT), (b"two", "/v1/models")):
        with pytest.raises(KeyNotAllowed):
            ring.account(key, path)
    ring.account(b"two", "/metrics")
    ring.account(b"three", "/metrics")
    ring.account(b"three", CHAT)


def test_a_new_file_is_read_within_a_second(tmp_path: Path) -> None:
    ring = Ring(tmp_path, line("a", "one", "concurrency=1") + line("b", "two"))
    one = ring.ring.account(b"one", CHAT)
    with one.request():
        ring.write(line("a", "one", "concurrency=2") + line("c", "three"))
        assert not ring.lets_in("two")
        assert ring.lets_in("three")
        assert ring.ring.account(b"one", CHAT) is one  # with what it has in work
        with one.request():
            pass


def test_the_file_is_not_looked_at_for_every_request(tmp_path: Path) -> None:
    ring = Ring(tmp_path, line("a", "one"))
    ring.write(line("b", "two"))
    ring.clock.now -= 0.5
    assert ring.lets_in("one")
    ring.clock.now += 0.5
    assert not ring.lets_in("one")


@pytest.mark.parametrize("broken", ["", "nonsense\n", "\xff", "#" * (1 << 20) + "#"])
def test_a_broken_file_keeps_the_old_keys_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    ring = Ring(tmp_path, line("a", "one"))
    with caplog.at_level(logging.ERROR):
        ring.write(broken)
        assert ring.lets_in("one")
        ring.clock.now += 1
        assert ring.lets_in("one")
    assert len(caplog.records) == 1
    assert "the keys stay as they were" in caplog.text
    ring.write(line("b", "two"))
    assert (ring.lets_in("one"), ring.lets_in("two")) == (False, True)


def test_a_file_that_goes_away_keeps_the_keys(tmp_path: Path) -> None:
    ring = Ring(tmp_path, line("a", "one"))
    ring.path.unlink()
    ring.clock.now += 1
    assert ring.lets_in("one")
    ring.write(line("b", "two"))
    assert not ring.lets_in("one")


@pytest.mark.parametrize("broken", ["", "nonsense\n"])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, broken: str) -> None:
    with pytest.raises(KeyFileError):
        Ring(tmp_path, broken)
    with pytest.raises(KeyFileError, match="No such file"):
        KeyRing(tmp_path / "none")
