"""Who is let in, over the routes of a whole application without workers."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.edge.gate import Gate
from gateway.edge.key_ring import KeyRing
from gateway.edge.limits import account_of
from gateway.edge.request_id import RequestId
from gateway.observe.metrics import Metrics

pytestmark = pytest.mark.anyio
KEYS = {"fovea-one": "requests_per_minute=2", "fovea-two": "scope=metrics", "fovea-three": ""}


async def tell_tenant(request: Request) -> Response:
    return Response(account_of(request.scope).tenant)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def caller(tmp_path: Path, metrics: Metrics) -> AsyncIterator[httpx.AsyncClient]:
    lines = [
        f"name{index} sha256:{sha256(key.encode()).hexdigest()} {words}"
        for index, (key, words) in enumerate(KEYS.items())
    ]
    (tmp_path / "keys").write_text("\n".join(lines))
    paths = ("/health", "/ready", "/metrics", "/v1/models", "/v1/chat/completions")
    router = Starlette(routes=[Route(path, tell_tenant, methods=["GET", "POST"]) for path in paths])
    app = RequestId(Gate(router, KeyRing(tmp_path / "keys"), metrics))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://gateway"
    ) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200),
        ("/ready", 200),
        ("/metrics", 401),
        ("/v1/models", 401),
        ("/nothing", 401),
        ("/health/", 401),
        ("/v1/%2e%2e/health", 401),
        ("/%68ealth", 200),  # the same path, by any spelling
        ("/health%2f..%2fmetrics", 401),
    ],
)
async def test_without_a_key_only_probes_are_answered(
    caller: httpx.AsyncClient, path: str, status: int
) -> None:
    url = httpx.URL("http://gateway", raw_path=path.encode())
    assert (await caller.get(url)).status_code == status


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["Bearer fovea-four"],
        ["Bearer"],
        ["Bearer "],
        ["fovea-three"],
        ["Basic fovea-three"],
        ["Bearer fovea-three", "Bearer fovea-three"],
        ["Bearer fovea-three, Bearer fovea-three"],
        ["Bearer fovea-thre"],
        ["Bearer fovea-three3"],
        ["Bearer \xe9"],
        ["Bearer " + "x" * 5000],
    ],
)
async def test_a_wrong_key_is_401_in_openais_form_without_an_echo(
    caller: httpx.AsyncClient, metrics: Metrics, given: list[str]
) -> None:
    headers = [(b"authorization", value.encode("latin-1")) for value in given]
    response = await caller.post("/v1/chat/completions", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert error["code"] == "invalid_api_key"
    assert error["type"] == "invalid_request_error"
    assert error["retryable"] is False
    assert "fovea-" not in response.text
    assert "xxxx" not in response.text
    line = 'fovea_requests_total{code="invalid_api_key",status="401"} 1.0'
    assert line in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
async def test_a_key_opens_the_routes(caller: httpx.AsyncClient, kind: str) -> None:
    headers = {"authorization": f"{kind}   fovea-three  "}
    first = await caller.post("/v1/chat/completions", headers=headers)
    assert first.status_code == 200
    assert len(first.content) == 16
    assert "x-ratelimit-limit-requests" not in first.headers
    other = await caller.post("/v1/chat/completions", headers=bearer("fovea-one"))
    assert other.content != first.content


async def test_a_key_for_metrics_opens_nothing_else(caller: httpx.AsyncClient) -> None:
    assert (await caller.get("/metrics", headers=bearer("fovea-two"))).status_code == 200
    refused = await caller.get("/v1/models", headers=bearer("fovea-two"))
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "insufficient_permissions"
    assert (await caller.get("/metrics", headers=bearer("fovea-three"))).status_code == 403


async def test_over_a_limit_is_429_with_all_headers(caller: httpx.AsyncClient) -> None:
    headers = bearer("fovea-one")
    for left in (1, 0):
        response = await caller.post("/v1/chat/completions", headers=headers)
        assert response.status_code == 200
        assert response.headers["x-ratelimit-limit-requests"] == "2"
        assert response.headers["x-ratelimit-remaining-requests"] == str(left)
    refused = await caller.post("/v1/chat/completions", headers=headers)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "requests"
    assert refused.json()["error"]["retryable"] is True
    assert refused.headers["retry-after"] == "30"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"] in {"1m0s", "59.9s", "60s"}
    looked = await caller.get("/v1/models", headers=headers)  # looking is free
    assert looked.status_code == 200
    assert looked.headers["x-ratelimit-limit-requests"] == "2"
