"""Bodies of every wrong form: each is a `BadRequest` with the path of its field, never another."""

import random
import string
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gateway.errors import BadRequest, BodyTooLarge
from gateway.schemas.schema import MAX_BODY_MARKS, ChatRequest, parse_request
from gateway.schemas.unsupported import HARMLESS_FIELDS, REQUEST_FIELDS

TEXT = {"type": "text", "text": "What is it?"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}}


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]} | fields)


def content(value: Any) -> bytes:
    return body(messages=[{"role": "user", "content": value}])


def refused(data: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse_request(data)
    assert caught.value.message
    return caught.value


def test_a_plain_string_is_one_text_part() -> None:
    message = parse_request(content("hello")).messages[0]
    assert message.content == "hello"
    assert [part.model_dump() for part in message.parts] == [{"type": "text", "text": "hello"}]


def test_parts_keep_their_order_in_every_role() -> None:
    roles = ("system", "developer", "user", "assistant")
    parts = [IMAGE, TEXT, IMAGE]
    request = parse_request(body(messages=[{"role": role, "content": parts} for role in roles]))
    assert [message.role for message in request.messages] == list(roles)
    for message in request.messages:
        assert [part.type for part in message.parts] == ["image_url", "text", "image_url"]


def test_an_image_address_may_stand_without_its_object() -> None:
    plain = parse_request(content([{"type": "image_url", "image_url": "https://a.test/x"}]))
    assert plain == parse_request(
        content([{"type": "image_url", "image_url": {"url": "https://a.test/x"}}])
    )


def test_honoured_fields_arrive_as_they_were_sent() -> None:
    sent: dict[str, Any] = {
        "stream": True,
        "temperature": 1,
        "top_p": 0.5,
        "top_k": -1,
        "seed": -(2**63),
        "max_tokens": 7,
        "max_completion_tokens": 2**63,
        "stop": ["a", "b"],
        "ignore_eos": True,
        "stop_token_ids": [],
        "min_tokens": 3,
        "n": 8,
        "min_p": 0.5,
        "frequency_penalty": -2,
        "presence_penalty": 2.0,
        "repetition_penalty": 1.1,
        "logit_bias": {"0": -100, "4294967295": 2.5},
        "logprobs": True,
        "top_logprobs": 20,
    }
    request = parse_request(body(**sent, stream_options={"include_usage": True}))
    assert {name: getattr(request, name) for name in sent} == sent | {
        "stop": ("a", "b"),
        "stop_token_ids": (),
    }
    assert request.stream_options.include_usage is True


def test_one_stop_string_is_a_list_of_one() -> None:
    assert parse_request(body(stop="end")).stop == ("end",)


@pytest.mark.parametrize(
    "name", sorted(set(ChatRequest.model_fields) - {"model", "messages"} | set(REQUEST_FIELDS))
)
def test_null_means_absent(name: str) -> None:
    assert parse_request(body(**{name: None})) == parse_request(body()) or name == "unknown_fields"


@pytest.mark.parametrize("name", sorted(REQUEST_FIELDS))
def test_a_field_that_asks_for_nothing_is_taken(name: str) -> None:
    for value in REQUEST_FIELDS[name]:
        assert parse_request(body(**{name: value})) == parse_request(body())


@pytest.mark.parametrize("name", sorted(REQUEST_FIELDS))
@pytest.mark.parametrize("value", [{"a": 1}, ["x"], "json", 17.5])
def test_a_field_that_asks_for_something_unsupported_is_refused_by_name(
    name: str, value: Any
) -> None:
    error = refused(body(**{name: value}))
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert name in error.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 9}, "8; it is 9"),
        ({"logit_bias": {str(each): 1 for each in range(1025)}}, "1025 entries; the limit is 1024"),
        ({"min_tokens": 6, "max_tokens": 5}, "6 is more than the 5"),
        ({"logprobs": True, "top_logprobs": 21}, "20; it is 21"),
        ({"stop_token_ids": [1] * 65}, "64 items, not 65"),
    ],
)
def test_a_limit_is_named_with_what_was_asked(fields: dict[str, Any], words: str) -> None:
    assert words in refused(body(**fields)).message


def test_harmless_fields_are_taken_and_unknown_ones_are_noted() -> None:
    request = parse_request(
        body(**dict.fromkeys(HARMLESS_FIELDS, "x"), wizard=1, unknown_fields=["y"], elf=None)
    )
    assert request.unknown_fields == ("unknown_fields", "wizard")


PART = "messages[0].content[0]"
# (body, param, code)
WRONG: list[tuple[bytes, str, str]] = [
    (orjson.dumps({"model": "m"}), "messages", "missing_required_parameter"),
    (orjson.dumps({"messages": [{"role": "user", "content": "x"}]}), "model",
     "missing_required_parameter"),
    (body(model=""), "model", "invalid_value"),
    (body(model=5), "model", "invalid_type"),
    (body(messages=None), "messages", "missing_required_parameter"),
    (body(messages=[]), "messages", "invalid_value"),
    (body(messages="hello"), "messages", "invalid_type"),
    (body(messages={}), "messages", "invalid_type"),
    (body(messages=[7]), "messages[0]", "invalid_type"),
    (body(messages=[{"content": "x"}]), "messages[0].role", "missing_required_parameter"),
    (body(messages=[{"role": "user"}]), "messages[0].content", "missing_required_parameter"),
    (body(messages=[{"role": "elf", "content": "x"}]), "messages[0].role", "unsupported_value"),
    (body(messages=[{"role": ["user"], "content": "x"}]), "messages[0].role", "unsupported_value"),
    (body(messages=[{"role": "{}", "content": "x"}]), "messages[0].role", "unsupported_value"),
    (content(None), "messages[0].content", "invalid_type"),
    (content(7), "messages[0].content", "invalid_type"),
    (content([]), "messages[0].content", "invalid_value"),
    (content(["x"]), PART, "invalid_type"),
    (content([{}]), f"{PART}.type", "unsupported_value"),
    (content([{"type": "input_audio"}]), f"{PART}.type", "unsupported_value"),
    (content([{"type": {}}]), f"{PART}.type", "unsupported_value"),
    (content([{"type": "text"}]), f"{PART}.text", "missing_required_parameter"),
    (content([{"type": "text", "text": None}]), f"{PART}.text", "invalid_type"),
    (content([TEXT, {"type": "image_url"}]), "messages[0].content[1].image_url",
     "missing_required_parameter"),
    (content([TEXT, {"type": "image_url", "image_url": None}]),
     "messages[0].content[1].image_url", "missing_required_parameter"),
    (content([{"type": "image_url", "uuid": ""}]), f"{PART}.uuid", "invalid_value"),
    (content([{"type": "image_url", "uuid": "x" * 257}]), f"{PART}.uuid", "invalid_value"),
    (content([{"type": "image_url", "uuid": 7}]), f"{PART}.uuid", "invalid_type"),
    (content([{"type": "image_url", "image_url": 5}]), f"{PART}.image_url", "invalid_type"),
    (content([{"type": "image_url", "image_url": {}}]), f"{PART}.image_url.url",
     "missing_required_parameter"),
    (content([{"type": "image_url", "image_url": {"url": 5}}]), f"{PART}.image_url.url",
     "invalid_type"),
    (content([{"type": "image_url", "image_url": {"url": "x", "detail": "huge"}}]),
     f"{PART}.image_url.detail", "invalid_value"),
    (content([{"type": "image_tensors"}]), f"{PART}.image_tensors", "missing_required_parameter"),
    (content([{"type": "image_tensors", "image_tensors": "AAAA"}]), f"{PART}.image_tensors",
     "invalid_type"),
    (content([{"type": "image_tensors", "image_tensors": {}}]), f"{PART}.image_tensors.data",
     "missing_required_parameter"),
    (content([{"type": "image_tensors", "image_tensors": {"data": [1]}}]),
     f"{PART}.image_tensors.data", "invalid_type"),
    (content([{"type": "image_tensors", "image_url": {"url": "x"}}]), f"{PART}.image_tensors",
     "missing_required_parameter"),
    (body(stream="yes"), "stream", "invalid_type"),
    (body(stream=1), "stream", "invalid_type"),
    (body(stream_options=[]), "stream_options", "invalid_type"),
    (body(stream_options={"include_usage": "x"}), "stream_options.include_usage", "invalid_type"),
    (body(temperature=2.5), "temperature", "invalid_value"),
    (body(temperature=-0.1), "temperature", "invalid_value"),
    (body(temperature="1"), "temperature", "invalid_type"),
    (body(temperature=True), "temperature", "invalid_type"),
    (body(top_p=0), "top_p", "invalid_value"),
    (body(top_p=1.01), "top_p", "invalid_value"),
    (body(top_k=-2), "top_k", "invalid_value"),
    (body(top_k=1.5), "top_k", "invalid_type"),
    (body(seed=2**63), "seed", "invalid_value"),
    (body(seed="5"), "seed", "invalid_type"),
    (body(max_tokens=0), "max_tokens", "invalid_value"),
    (body(max_tokens="5"), "max_tokens", "invalid_type"),
    (body(max_tokens=True), "max_tokens", "invalid_type"),
    (body(max_completion_tokens=-1), "max_completion_tokens", "invalid_value"),
    (body(stop=5), "stop", "invalid_type"),
    (body(stop=["a", 5]), "stop[1]", "invalid_type"),
    (body(stop=[""]), "stop[0]", "invalid_value"),
    (body(stop=["a"] * 5), "stop", "invalid_value"),
    (body(stop="x" * 1025), "stop[0]", "invalid_value"),
    (body(ignore_eos="no"), "ignore_eos", "invalid_type"),
    (body(n=True), "n", "invalid_type"),
    (body(n=0), "n", "invalid_value"),
    (body(n=9), "n", "invalid_value"),
    (body(n=1.5), "n", "invalid_type"),
    (body(logprobs=0), "logprobs", "invalid_type"),
    (body(logprobs=True, top_logprobs=21), "top_logprobs", "invalid_value"),
    (body(logprobs=True, top_logprobs=-1), "top_logprobs", "invalid_value"),
    (body(logprobs=True, top_logprobs="5"), "top_logprobs", "invalid_type"),
    (body(top_logprobs=1), "top_logprobs", "invalid_value"),
    (body(logprobs=False, top_logprobs=1), "top_logprobs", "invalid_value"),
    (body(min_p=-0.1), "min_p", "invalid_value"),
    (body(min_p=1.1), "min_p", "invalid_value"),
    (body(min_p="0"), "min_p", "invalid_type"),
    (body(frequency_penalty=2.1), "frequency_penalty", "invalid_value"),
    (body(frequency_penalty="1"), "frequency_penalty", "invalid_type"),
    (body(presence_penalty=-2.1), "presence_penalty", "invalid_value"),
    (body(presence_penalty=True), "presence_penalty", "invalid_type"),
    (body(repetition_penalty=0), "repetition_penalty", "invalid_value"),
    (body(repetition_penalty=101), "repetition_penalty", "invalid_value"),
    (body(repetition_penalty=[1]), "repetition_penalty", "invalid_type"),
    (body(min_tokens=-1), "min_tokens", "invalid_value"),
    (body(min_tokens=1.0), "min_tokens", "invalid_type"),
    (body(min_tokens=6, max_tokens=5), "min_tokens", "invalid_value"),
    (body(min_tokens=6, max_tokens=9, max_completion_tokens=5), "min_tokens", "invalid_value"),
    (body(stop_token_ids=5), "stop_token_ids", "invalid_type"),
    (body(stop_token_ids=[1, "5"]), "stop_token_ids[1]", "invalid_type"),
    (body(stop_token_ids=[-1]), "stop_token_ids[0]", "invalid_value"),
    (body(stop_token_ids=[1] * 65), "stop_token_ids", "invalid_value"),
    (body(logit_bias=[]), "logit_bias", "invalid_type"),
    (body(logit_bias="x"), "logit_bias", "invalid_type"),
    (body(logit_bias={"a": 1}), "logit_bias", "invalid_value"),
    (body(logit_bias={"-1": 1}), "logit_bias", "invalid_value"),
    (body(logit_bias={"01": 1}), "logit_bias", "invalid_value"),
    (body(logit_bias={"1" * 11: 1}), "logit_bias", "invalid_value"),
    (body(logit_bias={"٣": 1}), "logit_bias", "invalid_value"),
    (body(logit_bias={"5": 101}), "logit_bias.5", "invalid_value"),
    (body(logit_bias={"5": -100.5}), "logit_bias.5", "invalid_value"),
    (body(logit_bias={"5": "1"}), "logit_bias.5", "invalid_type"),
    (body(logit_bias={"5": None}), "logit_bias.5", "invalid_type"),
    (body(logit_bias={str(each): 1 for each in range(1025)}), "logit_bias", "invalid_value"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "param", "code"), WRONG)
def test_a_wrong_field_is_named(data: bytes, param: str, code: str) -> None:
    error = refused(data)
    assert (error.param, error.code) == (param, code)
    assert param in error.message


def test_a_number_out_of_range_is_told_with_its_limit() -> None:
    message = refused(body(temperature=2.5)).message
    assert "2.5" in message
    assert "less than or equal to 2" in message


def test_a_message_repeats_little_of_what_was_sent() -> None:
    assert len(refused(body(messages=[{"role": "x" * 5000, "content": ""}])).message) < 200


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"7", b"\xff\xfe", b'{"a":' * 5000, b"[" * 100_000,
        b'{"messages": NaN}', b'{"seed": 1e999}', b'{"seed": ' + b"9" * 5000 + b"}",
        b'{"model": "\\ud800"}', b'{"model": "\xed\xa0\x80"}',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    assert refused(data).code == "invalid_json"


def test_an_integer_beyond_64_bits_is_refused_as_no_integer() -> None:
    data = body(seed=1).replace(b'"seed":1', b'"seed":18446744073709551616')
    assert refused(data).code == "invalid_type"


@pytest.mark.parametrize("path", ["messages", "messages[0].content", "stop"])
def test_a_long_list_of_wrong_items_is_given_up_at_the_first(path: str) -> None:
    items = [1] * 5000
    bodies = {"messages": body(messages=items), "stop": body(stop=items)}
    error = refused(bodies.get(path, content(items)))
    assert error.param == f"{path}[0]"
    assert isinstance(error.__cause__, ValidationError)
    assert error.__cause__.error_count() < 5


def _random_value(random_source: random.Random, depth: int) -> Any:
    leaves: list[Any] = [None, True, 0, -1, 2**63, 1.5, "", "text", "user", "{x}", "image_url"]
    kind = random_source.randrange(4) if depth else 0
    if kind == 1:
        return [_random_value(random_source, depth - 1) for _ in range(random_source.randrange(3))]
    if kind >= 2:
        names = ("role", "content", "type", "text", "image_url", "url", "include_usage")
        chosen = random_source.sample(names, random_source.randrange(1, 5))
        return {name: _random_value(random_source, depth - 1) for name in chosen}
    return random_source.choice(leaves)


def _outcome(data: bytes) -> str | None:
    """`parsed`, or the field that is blamed."""
    try:
        parse_request(data)
    except BadRequest as error:
        return error.param
    return "parsed"


def test_random_bodies_are_parsed_or_refused_and_nothing_else() -> None:
    random_source = random.Random(5)
    names = sorted(set(ChatRequest.model_fields) | set(REQUEST_FIELDS))
    outcomes = set()
    for _ in range(600):
        fields = {random_source.choice(names): _random_value(random_source, 4) for _ in range(2)}
        outcomes.add(_outcome(body(**fields)))
    assert "parsed" in outcomes
    assert len(outcomes) > 20
    assert None not in outcomes


def test_flipped_bytes_are_parsed_or_refused_and_nothing_else() -> None:
    random_source = random.Random(6)
    whole = body(messages=[{"role": "user", "content": [TEXT, IMAGE]}], stop=["a"], top_p=0.5)
    for _ in range(2000):
        data = bytearray(whole)
        data[random_source.randrange(len(data))] = ord(random_source.choice(string.printable))
        _outcome(bytes(data))


@pytest.mark.parametrize("value", [[], {}, 1, {"role": "user", "content": "x"}])
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(value: Any) -> None:
    many = body(messages=[value] * (MAX_BODY_MARKS // 2 + 1), user=[value] * (MAX_BODY_MARKS // 2))
    with pytest.raises(BodyTooLarge, match=str(MAX_BODY_MARKS)) as caught:
        parse_request(many)
    assert caught.value.status == 413


def test_a_long_text_with_many_commas_is_taken() -> None:
    text = "1.5, " * (MAX_BODY_MARKS - 20)
    assert parse_request(content(text)).messages[0].content == text
