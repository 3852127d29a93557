"""The routes, and those of them that only look: liveness, readiness, metrics."""

from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gateway.exchange import Exchange
from gateway.generation import Generation
from gateway.routes.chat import ChatTalk
from gateway.routes.completions import CompletionTalk
from gateway.routes.models import Models
from gateway.routes.replies import json_response
from gateway.routes.responses_talk import ResponseTalk
from gateway.routes.tokenize import Counting, CountLanguage, Spelling, SpellLanguage
from gateway.schemas import openapi
from gateway.services import Services
from gateway.talk import Desk, Language

Spoken = TypeVar("Spoken", bound=Language)


class Exchanging(Generic[Spoken]):
    """A route with a body, as an ASGI application: it watches for the client leaving."""

    def __init__(
        self,
        services: Services,
        exchange: Callable[[Desk, Spoken, Scope, Receive, Send], Exchange],
        language: Callable[[Desk], Spoken],
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._language = language

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = Desk(self._services)
        await self._exchange(desk, self._language(desk), scope, receive, send).run()


class Views:
    """The routes that only look."""

    def __init__(self, services: Services) -> None:
        self._services = services

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
    views, models = Views(services), Models(services)
    chat = Exchanging(services, Generation, ChatTalk)
    completions = Exchanging(services, Generation, CompletionTalk)
    responses = Exchanging(services, Generation, ResponseTalk)
    return [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/tokenize", Exchanging(services, Counting, CountLanguage), methods=["POST"]),
        Route("/detokenize", Exchanging(services, Spelling, SpellLanguage), methods=["POST"]),
        Route("/v1/models", models.list),
        Route("/v1/models/{name:path}", models.show),
        Route("/health", views.health),
        Route("/ready", views.ready),
        Route("/metrics", views.metrics),
        Route(openapi.PATH, openapi.Publication(services).show),
    ]
