"""A token id in, the bytes that it stands for out."""

from tokenizers import Tokenizer

from gateway.prompts.letters import BYTES


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
