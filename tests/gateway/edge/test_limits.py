"""What one key may use: refused before work, charged after it, told in headers."""

from dataclasses import dataclass

import pytest

from gateway.edge.keys import KeyLimits
from gateway.edge.limits import Account
from gateway.errors import BadRequest, RateLimited


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def account(clock: Clock, **limits: int) -> Account:
    return Account(b"tenant", KeyLimits(**limits), clock)


def ask(one: Account) -> None:
    with one.request():
        pass


def headers(one: Account) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in one.headers()}


def test_requests_of_a_minute_are_used_up_and_come_back_evenly() -> None:
    clock = Clock()
    one = account(clock, requests_per_minute=3)
    for _ in range(3):
        ask(one)
    with pytest.raises(RateLimited, match="3 requests per minute") as caught:
        ask(one)
    assert caught.value.type == "requests"
    assert caught.value.retry_after_seconds == 20
    clock.now += 19.9
    with pytest.raises(RateLimited) as caught:
        ask(one)
    assert caught.value.retry_after_seconds == 1
    clock.now += 0.1
    ask(one)
    with pytest.raises(RateLimited):
        ask(one)
    clock.now += 3600
    for _ in range(3):  # never more than one minute's worth
        ask(one)
    with pytest.raises(RateLimited):
        ask(one)


def test_a_refused_request_uses_nothing_up() -> None:
    clock = Clock()
    one = account(clock, requests_per_minute=1)
    ask(one)
    for _ in range(10):
        with pytest.raises(RateLimited):
            ask(one)
    clock.now += 60
    ask(one)


def test_requests_at_once_are_bounded_and_given_back_also_on_a_fault() -> None:
    one = account(Clock(), concurrency=2)
    with one.request():
        with pytest.raises(ZeroDivisionError), one.request():
            _ = 1 // 0
        with one.request(), pytest.raises(RateLimited, match="2 requests in work") as caught:
            ask(one)
        assert caught.value.retry_after_seconds == 1
        ask(one)


def test_images_are_refused_before_work_with_the_time_until_they_fit() -> None:
    clock = Clock()
    one = account(clock, images_per_minute=12)
    one.take_images(8)
    with pytest.raises(RateLimited, match="8 more images") as caught:
        one.take_images(8)
    assert caught.value.type == "images"
    assert caught.value.retry_after_seconds == 20  # four short, twelve a minute
    one.take_images(4)
    clock.now += 20
    one.take_images(4)


def test_more_images_than_ever_fit_are_the_callers_mistake() -> None:
    one = account(Clock(), images_per_minute=3)
    with pytest.raises(BadRequest, match=r"4 images.*3 per minute"):
        one.take_images(4)
    one.take_images(3)


def test_tokens_are_charged_by_use_and_debts_are_waited_for() -> None:
    clock = Clock()
    one = account(clock, tokens_per_minute=60)
    ask(one)
    one.charge_tokens(119)
    with pytest.raises(RateLimited, match="60 tokens per minute and has 0 left") as caught:
        ask(one)
    assert caught.value.type == "tokens"
    assert caught.value.retry_after_seconds == 60
    clock.now += 60
    ask(one)


def test_headers_tell_each_limit_as_openai_spells_it() -> None:
    clock = Clock()
    one = account(clock, requests_per_minute=60, tokens_per_minute=1000)
    assert headers(one) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "60",
        "x-ratelimit-reset-requests": "0ms",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-tokens": "0ms",
    }
    ask(one)
    one.charge_tokens(7000)
    told = headers(one)
    assert told["x-ratelimit-remaining-requests"] == "59"
    assert told["x-ratelimit-reset-requests"] == "1s"
    assert told["x-ratelimit-remaining-tokens"] == "0"
    assert told["x-ratelimit-reset-tokens"] == "7m0s"
    clock.now += 0.75
    assert headers(one)["x-ratelimit-reset-requests"] == "250ms"


def test_an_account_without_limits_tells_and_refuses_nothing() -> None:
    one = account(Clock())
    one.take_images(10**6)
    one.charge_tokens(10**9)
    ask(one)
    assert headers(one) == {}


def test_other_limits_keep_what_was_used() -> None:
    clock = Clock()
    one = account(clock, requests_per_minute=10, images_per_minute=5)
    for _ in range(4):
        ask(one)
    one.change(KeyLimits(requests_per_minute=5, tokens_per_minute=9))
    told = headers(one)
    assert told["x-ratelimit-remaining-requests"] == "1"
    assert told["x-ratelimit-limit-tokens"] == "9"
    assert "x-ratelimit-limit-images" not in told
