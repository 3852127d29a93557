"""Tokens and images of a prompt in, names of its blocks out: equal for equal content only."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from workers.messages import Span

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class _ImageMark:
    """An image of a prompt, and all that its keys and values depend on beside its place."""

    start: int  # index of its first token
    end: int  # index after its last token
    content: bytes  # grid, then the feature identity


class BlockKeys:
    """Names the blocks of one sequence; grows with its answer. Owned by the sequence.

    A block's key is a keyed digest over its parent's key, its token ids, and for each image in it
    the place, the offset inside the image, grid and identity. So it stands for the whole
    beginning of the prompt: positions follow from the grids before, keys and values from it all.
    The chain starts with the salt: whoever has another one finds nothing.
    """

    def __init__(
        self, secret: bytes, salt: bytes, spans: Sequence[Span], block_tokens: int
    ) -> None:
        """`secret` is at most 64 bytes; equal in engines whose keys shall be comparable."""
        self._secret = secret
        self._block_tokens = block_tokens
        self._images = [
            _ImageMark(span.start, span.start + span.num_tokens, _content(span)) for span in spans
        ]
        self._num_passed = 0  # images that end before the next block
        self._parent = self._digest(salt)
        self._keys: list[bytes] = []

    def upto(self, token_ids: Sequence[int], num_blocks: int) -> list[bytes]:
        """Keys of the first `num_blocks` blocks of `token_ids`, which only ever grows."""
        size = self._block_tokens
        assert num_blocks * size <= len(token_ids), "only full blocks have keys"
        start = len(self._keys) * size
        new = np.array(token_ids[start : num_blocks * size], "<i4").reshape(-1, size)
        for block in new:
            self._parent = self._digest(self._parent + block.tobytes() + self._shown(start))
            self._keys.append(self._parent)
            start += size
        return self._keys[:num_blocks]

    def _shown(self, start: int) -> bytes:
        """The images of the block that starts there, each part of one length or framed."""
        end, images, parts = start + self._block_tokens, self._images, list[bytes]()
        while self._num_passed < len(images) and images[self._num_passed].end <= start:
            self._num_passed += 1
        for image in images[self._num_passed :]:
            if image.start >= end:
                break
            first = max(start, image.start)
            places = (first - start, min(end, image.end) - start, first - image.start)
            parts += [_frame(place) for place in places]
            parts += [_frame(len(image.content)), image.content]
        return b"".join(parts)

    def _digest(self, content: bytes) -> bytes:
        state = blake2b(content, key=self._secret, digest_size=KEY_BYTES, person=b"fovea prefix")
        return state.digest()


def _content(span: Span) -> bytes:
    return b"".join(map(_frame, span.grid)) + span.identity


def _frame(number: int) -> bytes:
    return number.to_bytes(8, "little")
