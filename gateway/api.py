"""The routes: chat completions, models, liveness, readiness, metrics."""

import time

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gateway.chat import ChatTalk
from gateway.errors import UnknownModel
from gateway.exchange import Exchange
from gateway.responses import error_response, json_response
from gateway.services import Services
from gateway.talk import MakeTalk


class Answering:
    """A route that answers prompts, as an ASGI application: it watches for the client leaving."""

    def __init__(self, services: Services, make_talk: MakeTalk) -> None:
        self._services = services
        self._make_talk = make_talk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Exchange(self._services, self._make_talk, scope, receive, send).run()


class Views:
    """The routes that only look."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._created = int(time.time())

    async def models(self, request: Request) -> Response:
        """The one model, in OpenAI's list form."""
        return json_response({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """The one model, asked for by its name."""
        name = request.path_params["name"]
        if name != self._services.served_model_name:
            return error_response(
                UnknownModel(f"the model {name[:80]!r} is not served here"), request.scope
            )
        return json_response(self._model())

    def _model(self) -> dict[str, object]:
        return {
            "id": self._services.served_model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "fovea",
        }

    async def health(self, request: Request) -> Response:
        """200 while the event loop answers."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 when each role has a worker that takes jobs, else 503; names each worker's state."""
        views = self._services.pool.fleet().workers
        workers = [
            {"name": view.name, "device": view.device, "roles": view.roles, "ready": view.ready}
            for view in views
        ]
        ready = self._services.is_ready()
        status = "draining" if self._services.draining else "ready" if ready else "not_ready"
        body = {"status": status, "workers": workers}
        return json_response(body, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """All metrics in Prometheus' text form."""
        self._services.sample_gauges()
        body = generate_latest(self._services.metrics.registry)
        return Response(body, headers={"content-type": CONTENT_TYPE_LATEST})


def routes(services: Services) -> list[BaseRoute]:
    """Every route of the gateway."""
    views = Views(services)
    return [
        Route("/v1/chat/completions", Answering(services, ChatTalk), methods=["POST"]),
        Route("/v1/models", views.models),
        Route("/v1/models/{name:path}", views.model),
        Route("/health", views.health),
        Route("/ready", views.ready),
        Route("/metrics", views.metrics),
    ]
