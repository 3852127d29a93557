"""The language of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any

from gateway.answers import sse
from gateway.answers.answer import Piece
from gateway.answers.token_log import Entry
from gateway.schemas.schema import parse_request
from gateway.talk import Asked, Desk


class ChatTalk:
    """One chat request; see `gateway.talk.Talk`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._frames = sse.Frames(desk.job_id, desk.services.served_model_name)
        self._num_choices = 1
        self._include_usage = False

    def read(self, body: bytes) -> Asked:
        """Check a body; see `gateway.talk.Talk.read`."""
        request = parse_request(body)
        prompt = self._desk.prompt(request)
        self._num_choices = prompt.num_choices
        self._include_usage = prompt.include_usage
        return Asked((prompt,), prompt.streamed, request.unknown_fields)

    def blame(self, param: str) -> str:
        """Fields have their own names here."""
        return param

    def whole(self, pieces: Sequence[Piece], usage: sse.Usage) -> dict[str, Any]:
        """A chat completion."""
        choices = [_join(pieces, index) for index in range(self._num_choices)]
        return self._frames.completion(choices, usage)

    def opening(self) -> bytes:
        """The role of each choice."""
        return b"".join(map(self._frames.role, range(self._num_choices)))

    def pieces(self, pieces: Sequence[Piece]) -> bytes:
        """Deltas, and the reason where a choice ends."""
        written = b""
        for piece in pieces:
            written += self._frames.deltas(piece.choice, piece.deltas, piece.logprobs)
            if piece.reason is not None:
                written += self._frames.finish(piece.choice, piece.reason)
        return written

    def closing(self, usage: sse.Usage) -> bytes:
        """Usage where it was asked for, and the end."""
        return (self._frames.usage(usage) if self._include_usage else b"") + sse.DONE

    def failure(self, body: dict[str, Any]) -> bytes:
        """The error, and the end."""
        return sse.frame(body) + sse.DONE


def _join(told: Sequence[Piece], index: int) -> sse.Choice:
    """All pieces of one choice as one."""
    pieces = [piece for piece in told if piece.choice == index]
    logprobs: list[Entry] | None = None
    if pieces[0].logprobs is not None:
        logprobs = [entry for piece in pieces for entry in piece.logprobs or ()]
    deltas = [delta for piece in pieces for delta in piece.deltas]
    return sse.Choice(deltas, pieces[-1].reason or "", logprobs)
