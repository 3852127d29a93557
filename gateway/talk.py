"""The seam between an exchange and its route: how bodies are read and answers are written."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.answers.answer import Piece
from gateway.answers.sse import Usage
from gateway.errors import UnknownModel
from gateway.prompts.prompt import Prompt, make_prompt
from gateway.schemas.schema import ChatRequest
from gateway.services import Services


@dataclass(frozen=True, slots=True)
class Asked:
    """What one body asks for."""

    prompts: tuple[Prompt, ...]  # one, but for several texts to complete
    streamed: bool
    ignored: tuple[str, ...]  # fields that nobody here knows; they change nothing


class Language(Protocol):
    """How one route reads bodies. Owned by the request's task."""

    def read(self, body: bytes) -> Asked:
        """Check a body. Blocking: some milliseconds per mebibyte.

        Raises:
            CallerError: the body, or an image in it, is at fault.
        """
        ...

    def blame(self, param: str) -> str:
        """The route's own name of a field that is called so by chat completions."""
        ...


class Talk(Language, Protocol):
    """How one route reads bodies and writes answers. Owned by the request's task.

    A stream is `opening`, any number of `pieces`, then `closing`; or `failure` at any time.
    """

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ...

    def opening(self) -> bytes:
        """The first frames of a stream."""
        ...

    def pieces(self, pieces: Sequence[Piece]) -> bytes:
        """Frames with the next text; they may be none."""
        ...

    def closing(self, usage: Usage) -> bytes:
        """The last frames of a stream."""
        ...

    def failure(self, body: dict[str, Any]) -> bytes:
        """The last frames of a stream that fails; `body` is OpenAI's error body."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What a route needs to make prompts of a body."""

    services: Services
    job_id: str = field(default_factory=lambda: secrets.token_hex(12))
    begun: float = field(default_factory=time.monotonic)  # in its seconds

    def prompt(self, request: ChatRequest) -> Prompt:
        """The prompt of a checked request.

        Raises:
            UnknownModel: another model than the one that is served.
            CallerError: see `make_prompt`.
        """
        services = self.services
        check_model(request.model, services.served_model_name)
        return make_prompt(
            request,
            request_id=self.job_id,
            checkpoint=services.checkpoint,
            limits=services.settings.images,
            request_seconds=services.settings.server.request_seconds,
            now=self.begun,
        )


def check_model(asked: str, served: str) -> None:
    """Raise `UnknownModel` unless it is the one that is served."""
    if asked != served:
        name = repr(asked[:80]) if asked[:80].isprintable() else "asked for"
        raise UnknownModel(f"the model {name} is not served here; {served!r} is")
