"""A token id in, the bytes that it stands for out."""

import codecs

from tokenizers import Tokenizer

from gateway.prompts.letters import BYTES


def name_of(spelling: bytes) -> str:
    """A token's text; of one that is not whole characters its bytes, as OpenAI's API tells them.

    So tokens of different bytes have different names.
    """
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)


class Ruler:
    """Measures spellings one after the other, in characters. Owned by the request's task."""

    def __init__(self, start: int = 0) -> None:
        self._end = start  # of the characters that are whole
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def place(self, spelling: bytes) -> int:
        """The character that the next spelling begins with, or goes on with."""
        first = self._end + len(self._decoder.decode(spelling[:1]))
        is_open, _ = self._decoder.getstate()
        self._end = first + len(self._decoder.decode(spelling[1:]))
        return first if is_open or not spelling else first - 1


class Speller:
    """Spells the tokens of one byte-level vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder().items()
        self._tokenizer = tokenizer
        self._added = {token.content: token_id for token_id, token in added}
        self._special = frozenset(token_id for token_id, token in added if token.special)

    def is_special(self, token_id: int) -> bool:
        """Whether the token controls the model and is no text."""
        return token_id in self._special

    def find(self, text: str) -> int | None:
        """The added token that stands for this text, if one does."""
        return self._added.get(text)

    def spell(self, token_id: int) -> bytes:
        """The token's bytes, which need not be whole characters; none for an id of no token."""
        piece = self._tokenizer.id_to_token(token_id) or ""
        try:
            return bytes(map(BYTES.__getitem__, piece))
        except KeyError:  # an added token, which stands for itself
            return piece.encode()
