"""Services in, the ASGI application out."""

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.api import routes
from gateway.edge.gate import Gate
from gateway.edge.request_id import RequestId
from gateway.errors import BadRequest, ServeError, UnknownRoute, WrongMethod
from gateway.routes.replies import error_response
from gateway.services import Services

log = logging.getLogger(__name__)


def build_app(services: Services) -> ASGIApp:
    """The whole HTTP side as one ASGI application."""
    handlers = {HTTPException: _on_http_error, Exception: _on_fault}
    router = Starlette(routes=routes(services), exception_handlers=handlers)
    router.router.redirect_slashes = False  # by the caller's word for where we are
    app: ASGIApp = router
    if services.keys is not None:
        app = Gate(app, services.keys, services.metrics)
    # Outside of everything, so that answers to faults carry the id as well.
    return RequestId(app)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:80]
    ours: ServeError = BadRequest(error.detail)
    if error.status_code == 404:
        ours = UnknownRoute(f"there is no route {path}")
    elif error.status_code == 405:
        ours = WrongMethod(f"{request.method} is not allowed on {path}")
    response = error_response(ours, request.scope)
    response.headers.update(error.headers or {})
    return response


async def _on_fault(request: Request, error: Exception) -> Response:
    log.error("a route failed", exc_info=error)
    return error_response(ServeError("the gateway failed on this request"), request.scope)
