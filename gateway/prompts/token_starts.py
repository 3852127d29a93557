"""Tokens of a raw prompt in, the character of its text where each begins out."""

from collections.abc import Iterator, Sequence

from tokenizers import Encoding

from gateway.answers.spelling import Ruler, Speller


def starts_in_text(encoding: Encoding) -> Iterator[int]:
    """Of the tokens of a text. Those that the tokenizer set around it take no room.

    Some tokenizers leave the spaces before a word out of its place; they belong to the token.
    """
    end = 0
    for (start, stop), is_added in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
        if is_added:
            yield end
        else:
            yield min(start, end)
            end = stop


def starts_when_spelt(token_ids: Sequence[int], speller: Speller) -> Iterator[int]:
    """Of tokens, in what they say together."""
    ruler = Ruler()
    return (ruler.place(speller.spell(token_id)) for token_id in token_ids)
