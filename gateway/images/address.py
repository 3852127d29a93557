"""An IP address in, whether an image may be fetched from it out: only the public internet may.

The tables are IANA's registries of special-purpose addresses, written out, because what the
standard library takes for global changes with its version and holds multicast, relays and, in
some versions, addresses of another family in disguise.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_IPV4_NOT_PUBLIC = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network and the unspecified address, RFC 791, RFC 1122
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # behind a carrier's NAT, RFC 6598; metadata of some clouds
        "127.0.0.0/8",  # loopback, RFC 1122
        "168.63.129.16/32",  # a cloud's service to its own machines, in public space
        "169.254.0.0/16",  # link-local, RFC 3927; metadata of most clouds
        "172.16.0.0/12",  # private, RFC 1918
        "192.0.0.0/24",  # protocol assignments, RFC 6890; metadata of some clouds
        "192.0.2.0/24",  # documentation, RFC 5737
        "192.88.99.0/24",  # relays of 6to4, RFC 7526
        "192.168.0.0/16",  # private, RFC 1918
        "198.18.0.0/15",  # benchmarks, RFC 2544
        "198.51.100.0/24",  # documentation, RFC 5737
        "203.0.113.0/24",  # documentation, RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved, RFC 1112; broadcast, RFC 919
    )
)

# What is outside is loopback, private (RFC 4193), link-local, site-local (RFC 3879), multicast
# (RFC 4291), an IPv4 address in a form of old (RFC 4291), discarded (RFC 6666) or unassigned.
_IPV6_PUBLIC = IPv6Network("2000::/3")  # RFC 4291, the only block that is given out
_IPV6_NOT_PUBLIC = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, RFC 2928, and Teredo among them, RFC 4380
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4: an IPv4 address behind a relay, RFC 3056, RFC 7526
        "3fff::/20",  # documentation, RFC 9637
    )
)

# These stand for the IPv4 address in their last 32 bits, and are judged by it. Hosts that have
# IPv6 alone see all of IPv4 through the second.
_IPV4_INSIDE = (
    IPv6Network("::ffff:0:0/96"),  # mapped, RFC 4291
    IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
)


def is_public(text: str) -> bool:
    """Whether an address, as a resolver gives it, belongs to the public internet.

    Raises:
        ValueError: it is no IP address in its usual form.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        return _is_public_ipv6(address)
    return _is_public_ipv4(address)


def _is_public_ipv4(address: IPv4Address) -> bool:
    return not any(address in network for network in _IPV4_NOT_PUBLIC)


def _is_public_ipv6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False  # one that means something on one of this machine's links only
    if any(address in network for network in _IPV4_INSIDE):
        return _is_public_ipv4(IPv4Address(address.packed[-4:]))
    return address in _IPV6_PUBLIC and not any(address in network for network in _IPV6_NOT_PUBLIC)
