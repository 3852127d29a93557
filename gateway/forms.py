"""The rule of production for `gateway.flight.Payloads`."""

from collections.abc import Callable

from gateway.flight import Picture
from gateway.payload import as_payload, make_bytes, payload_bytes
from workers.messages import Payload, Region


class ResizedPixels:
    """Every image is decoded and resized here."""

    def num_bytes(self, picture: Picture) -> int:
        """See `gateway.flight.Payloads`."""
        return payload_bytes("resized", picture.source, picture.header, picture.task.plan)

    def make(self, picture: Picture, *, decoded: bool) -> tuple[bytes, Callable[[Region], Payload]]:
        """See `gateway.flight.Payloads`."""
        del decoded
        header, plan = picture.header, picture.task.plan
        pixels = make_bytes(picture.source, header, plan, "resized")
        return pixels, lambda region: as_payload("resized", region, header, plan)
