"""The file of API keys: what a line says, and what makes a file one that cannot be used."""

from hashlib import sha256

import pytest

from gateway.edge.keys import ApiKey, KeyFileError, KeyLimits, new_key, parse_keys

HASH = sha256(b"one").hexdigest()
OTHER = sha256(b"two").hexdigest()


def test_a_new_key_is_long_random_and_not_in_its_line() -> None:
    key, line = new_key("alice", ["requests_per_minute=5", "scope=all"])
    assert key != new_key("alice")[0]
    assert len(key) - len("fovea-") >= 43  # 256 bits
    assert key not in line
    (read,) = parse_keys(line)
    assert read == ApiKey(
        "alice", sha256(key.encode()).digest(), "all", KeyLimits(requests_per_minute=5)
    )


def test_lines_say_all_limits_and_comments_nothing() -> None:
    text = (
        f"# whose\n\n  alice sha256:{HASH} requests_per_minute=1 images_per_minute=2 "
        f"tokens_per_minute=3 concurrency=4\nbob\tsha256:{OTHER} scope=metrics\r\n"
    )
    alice, bob = parse_keys(text)
    assert alice.limits == KeyLimits(1, 2, 3, 4)
    assert (alice.scope, bob.scope) == ("api", "metrics")
    assert bob.limits == KeyLimits()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("alice", 1),
        (f"alice {HASH}", 1),
        (f"alice sha256:{HASH[1:]}", 1),
        (f"alice sha256:{HASH.upper()}", 1),
        (f"-alice sha256:{HASH}", 1),
        (f"#\nalice sha256:{HASH} concurrency=0", 2),
        (f"alice sha256:{HASH} concurrency=x", 1),
        (f"alice sha256:{HASH} concurrency=1 concurrency=2", 1),
        (f"alice sha256:{HASH} scope=root", 1),
        (f"alice sha256:{HASH} speed=9", 1),
        (f"alice sha256:{HASH}\nalice sha256:{OTHER}", 2),
        (f"alice sha256:{HASH}\nbob sha256:{HASH}", 2),
    ],
)
def test_what_a_line_may_not_say_is_named_by_its_number_without_its_content(
    text: str, line: int
) -> None:
    with pytest.raises(KeyFileError, match=f"^line {line}: ") as caught:
        parse_keys(text)
    assert HASH[:8] not in str(caught.value)
    assert HASH[:8].upper() not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n# nobody\n"])
def test_a_file_without_keys_is_a_slip(text: str) -> None:
    with pytest.raises(KeyFileError, match="holds no key"):
        parse_keys(text)
