"""The models route tells what is served, and holds to it."""

import httpx
import openai
import pytest

from tests.journeys.server import Server, running
from tests.pictures import image_part, noise

pytestmark = pytest.mark.slow


def test_the_model_is_told_with_what_it_takes(demo: Server) -> None:
    (listed,) = demo.client.models.list().data
    shown = demo.client.models.retrieve(demo.model)
    assert listed == shown
    assert (shown.id, shown.object, shown.owned_by) == (demo.model, "model", "fovea")
    assert (shown.max_model_len, shown.max_output_tokens) == (2048, 2047)
    assert (shown.input_modalities, shown.output_modalities) == (["text", "image"], ["text"])
    limits = shown.image_limits
    assert limits["formats"] == ["png", "jpeg", "webp", "gif", "bmp", "tiff"]
    assert (limits["max_images"], limits["max_bytes"]) == (64, 20 << 20)
    assert (limits["max_pixels"], limits["max_side"]) == (64_000_000, 16_384)
    assert limits["tensors"] is False


def test_another_model_is_not_found(demo: Server) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        demo.client.models.retrieve("other/model")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_limits_that_the_operator_sets_are_told_and_hold() -> None:
    settings = {"max_images": 2, "max_image_side": 300, "max_image_pixels": 50_000}
    cap = {"max_context_tokens": 512, "max_resized_pixels": 8192, "low_detail_pixels": 2048}
    with running(**settings, **cap) as server:
        (card,) = httpx.get(f"{server.url}/v1/models").json()["data"]
        limits = card["image_limits"]
        assert (card["max_model_len"], limits["max_images"]) == (512, 2)
        assert (limits["max_side"], limits["max_pixels"]) == (300, 50_000)
        assert (limits["max_resized_pixels"], limits["low_detail_pixels"]) == (8192, 2048)
        # 128 x 64 pixels are 4 x 2 tokens, 64 x 32 pixels 2 x 1.
        for detail, num_tokens in (("high", 8), ("auto", 8), ("original", 8), ("low", 2)):
            part = image_part(noise(len(detail), (290, 145)))
            part["image_url"]["detail"] = detail
            body = {"model": server.model, "messages": [{"role": "user", "content": [part]}]}
            usage = server.post(body | {"max_tokens": 1}).json()["usage"]
            assert usage["prompt_tokens_details"]["image_tokens"] == num_tokens
