"""API keys end to end: who is let in, what each may use, and that keys share nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.edge.keys import new_key
from tests.journeys.server import ROOT, Server, running
from tests.pictures import data_uri, draw_shape, image_part, noise, text_part

pytestmark = pytest.mark.slow

LIMITS = {
    "alice": (),
    "bob": (),
    "watcher": ("scope=metrics",),
    "few": ("requests_per_minute=2",),
    "pictures": ("images_per_minute=3",),
    "words": ("tokens_per_minute=60",),
    "leaver": ("tokens_per_minute=20",),
    "one": ("concurrency=1",),
}


@dataclass
class House:
    """A server that asks for keys, and the keys."""

    server: Server
    file: Path
    keys: dict[str, str]

    def ask(self, name: str, body: dict[str, Any]) -> httpx.Response:
        return self.server.post({"model": self.server.model} | body, self.keys[name])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    file = tmp_path_factory.mktemp("keys") / "file"
    made = {name: new_key(name, words) for name, words in LIMITS.items()}
    file.write_text("".join(f"{line}\n" for _, line in made.values()))
    keys = {name: key for name, (key, _) in made.items()}
    with running(api_keys_file=file, log_level="debug") as server:
        server.key = keys["watcher"]
        yield House(server, file, keys)


def about(url: str, uuid: str | None = None, words: str = "What is it?") -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}} | ({"uuid": uuid} if uuid else {})
    return {"messages": [{"role": "user", "content": [part, text_part(words)]}], "max_tokens": 3}


def cached_tokens(response: httpx.Response) -> int:
    assert response.status_code == 200, response.text
    found: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def test_every_route_but_probes_asks_for_a_key(house: House) -> None:
    for path in ("/v1/models", "/v1/models/demo_model", "/metrics", "/openapi.json", "/docs", "/"):
        assert httpx.get(house.server.url + path).status_code == 401, path
    assert house.server.post({}, "fovea-wrong").status_code == 401
    for path in ("/v1/responses", "/v1/completions", "/tokenize", "/detokenize"):
        assert httpx.post(house.server.url + path, json={}).status_code == 401, path
    for path in ("/health", "/ready"):
        assert httpx.get(house.server.url + path).status_code == 200, path


def test_the_official_client_raises_its_own_exceptions(house: House) -> None:
    with house.server.client_of("wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
    hello: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    with house.server.client_of(house.keys["few"]) as client:
        for _ in range(2):
            client.chat.completions.create(model=house.server.model, **hello)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model=house.server.model, **hello)
        assert refused.value.code == "rate_limit_exceeded"
        assert int(refused.value.response.headers["retry-after"]) >= 1


def test_keys_share_neither_kv_nor_embeddings_nor_names(house: House) -> None:
    def counts() -> tuple[float, float]:
        hits = house.server.metric("fovea_embedding_lookups_total", result="hit")
        return hits, house.server.metric("fovea_images_encoded_total")

    def ask(name: str, uuid: str | None = None) -> httpx.Response:
        return house.ask(name, about(picture, uuid))

    picture = data_uri(noise(71, (196, 84)))
    hits, encoded = counts()
    assert cached_tokens(ask("alice", "cover")) == 0
    assert counts() == (hits, encoded + 1)
    assert cached_tokens(ask("alice")) > 16
    assert counts() == (hits + 1, encoded + 1)
    assert cached_tokens(ask("bob")) == 0
    assert counts() == (hits + 1, encoded + 2)
    assert cached_tokens(ask("bob")) > 16
    named = about("", "cover")
    named["messages"][0]["content"][0]["image_url"] = None
    assert house.ask("alice", named).status_code == 200
    refused = house.ask("bob", named)
    assert refused.json()["error"]["code"] == "image_not_kept"
    unknown = about("", "no such name")
    unknown["messages"][0]["content"][0]["image_url"] = None
    never = house.ask("bob", unknown).json()["error"]
    assert never == refused.json()["error"]  # nothing tells that another key has it


def test_images_over_the_limit_cost_no_image_work(house: House) -> None:
    parts = [image_part(noise(seed, (60 + seed, 52))) for seed in range(81, 83)]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    first = house.ask("pictures", body)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-remaining-images"] == "1"
    before = house.server.metric("fovea_image_bytes_total")
    refused = house.ask("pictures", body)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "images"
    assert int(refused.headers["retry-after"]) in {19, 20}
    too_many = house.ask("pictures", {"messages": [{"role": "user", "content": parts * 2}]})
    assert too_many.status_code == 400
    assert too_many.json()["error"]["code"] == "too_many_images"
    assert house.server.metric("fovea_image_bytes_total") == before


def test_tokens_are_charged_as_used_whatever_the_size_of_the_body(house: House) -> None:
    """Base64 is no text: an image counts as the tokens that it becomes."""
    first = about(data_uri(noise(91, (230, 210)))) | {"max_tokens": 60, "ignore_eos": True}
    response = house.ask("words", first)
    assert response.status_code == 200
    debt = response.json()["usage"]["total_tokens"] - 60
    assert 0 < debt < 600  # the body has a hundred thousand characters
    assert response.headers["x-ratelimit-remaining-tokens"] == "60"
    refused = house.ask("words", about(data_uri(draw_shape("red", "circle"))))
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "tokens"
    assert debt - 1 <= int(refused.headers["retry-after"]) <= debt + 1  # one comes each second
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"


def counting(house: House, **more: Any) -> dict[str, Any]:
    """A request of some seconds."""
    body = {"model": house.server.model, "max_tokens": 500, "ignore_eos": True}
    return body | {"messages": [{"role": "user", "content": "Count."}]} | more


def test_an_answer_that_is_left_before_it_is_told_is_charged_too(house: House) -> None:
    """Else the work of long answers would cost nothing, for who leaves just before their end."""
    body = counting(house, max_tokens=1900)
    charged = house.server.metric("fovea_prompt_tokens_total")
    headers = {"authorization": f"Bearer {house.keys['leaver']}"}
    asking = httpx.Client(headers=headers, timeout=httpx.Timeout(10, read=0.5))
    with asking, pytest.raises(httpx.ReadTimeout):
        asking.post(f"{house.server.url}/v1/chat/completions", json=body)
    house.server.wait_for("fovea_requests_running", 0)
    assert house.server.metric("fovea_prompt_tokens_total") > charged
    refused = house.ask("leaver", counting(house))
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "tokens"


def test_an_answer_that_is_left_is_charged_too(house: House) -> None:
    before = house.server.metric("fovea_completion_tokens_total")
    body = counting(house, stream=True)
    url = f"{house.server.url}/v1/chat/completions"
    headers = {"authorization": f"Bearer {house.keys['alice']}"}
    with httpx.stream("POST", url, json=body, headers=headers) as response:
        lines = response.iter_lines()
        for _ in range(20):
            next(lines)
    house.server.wait_for("fovea_requests_running", 0)
    assert house.server.metric("fovea_completion_tokens_total") - before >= 5


def test_requests_at_once_are_bounded_for_each_key(house: House) -> None:
    body = {"model": house.server.model, "stream": True, "max_tokens": 800, "ignore_eos": True}
    body |= {"messages": [{"role": "user", "content": "Count."}]}
    url = f"{house.server.url}/v1/chat/completions"
    headers = {"authorization": f"Bearer {house.keys['one']}"}
    short = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    with httpx.stream("POST", url, json=body, headers=headers) as response:
        assert response.status_code == 200
        refused = house.ask("one", short)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "concurrency"
        assert house.ask("alice", short).status_code == 200
    house.server.wait_for("fovea_requests_running", 0)
    assert house.ask("one", short).status_code == 200


def test_a_new_file_lets_in_and_out_without_a_restart(house: House) -> None:
    hello = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    text = house.file.read_text()
    house.keys["late"], line = new_key("late")
    assert house.ask("late", hello).status_code == 401
    without_bob = [old for old in text.splitlines() if not old.startswith("bob ")]
    _write(house.file, "\n".join([*without_bob, line]))
    time.sleep(1.1)
    assert house.ask("late", hello).status_code == 200
    assert house.ask("bob", hello).status_code == 401
    _write(house.file, "what is this")
    time.sleep(1.1)
    assert house.ask("late", hello).status_code == 200
    _write(house.file, text)
    time.sleep(1.1)
    assert house.ask("bob", hello).status_code == 200
    assert any("the keys stay as they were" in line for line in house.server.lines)


def _write(file: Path, text: str) -> None:
    fresh = file.with_suffix(".fresh")
    fresh.write_text(text)
    os.replace(fresh, file)


def test_nothing_that_is_printed_holds_a_key_or_its_hash(house: House) -> None:
    """Last in this file: it looks at what all the tests above made the server write."""
    wrong = "fovea-" + "wrongwrongwrong" * 2
    answers = [
        house.server.post({"model": house.server.model}, wrong).text,
        house.ask("alice", {"messages": []}).text,
        house.ask("alice", {"model": "another", "messages": []}).text,
        httpx.get(
            f"{house.server.url}/metrics", headers={"authorization": f"Bearer {house.server.key}"}
        ).text,
        httpx.get(f"{house.server.url}/ready").text,
        subprocess.run(
            [sys.executable, "-m", "gateway", "config"],
            env={"FOVEA_API_KEYS_FILE": str(house.file), "PATH": os.environ["PATH"]},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout,
    ]
    printed = "".join([*house.server.lines, *answers])
    assert "request" in printed
    for secret in (wrong, *house.keys.values()):
        digest = sha256(secret.encode()).digest()
        for form in (secret, secret[6:26], digest.hex()[:16], repr(digest)[2:20]):
            assert form not in printed
