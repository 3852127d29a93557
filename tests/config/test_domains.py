"""The list of hosts that images may come from: one spelling for each host, no more than it says."""

import pytest

from config.domains import parse_domains

LIST = (
    "Pictures.Example, *.shop.example,büch.example,xn--bchr-0ra.example,192.0.2.7,[2001:DB8:0::7],"
)


@pytest.mark.parametrize(
    "host",
    [
        "pictures.example",
        "PICTURES.example",
        "pictures.example.",
        "a.shop.example",
        "a.b.shop.example",
        "a.shop.example.",
        "xn--bch-hoa.example",
        "xn--bchr-0ra.example",
        "192.0.2.7",
        "2001:db8::7",
        "2001:0db8:0:0:0:0:0:7",
    ],
)
def test_a_host_on_the_list_is_covered_in_every_spelling(host: str) -> None:
    assert parse_domains(LIST).covers(host)


@pytest.mark.parametrize(
    "host",
    [
        "shop.example",
        "shop.example.",
        "xshop.example",
        "a.pictures.example",
        "pictures.example.evil.example",
        "shop.example.evil.example",
        "evilpictures.example",
        "pictures.example..",
        "192.0.2.8",
        "192.0.2.07",
        "0xc0000207",
        "192.0.519",
        "::ffff:192.0.2.7",
        "2001:db8::8",
        "localhost",
        "",
    ],
)
def test_any_other_is_not(host: str) -> None:
    assert not parse_domains(LIST).covers(host)


def test_an_empty_list_allows_all() -> None:
    assert parse_domains("").covers("anything.example")


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "*.",
        "a.*.example",
        "*a.example",
        "*.*.example",
        "http://a.example",
        "a.example/path",
        "a.example:443",
        "me@a.example",
        "a b.example",
        "a..example",
        "*.0.0.1",
        "127.1",
        "0x7f.0x1",
        "10.0.0.0/8",
        "[::1",
        "::1%lo",
        "%61.example",
        "ⓐ.example",
        "a" * 64 + ".example",
    ],
)
def test_an_entry_that_is_no_host_stops_with_itself_in_the_message(entry: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        parse_domains(f"b.example,{entry}")


@pytest.mark.parametrize("text", [",", " ", " , ,"])
def test_a_list_that_names_no_host_does_not_allow_all(text: str) -> None:
    with pytest.raises(ValueError, match="no host is named"):
        parse_domains(text)
