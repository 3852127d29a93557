"""Likelihoods of tokens in, the columns of OpenAI's older `logprobs` out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class OldLog:
    """One row for each token, in order. Owned by whoever fills it."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)  # in characters

    def begin(self, name: str, start: int) -> None:
        """Add the first token of a prompt, which has no likelihood."""
        self.tokens.append(name)
        self.token_logprobs.append(None)
        self.top_logprobs.append(None)
        self.text_offset.append(start)

    def add(self, name: str, logprob: float, top: Iterable[tuple[str, float]], start: int) -> None:
        """Add a token; `top` are the likeliest in its place, in order, with their names.

        Where two of these have one name, the likelier keeps it: then the best of the row is the
        best that the model had, whatever the names.
        """
        told: dict[str, float] = {}
        for each, value in (*top, (name, logprob)):
            told.setdefault(each, value)
        self.tokens.append(name)
        self.token_logprobs.append(logprob)
        self.top_logprobs.append(told)
        self.text_offset.append(start)

    def join(self, other: "OldLog") -> "OldLog":
        """Both, one after the other."""
        return OldLog(
            tokens=self.tokens + other.tokens,
            token_logprobs=self.token_logprobs + other.token_logprobs,
            top_logprobs=self.top_logprobs + other.top_logprobs,
            text_offset=self.text_offset + other.text_offset,
        )

    def body(self) -> dict[str, Any]:
        """OpenAI's object."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        }
