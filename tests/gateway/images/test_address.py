"""Which addresses are public: by hand, and against the standard library wherever it is stricter."""

import random
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest

from gateway.images.address import is_public

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255",
          "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255", "198.20.0.0",
          "223.255.255.255", "2606:2800:220:1::1", "2001:4860:4860::8888", "2a00::1", "2001:200::",
          "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]  # fmt: skip

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.100.100.200",
    "100.127.255.255", "127.0.0.1", "127.255.255.255", "168.63.129.16", "169.254.0.0",
    "169.254.169.254", "169.254.170.2", "172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
    "198.51.100.7", "203.0.113.7", "224.0.0.1", "224.0.1.1", "239.255.255.255", "240.0.0.0",
    "255.255.255.255",
    "::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8",
    "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:2::1", "2001:10::1",
    "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "4000::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::a9fe:a9fe", "fec0::1",
    "ff02::1", "ff0e::1", "fe80::1%eth0", "2606:2800:220:1::1%eth0",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_may_be_reached(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_nothing_else_may(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "text", ["127.1", "0x7f000001", "0177.0.0.1", "2130706433", "localhost", ""]
)
def test_other_spellings_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        is_public(text)


def _is_plain_unicast(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def test_what_the_standard_library_does_not_call_global_is_never_public() -> None:
    source = random.Random(5)
    stands_for_ipv4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
    num_public = 0
    for _ in range(1000):
        # Few leading bits, so that all blocks come up, and edges of blocks in what follows.
        tail = source.choice([0, (1 << 96) - 1, source.getrandbits(96)])
        wide = IPv6Address(source.getrandbits(16) << 112 | source.getrandbits(4) << 96 | tail)
        short = IPv4Address(source.getrandbits(16) << 16 | source.choice([0, 1, 65535, 300]))
        for address in (wide, short):
            if any(address in network for network in stands_for_ipv4):
                continue
            num_public += is_public(str(address))
            assert _is_plain_unicast(address) or not is_public(str(address)), address
    assert num_public > 700


def test_an_address_inside_another_is_judged_like_itself() -> None:
    source = random.Random(6)
    for _ in range(300):
        address = IPv4Address(source.getrandbits(32))
        for start in ("::ffff:0:0", "64:ff9b::"):
            inside = ip_address(int(IPv6Address(start)) | int(address))
            assert is_public(str(inside)) == is_public(str(address)), inside
