"""Bytes of a client in, the same without the offer of another protocol out.

Taking note of such an offer, uvicorn's parser drops the body. Some clients, Java's own among them,
offer HTTP/2 with every request until they are told no.
"""

import re

_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


def without_offer(data: bytes) -> bytes:
    """What the parser shall see of a chunk that has come in."""
    # Nothing else than a head begins like this and holds such a line: JSON cannot.
    if not data.startswith(b"POST "):
        return data
    head, end, rest = data.partition(_END_OF_HEAD)
    return _OFFER.sub(b"", head + end) + rest
