"""Requests made into prompts: numbered images, filled-in sampling, and every form of data URI."""

import base64
import random
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pytest

from config.settings import DEMO_MODEL, ImageSettings
from gateway.errors import BadRequest, ImageRejected, ImageTooLarge
from gateway.images.datauri import decode_data_uri
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.prompt import ImageSlot, Prompt, make_prompt
from gateway.prompts.sampling import UNCAPPED_TOKENS, SamplingDefaults, for_choice
from gateway.schemas.schema import parse_request
from workers.sampling import BIAS_FIELDS

DEFAULTS = SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20, eos_token_ids=(5, 6))
CHECKPOINT = replace(load_checkpoint(DEMO_MODEL), sampling_defaults=DEFAULTS)
LIMITS = ImageSettings(max_images=3, max_image_bytes=2000)
DATA = bytes(range(256)) + b"\xfb\xff\xfe"  # its base64 has + and / and padding
DIGITS = base64.b64encode(DATA).decode()


def prompt(limits: ImageSettings = LIMITS, **fields: Any) -> Prompt:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | fields
    return make_prompt(
        parse_request(orjson.dumps(body)),
        request_id="r1",
        checkpoint=CHECKPOINT,
        limits=limits,
        request_seconds=60.0,
        now=1000.0,
    )


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def source(url: str) -> str | bytes | None:
    (reference,) = prompt(messages=[{"role": "user", "content": [image(url)]}]).images
    return reference.source


def test_a_name_comes_with_its_image_or_alone() -> None:
    part = image("http://h/0") | {"uuid": "cat"}
    alone = {"type": "image_url", "image_url": None, "uuid": "cat"}
    made = prompt(messages=[{"role": "user", "content": [part, alone]}])
    assert [(ref.source, ref.name) for ref in made.images] == [("http://h/0", "cat"), (None, "cat")]
    assert made.images[1].param == "messages[0].content[1].uuid"


def test_images_are_numbered_through_all_messages() -> None:
    made = prompt(
        messages=[
            {"role": "developer", "content": [text("a"), image("http://h/0"), text("b")]},
            {"role": "assistant", "content": "plain"},
            {"role": "user", "content": [image("https://h/1"), image("http://h/2")]},
        ]
    )
    assert [turn.role for turn in made.turns] == ["system", "assistant", "user"]
    assert [turn.plain for turn in made.turns] == [False, True, False]
    assert made.turns[0].parts == ("a", ImageSlot(0), "b")
    assert made.turns[1].parts == ("plain",)
    assert made.turns[2].parts == (ImageSlot(1), ImageSlot(2))
    assert [(ref.index, ref.source, ref.param) for ref in made.images] == [
        (0, "http://h/0", "messages[0].content[1].image_url"),
        (1, "https://h/1", "messages[2].content[0].image_url"),
        (2, "http://h/2", "messages[2].content[1].image_url"),
    ]


def test_absent_sampling_fields_come_from_the_checkpoint() -> None:
    sampling = prompt().sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.8, 20)
    assert sampling.max_tokens == UNCAPPED_TOKENS
    assert sampling.stop_token_ids == (5, 6)


def test_given_sampling_fields_win() -> None:
    sampling = prompt(temperature=0, top_p=1, top_k=3, seed=9, max_tokens=4).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0, 1, 3)
    assert (sampling.seed, sampling.max_tokens) == (9, 4)


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_can_be_switched_off(top_k: int) -> None:
    assert prompt(top_k=top_k).sampling.top_k == 0


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert prompt(max_tokens=4, max_completion_tokens=9).sampling.max_tokens == 9


def test_a_huge_max_tokens_is_not_taken_for_an_open_one() -> None:
    assert prompt(max_tokens=2**63).sampling.max_tokens == UNCAPPED_TOKENS - 1


def test_seeds_are_never_negative_and_a_drawn_one_differs_each_time() -> None:
    assert prompt(seed=0).sampling.seed == 0
    assert 0 <= prompt(seed=-1).sampling.seed < 2**63
    assert prompt(seed=-1).sampling.seed == prompt(seed=-1).sampling.seed
    assert prompt().sampling.seed != prompt().sampling.seed


def test_ignore_eos_leaves_no_stop_tokens() -> None:
    assert prompt(ignore_eos=True).sampling.stop_token_ids == ()


def test_stop_tokens_of_the_caller_join_those_of_the_checkpoint() -> None:
    assert prompt(stop_token_ids=[9, 5, 9]).sampling.stop_token_ids == (5, 6, 9)
    assert prompt(stop_token_ids=[9], ignore_eos=True).sampling.stop_token_ids == (9,)


def test_wishes_that_change_logits_are_carried_over() -> None:
    asked: dict[str, Any] = {
        "min_p": 0.5,
        "frequency_penalty": -1,
        "presence_penalty": 2,
        "repetition_penalty": 1.5,
        "min_tokens": 7,
        "logprobs": True,
        "top_logprobs": 3,
    }
    sampling = prompt(**asked).sampling
    assert {name: getattr(sampling, name) for name in asked} == asked
    made = prompt(logit_bias={"7": 1, "760": -2.5})
    packed = np.frombuffer(made.sampling.logit_bias, BIAS_FIELDS)
    assert packed.tolist() == [(7, 1.0), (760, -2.5)]


def test_what_is_not_asked_for_is_off() -> None:
    sampling = prompt().sampling
    assert (sampling.min_p, sampling.logit_bias, sampling.logprobs) == (0, b"", False)
    assert (sampling.repetition_penalty, sampling.min_tokens) == (1, 0)
    assert prompt().num_choices == 1


@pytest.mark.parametrize("token_id", [768, 2**31, 2**32 - 1, 2**32 + 5])
def test_ids_of_no_token_are_refused_by_their_field(token_id: int) -> None:
    with pytest.raises(BadRequest, match=str(token_id)) as caught:
        prompt(logit_bias={"5": 1, str(token_id): 1})
    assert caught.value.param == f"logit_bias.{token_id}"
    with pytest.raises(BadRequest, match=str(token_id)) as caught:
        prompt(stop_token_ids=[5, token_id])
    assert caught.value.param == "stop_token_ids[1]"


def test_choices_have_seeds_of_their_own_and_the_first_that_of_the_request() -> None:
    sampling = prompt(seed=9, n=8).sampling
    seeds = [for_choice(sampling, choice).seed for choice in range(8)]
    assert seeds[0] == 9
    assert len(set(seeds)) == 8
    assert seeds == [for_choice(sampling, choice).seed for choice in range(8)]
    other = [for_choice(prompt(seed=10).sampling, choice).seed for choice in range(8)]
    assert not set(seeds) & set(other)


def test_the_rest_is_carried_over() -> None:
    made = prompt(stop=["x", "y"], stream=True, stream_options={"include_usage": True})
    assert (made.request_id, made.model, made.stop) == ("r1", "m", ("x", "y"))
    assert made.streamed
    assert made.include_usage
    assert made.deadline == 1060.0


def test_too_many_images_are_refused_with_both_numbers_before_any_is_decoded() -> None:
    with pytest.raises(BadRequest, match=r"4 images; the limit is 3") as caught:
        prompt(messages=[{"role": "user", "content": [image("data:broken")] * 4}])
    assert caught.value.code == "too_many_images"


WRAPPED = "\r\n".join(DIGITS[at : at + 76] for at in range(0, len(DIGITS), 76))


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{DIGITS}",
        f"DATA:IMAGE/PNG;BASE64,{DIGITS}",
        f"data:image/png;charset=utf-8;base64,{DIGITS}",
        f"data:;base64,{DIGITS}",
        f"data:application/octet-stream;base64,{DIGITS}",
        f"data:image/wrong;base64,{DIGITS}",
        f" data:image/png; base64 , {WRAPPED}\t\n",
        f"data:image/png;base64,{DIGITS.rstrip('=')}",
        f"data:image/png;base64,{DIGITS.replace('+', '-').replace('/', '_')}",
        f"data:image/png;base64,{quote(DIGITS, safe='')}",
    ],
)
def test_tolerated_forms_of_data_uris_give_the_same_bytes(url: str) -> None:
    assert source(url) == DATA


def rejected(url: str) -> ImageRejected:
    content = [image(f"data:image/png;base64,{DIGITS}"), image(url)]
    with pytest.raises(ImageRejected) as caught:
        prompt(messages=[{"role": "user", "content": content}])
    error = caught.value
    assert error.param == "messages[0].content[1].image_url"
    assert (error.index, error.stage, error.retryable) == (1, "fetch", False)
    return error


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png;base64", "invalid_data_uri"),
        ("data:image/png;base64,", "invalid_data_uri"),
        ("data:image/png;base64, \n", "invalid_data_uri"),
        ("data:image/png,%89PNG", "invalid_data_uri"),
        ("data:image/png;base64;charset=x,AAAA", "invalid_data_uri"),
        ("data:", "invalid_data_uri"),
        ("data:base64,AAAA", "invalid_data_uri"),
        (f"data:image/png;{'a;' * 600}base64,{DIGITS}", "invalid_data_uri"),
        ("data:video/jpeg;base64,AAAA,AAAA", "unsupported_media_type"),
        ("data:text/html;base64,AAAA", "unsupported_media_type"),
        ("data:image/png;base64,@@@@", "invalid_base64"),
        ("data:image/png;base64,AAAAA", "invalid_base64"),
        ("data:image/png;base64,AAAA=", "invalid_base64"),
        ("data:image/png;base64,AA=A", "invalid_base64"),
        ("data:image/png;base64,AA==AAAA", "invalid_base64"),
        ("data:image/png;base64,AAAA,AAAA", "invalid_base64"),
        ("data:image/png;base64,AAA\u00e9", "invalid_base64"),
        ("data:image/png;base64,AAA%zz", "invalid_base64"),
        ("data:image/png;base64,AAA%41", "invalid_base64"),
        ("data:image/png;base64,====", "invalid_base64"),
        ("", "unsupported_scheme"),
        ("/etc/hostname", "unsupported_scheme"),
        ("file:///etc/hostname", "unsupported_scheme"),
        ("ftp://example.com/a.png", "unsupported_scheme"),
        ("//example.com/a.png", "unsupported_scheme"),
        ("http:example.com", "unsupported_scheme"),
        ("javascript:alert(1)", "unsupported_scheme"),
        (DIGITS, "unsupported_scheme"),
    ],
)
def test_other_addresses_are_refused_with_the_image_and_the_reason(url: str, code: str) -> None:
    assert rejected(url).code == code


def test_refusals_tell_nothing_of_local_files() -> None:
    assert rejected("/etc/hostname").message == rejected("/no/such/file").message


def test_a_file_is_an_image_only_where_a_folder_is_opened() -> None:
    content = [image("FILE:///media/a.png")]
    opened = LIMITS.model_copy(update={"media_folder": "/media"})
    (reference,) = prompt(opened, messages=[{"role": "user", "content": content}]).images
    assert reference.source == "FILE:///media/a.png"
    assert rejected("FILE:///media/a.png").code == "unsupported_scheme"


@pytest.mark.parametrize("num_bytes", [1998, 1999, 2000])
def test_a_data_uri_up_to_the_limit_is_taken(num_bytes: int) -> None:
    digits = base64.b64encode(bytes(num_bytes)).decode()
    assert source(f"data:image/png;base64,{digits}") == bytes(num_bytes)


@pytest.mark.parametrize("num_bytes", [2001, 2002, 2003, 9000])
def test_a_larger_data_uri_is_refused_with_both_numbers(num_bytes: int) -> None:
    digits = base64.b64encode(bytes(num_bytes)).decode()
    error = rejected(f"data:image/png;base64,{digits}")
    assert isinstance(error, ImageTooLarge)
    assert error.status == 413
    assert f"{num_bytes} bytes; the limit is 2000" in error.message


def test_size_is_checked_before_the_digits_are() -> None:
    assert isinstance(rejected("data:image/png;base64," + "@" * 9000), ImageTooLarge)


def test_a_payload_of_nothing_but_escapes_takes_no_time() -> None:
    url = "data:image/png;base64," + "%41%" * 1_000_000
    begun = time.monotonic()
    with pytest.raises(ImageRejected, match="base64"):
        decode_data_uri(url, 0, "image_url", max_bytes=len(url))
    assert time.monotonic() - begun < 0.5


def test_random_payloads_give_the_right_bytes_or_a_refusal() -> None:
    random_source = random.Random(8)
    for _ in range(500):
        data = random_source.randbytes(random_source.randrange(1, 40))
        digits = list(base64.b64encode(data).decode())
        place = random_source.randrange(len(digits))
        digits[place] = random_source.choice("A+/=-_ \n%@\x00é")
        payload = "".join(digits)
        try:
            made = source(f"data:image/png;base64,{payload}")
        except ImageRejected:
            continue
        standard = "".join(payload.split()).replace("-", "+").replace("_", "/")
        assert made == base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
