"""A `SourceImage` and its plan in, RGB pixels of the planned size out; and the pool that does it.

The order of steps is fixed, because it decides the bits: decode the first frame, to RGB or RGBA,
turn upright, resize (Pillow's own bicubic, premultiplied under alpha), lay on the background.
"""

import os
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
import numpy as np
from PIL import Image

from gateway.fetch import SourceImage
from gateway.header import ALPHA_MODES, ImageHeader, blame_image, open_picture
from workers.families.plan import Background, ImagePlan

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# What makes a picture upright, by EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_pixels(image: SourceImage, header: ImageHeader, plan: ImagePlan) -> bytes:
    """Decode one image: uint8 RGB, [height, width, 3] of `plan.resized_size`, tightly packed.

    Pure and blocking, so it belongs in a `DecodePool`. 16-bit values are scaled, not clipped.

    Raises:
        ImageRejected: stage decode; the pixel data is damaged or incomplete.
    """
    with blame_image(image, "decode"):
        picture: Image.Image = open_picture(image.data, header.format)
        # A TIFF turns itself while it loads; it shall not listen to an orientation in its XMP.
        picture.info.pop("xmp", None)
        picture.load()
        picture = _to_colour(picture)
    if header.orientation in _TURNS:
        picture = picture.transpose(_TURNS[header.orientation])
    height, width = plan.resized_size
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    if picture.mode == "RGBA":
        picture = _lay_on_ground(picture, plan.background)
    return picture.tobytes()


def _lay_on_ground(picture: Image.Image, background: Background | None) -> Image.Image:
    if background is None:
        return picture.convert("RGB")
    ground = Image.new("RGB", picture.size, background.first)
    ground.paste(picture, mask=picture)
    return ground


def _to_colour(picture: Image.Image) -> Image.Image:
    """To RGBA where anything may be transparent, else to RGB."""
    transparent = picture.info.get("transparency")
    if picture.mode.startswith("I;16"):
        return _scale_16_bits(picture, transparent)
    if picture.mode in ALPHA_MODES or transparent is not None:
        return picture.convert("RGBA")
    return picture.convert("RGB")


def _scale_16_bits(picture: Image.Image, transparent: int | None) -> Image.Image:
    values = np.asarray(picture).astype(np.uint32)
    gray = ((values + 128) // 257).astype(np.uint8)  # 65535 becomes 255, rounded to nearest
    channels = [gray, gray, gray]
    if transparent is not None:
        channels.append(np.where(values == transparent, 0, 255).astype(np.uint8))
    return Image.fromarray(np.stack(channels, axis=-1))


class Turn(NamedTuple):
    """The place of a job in the order; smaller goes first."""

    round: int
    is_continued: bool  # the request had other jobs when this one came
    arrival: int  # differs between any two jobs


class _Share:
    """The part of one request in a pool: its last round, and its jobs that have not ended."""

    def __init__(self, last_round: int) -> None:
        self.last_round = last_round
        self.num_jobs = 0


class DecodePool:
    """Worker threads that take turns between requests; owned by the event loop.

    Each job of a request belongs to a round of its own, and rounds go one after the other. Who
    comes new joins the next round, at its front. So a request with one image waits for at most one
    job of a request with twenty, and newcomers without end do not starve the twenty.
    """

    def __init__(self, num_threads: int) -> None:
        """`num_threads` of 0 means one per core."""
        self._num_free = num_threads or len(os.sched_getaffinity(0))
        self._limiter = anyio.CapacityLimiter(self._num_free)
        self._waiting: list[tuple[Turn, anyio.Event]] = []  # a heap
        self._shares: dict[str, _Share] = {}
        self._round = 0
        self._num_arrived = 0

    async def run(
        self, request_id: str, function: Callable[[*Arguments], Result], *args: *Arguments
    ) -> Result:
        """Run a blocking function in a thread when it is the request's turn.

        A caller that is cancelled while it waits gives its turn away; one that is cancelled while
        the function runs leaves when the function ends, because a thread cannot be stopped.
        """
        share = self._shares.setdefault(request_id, _Share(self._round))
        share.last_round = max(share.last_round, self._round) + 1
        turn = Turn(share.last_round, share.num_jobs > 0, self._num_arrived)
        self._num_arrived += 1
        share.num_jobs += 1
        try:
            await self._wait_for(turn)
            try:
                return await anyio.to_thread.run_sync(function, *args, limiter=self._limiter)
            finally:
                self._pass_turn_on()
        finally:
            share.num_jobs -= 1
            if share.num_jobs == 0:
                del self._shares[request_id]

    async def _wait_for(self, turn: Turn) -> None:
        if self._num_free:
            self._num_free -= 1
            self._round = max(self._round, turn.round)
            return
        waiter = (turn, anyio.Event())
        heappush(self._waiting, waiter)
        try:
            await waiter[1].wait()
        except anyio.get_cancelled_exc_class():
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                heapify(self._waiting)
            else:
                self._pass_turn_on()
            raise

    def _pass_turn_on(self) -> None:
        if not self._waiting:
            self._num_free += 1
            return
        turn, is_next = heappop(self._waiting)
        self._round = turn.round
        is_next.set()
