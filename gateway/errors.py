"""Every way a request can fail, and the one map from failure to status and OpenAI error body.

ServeError
  CallerError       BadRequest 400, PromptTooLong 400, ImageRejected 400, ImageTooLarge 413,
                    BodyTooLarge 413, BodyTimeout 408, UnknownModel 404, UnknownRoute 404,
                    WrongMethod 405, InvalidKey 401, KeyNotAllowed 403, RequestFenced 422,
                    ImageFenced 422
    HeadError       MalformedRequest 400, HeadTimeout 408, IdleTimeout 408, HeadTooLarge 431
  BusyError         Overloaded 429, RateLimited 429, DeadlinePassed 504, NotReady 503,
                    TooManyConnections 503
  WorkerError       WorkerFailed 500, OutOfMemory 503, WorkerLost 503

Messages name the field, the limit and the value given, and never hold an address of memory, a
path, or more than a few characters of the caller's data.
"""

import math
from typing import Any, Literal

Stage = Literal["fetch", "header", "decode", "limit", "encode"]


class ServeError(Exception):
    """A fault of the gateway, and the root of the tree.

    `code` is stable: the body's code, the metric label and the log field.
    """

    status = 500
    type = "server_error"
    code = "internal_error"
    param: str | None = None
    retryable = False  # whether the same request may go well later
    retry_after_seconds: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param if param is not None else self.param
        self.code = code if code is not None else self.code

    def rename(self, param: str) -> None:
        """Blame a field by the name that its route has for it."""
        if self.param is not None and param != self.param:
            self.message = self.message.replace(self.param, param, 1)
            self.param = param

    def extra(self) -> dict[str, Any]:
        """Fields of the error body beside OpenAI's own."""
        return {}


class CallerError(ServeError):
    """The caller's mistake: sending the same again cannot help."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class BadRequest(CallerError):
    """A field is missing, of the wrong type or out of range; or the body is no JSON object."""


class PromptTooLong(CallerError):
    """Prompt and answer do not fit the context."""

    code = "context_length_exceeded"
    param = "messages"


class BodyTooLarge(CallerError):
    """The request body is longer than the limit."""

    status = 413
    code = "body_too_large"


class BodyTimeout(CallerError):
    """The request body did not arrive in time."""

    status = 408
    code = "body_timeout"


class UnknownModel(CallerError):
    """The model is not served here."""

    status = 404
    code = "model_not_found"
    param = "model"


class UnknownRoute(CallerError):
    """No such path."""

    status = 404
    code = "unknown_route"


class WrongMethod(CallerError):
    """The path exists, the method is not allowed on it."""

    status = 405
    code = "method_not_allowed"


class InvalidKey(CallerError):
    """The request bears no API key, or none that is known here."""

    status = 401
    code = "invalid_api_key"


class KeyNotAllowed(CallerError):
    """The key is known, but is not for this route."""

    status = 403
    code = "insufficient_permissions"


class HeadError(CallerError):
    """What came over the connection is no request; the connection is closed."""

    code = "invalid_http"


class MalformedRequest(HeadError):
    """The bytes are no HTTP/1.1."""


class HeadTimeout(HeadError):
    """The head of a request did not arrive in time."""

    status = 408
    code = "head_timeout"


class IdleTimeout(HeadError):
    """No request came over the connection; whoever reads this may have sent one just now."""

    status = 408
    code = "idle_timeout"
    retryable = True


class HeadTooLarge(HeadError):
    """The head of a request, or what comes behind its body, is longer than the limit."""

    status = 431
    code = "head_too_large"


class ImageRejected(CallerError):
    """One image cannot be used; nothing else of the server is touched."""

    code = "invalid_image"

    def __init__(
        self,
        message: str,
        *,
        index: int,
        stage: Stage,
        param: str,
        code: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(f"image {index}: {message}", param=param, code=code)
        self.index = index
        self.stage = stage
        self.retryable = retryable
        self._reason = message

    def about(self, index: int, param: str) -> "ImageRejected":
        """The same fault in an equal image of another request, or at another place."""
        same = type(self)(
            self._reason,
            index=index,
            stage=self.stage,
            param=param,
            code=self.code,
            retryable=self.retryable,
        )
        same.retry_after_seconds = self.retry_after_seconds
        return same

    def extra(self) -> dict[str, Any]:
        return {"image_index": self.index, "stage": self.stage}


class ImageTooLarge(ImageRejected):
    """One image is over a limit in bytes, pixels or side."""

    status = 413
    code = "image_too_large"


class BusyError(ServeError):
    """Nobody's fault: the same request may go well later."""

    status = 429
    type = "overloaded_error"
    retryable = True


class Overloaded(BusyError):
    """The server is full; refused before any work was done."""

    code = "overloaded"
    retry_after_seconds = 1
    hit: dict[str, str | int] | None = None  # the limit, as error bodies tell it

    @classmethod
    def by(cls, name: str, value: int, limit: int, retry_seconds: float = 1.0) -> "Overloaded":
        """Refuse by a limit: the name of its setting, what is in work, and how much may be."""
        error = cls(f"{value} are in work; the limit {name} is {limit}")
        error.hit = {"name": name, "value": value, "limit": limit}
        error.retry_after_seconds = math.ceil(retry_seconds)
        return error

    def extra(self) -> dict[str, Any]:
        return {"limit": self.hit} if self.hit else {}


class RateLimited(BusyError):
    """The key has used up what it may use; as in OpenAI's API, the type tells what of."""

    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, kind: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.type = kind
        self.retry_after_seconds = retry_after_seconds


class TooManyConnections(BusyError):
    """More connections are open than the limit; this one is closed."""

    status = 503
    code = "too_many_connections"
    retry_after_seconds = 1


class DeadlinePassed(BusyError):
    """The request's time limit ran out."""

    status = 504
    type = "timeout_error"
    code = "deadline_passed"


class NotReady(BusyError):
    """No worker of a needed role is ready."""

    status = 503
    code = "not_ready"
    retry_after_seconds = 2


class WorkerError(ServeError):
    """A worker failed; the request was not at fault."""

    retryable = True


class WorkerFailed(WorkerError):
    """A worker reported a fault while it did this request's work."""

    code = "worker_failed"


class OutOfMemory(WorkerError):
    """A worker had no memory for this request's work; others may have left it some by now."""

    status = 503
    code = "out_of_memory"
    retry_after_seconds = 1


class WorkerLost(WorkerError):
    """A worker died while it held this request's work, or before it came to it."""

    status = 503
    code = "worker_lost"
    retry_after_seconds = 1

    def __init__(self, message: str, *, is_suspect: bool = False) -> None:
        """`is_suspect`: whether it may have died of this very work."""
        super().__init__(message)
        self.is_suspect = is_suspect


def error_body(error: ServeError, request_id: str) -> dict[str, Any]:
    """The OpenAI error object of a failure; server errors carry the request id in the message."""
    message = error.message
    if error.status >= 500:
        message = f"{message} (request {request_id})"
    return {
        "error": {
            "message": message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
            "retryable": error.retryable,
            **error.extra(),
        }
    }
