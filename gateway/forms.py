"""The rule of production for `gateway.flight.Payloads`."""

from collections.abc import Callable

from gateway.flight import Picture
from gateway.payload import decode_pixels
from workers.messages import Payload, Pixels, Region


class ResizedPixels:
    """Every image is decoded and resized here."""

    def num_bytes(self, picture: Picture) -> int:
        """See `gateway.flight.Payloads`."""
        height, width = picture.task.plan.resized_size
        return height * width * 3

    def make(self, picture: Picture, *, decoded: bool) -> tuple[bytes, Callable[[Region], Payload]]:
        """See `gateway.flight.Payloads`."""
        del decoded
        height, width = picture.task.plan.resized_size
        pixels = decode_pixels(picture.source, picture.header, picture.task.plan)
        return pixels, lambda region: Pixels(region, height, width, 3, "resized")
