"""uvicorn's HTTP/1.1, deaf to offers of HTTP/2: taking note of one, its parser drops the body.

Some clients, Java's own among them, make that offer with every request until they are told no.
"""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


class Http1(HttpToolsProtocol):
    """One connection. Owned by uvicorn."""

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        # Nothing else than a head begins like this and holds such a line: JSON cannot.
        if data.startswith(b"POST "):
            head, end, rest = data.partition(_END_OF_HEAD)
            data = _OFFER.sub(b"", head + end) + rest
        super().data_received(data)
