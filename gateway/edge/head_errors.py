"""Faults of what comes over a connection before it is a request; see `gateway.errors`."""

from gateway.errors import CallerError


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
