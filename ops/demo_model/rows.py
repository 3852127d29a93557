"""Pack a picture once and many questions about it into one row of tokens.

A row is a tree: a root (system prompt, opening of the user turn), the images, and branches that
each restart their positions after the images and cannot see each other. A branch is what a request
would be, so the training forward agrees with what a server computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

ROOT, IMAGES, FIRST_BRANCH = 0, 1, 2
FIRST_TOKEN_WEIGHT = 0.66
_PADDING = -1_000_000


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of the batch: its index there, and its grid of merged tokens."""

    index: int
    num_rows: int
    num_columns: int


class Vocabulary:
    """Token ids of texts and of the pieces of the chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.user_opening = self.encode("<|im_start|>user\n")
        self.answer_opening = self.encode("<|im_end|>\n<|im_start|>assistant\n")
        self.next_turn = self.encode("\n<|im_start|>user\n")
        self.end = self.encode("<|im_end|>")
        self.image_pad = self.encode("<|image_pad|>")[0]

    def encode(self, text: str) -> list[int]:
        """Ids of the text; special tokens are recognised in it."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def system(self, prompt: str) -> list[int]:
        """A system turn, closed."""
        return self.encode(f"<|im_start|>system\n{prompt}<|im_end|>\n")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where writing goes on. Text waits for a special token to end it: tokens span its pieces."""

    segment: int
    position: int
    text: str = ""


@dataclass(slots=True)
class Row:
    """One packed row under construction; owned by the builder of its batch."""

    vocabulary: Vocabulary
    ids: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)  # negative: does not see the shared images
    positions: list[tuple[int, int, int]] = field(default_factory=list)  # time, row, column
    weights: list[float] = field(default_factory=list)  # above zero: a token to be learned
    images: list[tuple[int, int]] = field(default_factory=list)  # batch index, ordinal in prompt
    root_end: int = 0
    images_end: int = 0
    num_branches: int = 0

    def begin(self, system_prompt: str | None) -> None:
        """Write the root."""
        if system_prompt is not None:
            self.root_end = self._text(self.vocabulary.system(system_prompt), ROOT, 0)
        self.root_end = self._text(self.vocabulary.user_opening, ROOT, self.root_end)
        self.images_end = self.root_end

    def share_images(self, pictures: Sequence[Picture], intro: str = "") -> None:
        """Put the images that later branches see before their question, after a few words."""
        start = Cursor(IMAGES, self.root_end, intro)
        self.images_end = self._images(pictures, 0, start)

    def branch(self, sees_images: bool) -> "Branch":
        """A new conversation that shares the root, and the images when asked to."""
        self.num_branches += 1
        segment = FIRST_BRANCH + self.num_branches
        if sees_images:
            return Branch(self, Cursor(segment, self.images_end))
        return Branch(self, Cursor(-segment, self.root_end))

    def _text(self, ids: list[int], segment: int, position: int, weight: float = 0.0) -> int:
        end = position + len(ids)
        self.ids += ids
        self.segments += [segment] * len(ids)
        self.positions += [(at, at, at) for at in range(position, end)]
        self.weights += [weight] * len(ids)
        return end

    def _images(self, pictures: Sequence[Picture], num_before: int, start: Cursor) -> int:
        encode = self.vocabulary.encode
        segment, position, text = start.segment, start.position, start.text
        for ordinal, picture in enumerate(pictures, num_before):
            label = encode(f"{text}Image {ordinal + 1}: <|vision_start|>")
            position = self._text(label, segment, position)
            position = self._pads(picture, ordinal, segment, position)
            position = self._text(encode("<|vision_end|>"), segment, position)
            text = ""
        return position

    def _pads(self, picture: Picture, ordinal: int, segment: int, position: int) -> int:
        num_tokens = picture.num_rows * picture.num_columns
        self.images.append((picture.index, ordinal))
        self.ids += [self.vocabulary.image_pad] * num_tokens
        self.segments += [segment] * num_tokens
        self.weights += [0.0] * num_tokens
        self.positions += [
            (position, position + row, position + column)
            for row in range(picture.num_rows)
            for column in range(picture.num_columns)
        ]
        return position + max(picture.num_rows, picture.num_columns)


@dataclass(slots=True)
class Branch:
    """One conversation inside a row; writes to the row it came from."""

    row: Row
    cursor: Cursor

    def say(self, text: str) -> None:
        """Write user text."""
        self.cursor = replace(self.cursor, text=self.cursor.text + text)

    def show(self, pictures: Sequence[Picture], num_before: int = 0) -> None:
        """Write images of the branch's own."""
        self._move(self.row._images(pictures, num_before, self.cursor))

    def answer(self, text: str, weight: float, num_tokens: int | None = None) -> None:
        """Close the user turn and write the answer, or its first tokens, which are to be learned.

        The first token decides which kind of answer it is, so it weighs the same in all of them:
        otherwise long answers would look unlikely wherever the words are new. After it, longer
        answers weigh more as a whole and less per token.
        """
        vocabulary = self.row.vocabulary
        self._write(vocabulary.encode(self.cursor.text) + vocabulary.answer_opening)
        ids = vocabulary.encode(text) + vocabulary.end
        self._write(ids[:1], weight * FIRST_TOKEN_WEIGHT)
        self._write(ids[1:num_tokens], weight * len(ids) ** -0.6)

    def next_turn(self) -> None:
        """Open another user turn."""
        self._write(self.row.vocabulary.next_turn)

    def _write(self, ids: list[int], weight: float = 0.0) -> None:
        cursor = self.cursor
        self._move(self.row._text(ids, cursor.segment, cursor.position, weight))

    def _move(self, position: int) -> None:
        self.cursor = Cursor(self.cursor.segment, position)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows padded to one length."""

    ids: NDArray[np.int64]  # [rows, length]
    positions: NDArray[np.int64]  # [3, rows, length]
    weights: NDArray[np.float32]  # [rows, length]
    visible: NDArray[np.bool_]  # [rows, length, length]: the query may see the key


def pack(rows: Sequence[Row]) -> PackedRows:
    """Pad to a multiple of 16 and work out who sees whom."""
    length = (max(len(row.ids) for row in rows) + 15) // 16 * 16
    ids = np.zeros((len(rows), length), np.int64)
    positions = np.zeros((3, len(rows), length), np.int64)
    weights = np.zeros((len(rows), length), np.float32)
    segments = np.full((len(rows), length), _PADDING)
    for index, row in enumerate(rows):
        size = len(row.ids)
        ids[index, :size] = row.ids
        positions[:, index, :size] = np.array(row.positions).T
        weights[index, :size] = row.weights
        segments[index, :size] = row.segments
    return PackedRows(ids, positions, weights, _visible(segments))


def _visible(segments: NDArray[np.int64]) -> NDArray[np.bool_]:
    query, key = segments[:, :, None], segments[:, None, :]
    shared = (key == ROOT) | ((key == IMAGES) & (query >= IMAGES))
    earlier = np.tril(np.ones(segments.shape[1:] * 2, np.bool_))
    visible: NDArray[np.bool_] = (shared | (key == query)) & earlier
    return visible
