"""Lets in whoever bears a known API key, within the limits of that key; nothing else is behind it.

Plain ASGI middleware around all routes, so that a new route is guarded without a word.
"""

from contextlib import ExitStack

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.edge.key_ring import KeyRing
from gateway.edge.limits import Account
from gateway.errors import InvalidKey, ServeError
from gateway.observe.metrics import Metrics
from gateway.routes.replies import error_response

OPEN_PATHS = ("/health", "/ready")  # probes have no keys
_LOOKING_METHODS = ("GET", "HEAD")  # what only looks is not counted
_MAX_KEY_BYTES = 512


class Gate:
    """Owned by the event loop."""

    def __init__(self, app: ASGIApp, ring: KeyRing, metrics: Metrics) -> None:
        self._app = app
        self._ring = ring
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            account = self._ring.account(_key_of(scope), scope["path"])
        except ServeError as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._let_in(account, scope, receive, send)

    async def _let_in(self, account: Account, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["account"] = account

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *account.headers()]
            await send(message)

        with ExitStack() as place:
            try:
                if scope["method"] not in _LOOKING_METHODS:
                    place.enter_context(account.request())
            except ServeError as error:
                await self._refuse(error, scope, receive, send_with_limits)
                return
            await self._app(scope, receive, send_with_limits)

    async def _refuse(self, error: ServeError, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics.requests.labels(str(error.status), error.code).inc()
        self._metrics.count_error(error)
        await error_response(error, scope)(scope, receive, send)


def _key_of(scope: Scope) -> bytes:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        raise InvalidKey("an API key is needed, in a header Authorization: Bearer KEY")
    kind, _, key = given[0].strip().partition(b" ")
    key = key.strip()
    if len(given) > 1 or kind.lower() != b"bearer" or not 0 < len(key) <= _MAX_KEY_BYTES:
        raise InvalidKey("the header Authorization should be one, of the form Bearer KEY")
    return bytes(key)
