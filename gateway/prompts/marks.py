"""Keeps callers from writing control tokens: message texts in, texts with marks out, and back.

A caller's text may spell the tokens that give a prompt its structure. Each spelling is swapped
for a mark before the chat template runs and put back afterwards; then the tokenizer sees the
whole prompt, and a control token that it finds in a caller's words is replaced by the ids of its
letters. So every other id is what the tokenizer gives, and nobody opens a turn or places an
image by writing.
"""

import bisect
import re
import secrets
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer

from gateway.prompts.checkpoint import Checkpoint
from gateway.prompts.control_tokens import ControlTokens

_END = "end "  # no mark ends so; the blank tells whether a template trims


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's text, and the ranges of it where callers spell control tokens.

    A range is its first and its past-the-last character; ranges ascend. An empty one is a place
    where a caller's text ends like the beginning of a spelling: what follows may complete it.
    """

    text: str
    ranges: tuple[tuple[int, int], ...]


class Marks:
    """The marks of one request. Owned by the thread that builds its prompt.

    A mark is a long random number and a short index, so no text holds one by chance or intent,
    and whatever a template does to letters leaves it alone.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._head = f"{secrets.randbits(64):020}"
        self._spellings: list[str] = []

    def swap(self, text: str) -> str:
        """The text with a mark for each spelling, and one behind a spelling that only begins."""
        return self._swap(text, self._checkpoint.control)

    def swap_all(self, value: Any) -> Any:
        """JSON for templates with marks in all of its strings; nothing that callers send is deep.

        See `Checkpoint.foreign`.
        """
        if isinstance(value, str):
            return self._swap(value, self._checkpoint.foreign)
        if isinstance(value, dict):
            return {self.swap_all(name): self.swap_all(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.swap_all(each) for each in value]
        return value

    def _swap(self, text: str, control: ControlTokens) -> str:
        marked = control.pattern.sub(self._mark_match, text)
        end = len(marked.rstrip())  # templates may trim, which must not move the mark inwards
        if text.rstrip().endswith(control.prefixes):
            return marked[:end] + self._mark("") + marked[end:]
        return marked

    def end(self, text: str) -> str:
        """A marked text with a mark at its end, for `cut`."""
        return f"{text}{self._head}{_END}"

    def cut(self, rendered: str) -> str | None:
        """What is rendered up to the mark that `end` set; nothing if the template left it out.

        A template that trims a message trims the blank of the mark, so the message is trimmed.
        """
        mark = f"{self._head}{_END}"
        at = rendered.rfind(mark.rstrip())
        if at < 0:
            return None
        return rendered[:at] if rendered.startswith(mark, at) else rendered[:at].rstrip()

    def put_back(self, rendered: str) -> Rendered:
        """The rendered text with the spellings back in their places."""
        pieces = re.split(rf"{self._head}(\d{{8}})", rendered)
        texts, ranges, length = [pieces[0]], [], len(pieces[0])
        for index, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            spelling = self._spellings[int(index)]
            ranges.append((length, length + len(spelling)))
            texts += [spelling, piece]
            length += len(spelling) + len(piece)
        return Rendered("".join(texts), tuple(ranges))

    def _mark_match(self, match: re.Match[str]) -> str:
        return self._mark(match.group())

    def _mark(self, spelling: str) -> str:
        self._spellings.append(spelling)
        return f"{self._head}{len(self._spellings) - 1:08}"


def without_forgeries(encoding: Encoding, rendered: Rendered, checkpoint: Checkpoint) -> list[int]:
    """The ids of a rendered prompt, with letters for each control token that a caller wrote."""
    if not rendered.ranges:
        return encoding.ids
    ends = [end for _, end in rendered.ranges]
    ids: list[int] = []
    letters: dict[str, list[int]] = {}
    for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        after = bisect.bisect_right(ends, start)  # the first range that does not end before
        forged = after < len(ends) and rendered.ranges[after][0] < end
        if forged and token_id in checkpoint.foreign.ids:
            spelling = rendered.text[start:end]
            if spelling not in letters:
                letters[spelling] = _letters(spelling, checkpoint)
            ids += letters[spelling]
        else:
            ids.append(token_id)
    return ids


def _letters(text: str, checkpoint: Checkpoint) -> list[int]:
    """Ids of a text without any control token, even where it is the spelling of one."""
    ids = _plain_ids(text, checkpoint.tokenizer)
    if checkpoint.foreign.ids.isdisjoint(ids):
        return ids
    # The vocabulary holds the spelling as a word, too.
    return [token_id for letter in text for token_id in _plain_ids(letter, checkpoint.tokenizer)]


def _plain_ids(text: str, tokenizer: Tokenizer) -> list[int]:
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    words = [text]
    if tokenizer.pre_tokenizer is not None:
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return [token.id for word in words for token in tokenizer.model.tokenize(word)]
