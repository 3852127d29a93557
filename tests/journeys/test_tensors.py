"""Patches and embeddings that callers send are seen as the images they are of."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from config.settings import DEMO_MODEL
from tests.checkpoints import make_checkpoint
from tests.journeys.server import Server, running
from tests.journeys.test_parity import Oracle
from tests.pictures import draw_shape, image_part, noise, text_part
from tests.tensor_files import tensor_file, tensor_part

pytestmark = pytest.mark.slow

QUESTION = text_part("What colour is this?")
Part = dict[str, Any]


@dataclass(frozen=True)
class Lab:
    """A server that takes tensors, and the library that makes them of pictures."""

    server: Server
    oracle: Oracle

    def processed(self, picture: Image.Image) -> tuple[Tensor, Tensor]:
        """What the library's processor makes: patches as they come, and the grid [1, 3]."""
        made = self.oracle.processor.image_processor(images=[picture], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]

    def patches(self, picture: Image.Image) -> Part:
        patches, grid = self.processed(picture)
        return tensor_part(tensor_file(grid[0].tolist(), patches=patches.flatten(1)))

    def tower(self, picture: Image.Image) -> tuple[Tensor, list[int]]:
        """What the library's tower gives, [levels, tokens, hidden], and the grid."""
        patches, grid = self.processed(picture)
        with torch.inference_mode():
            output = self.oracle.model.model.get_image_features(patches, grid, return_dict=True)
        deepstack = [level[0] for level in getattr(output, "deepstack_features", ())]
        levels: list[Tensor] = [output.pooler_output[0], *deepstack]
        return torch.stack([level.view(-1, level.shape[-1]) for level in levels]), grid[0].tolist()

    def embeddings(self, picture: Image.Image) -> Part:
        embeddings, grid = self.tower(picture)
        if len(embeddings) == 1:
            embeddings = embeddings[0]  # a single level may do without its axis
        return tensor_part(tensor_file(grid, embeddings=embeddings))

    def body(self, *parts: Part) -> dict[str, Any]:
        message = {"role": "user", "content": list(parts)}
        return {
            "model": self.server.model,
            "messages": [message],
            "max_tokens": 16,
            "temperature": 0,
        }

    def ask(self, *parts: Part) -> tuple[str, int]:
        """The answer, thoughts included, and the number of image tokens."""
        answer = self.server.post(self.body(*parts)).json()
        num_tokens = answer["usage"]["prompt_tokens_details"]["image_tokens"]
        message = answer["choices"][0]["message"]
        return f"{message.get('reasoning_content', '')}{message['content'] or ''}", num_tokens


@pytest.fixture(scope="module", params=["qwen2_5_vl", "kimi_k25", "demo"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("tensors")
    path = DEMO_MODEL if request.param == "demo" else make_checkpoint(folder, request.param)
    workers = "cpu:vision,cpu:vision+language"
    with running(model=path, workers=workers, allow_tensor_inputs=1) as server:
        yield Lab(server, Oracle(path))


def some_pictures(seed: int) -> list[Image.Image]:
    """Two that the demo model knows and two that any model sees; no two of a size."""
    return [
        draw_shape("red", "circle", (160 + seed, 128)),
        draw_shape("blue", "square", (131, 170 + seed)),
        noise(seed, (90 + seed, 201)),
        noise(seed + 1, (233, 61 + seed)),
    ]


def test_patches_and_embeddings_of_an_image_are_answered_as_the_image(lab: Lab) -> None:
    pictures = some_pictures(0)
    expected = [lab.ask(image_part(picture), QUESTION) for picture in pictures]
    assert [lab.ask(lab.patches(picture), QUESTION) for picture in pictures] == expected
    assert [lab.ask(lab.embeddings(picture), QUESTION) for picture in pictures] == expected
    assert len(set(expected)) >= 3


def test_three_kinds_in_one_request_each_find_their_place(lab: Lab) -> None:
    pictures = some_pictures(7)[:3]
    kinds = (image_part, lab.patches, lab.embeddings)
    answers = set()
    for order in permutations(range(3)):
        parts = [image_part(pictures[place]) for place in order]
        expected = lab.ask(parts[0], QUESTION, *parts[1:])
        answers.add(expected)
        # Every picture comes in every kind, in every place.
        for turn in range(3):
            parts = [kinds[(place + turn) % 3](pictures[place]) for place in order]
            assert lab.ask(parts[0], QUESTION, *parts[1:]) == expected
    assert len(answers) >= 3 or lab.server.model == "demo_model"


def test_no_kind_is_ever_answered_from_another(lab: Lab) -> None:
    """The tensors are of another picture of the same size, and so have the image's own grid."""
    red, blue = (draw_shape(colour, "circle", (166, 129)) for colour in ("red", "blue"))
    before = lab.server.metric("fovea_images_encoded_total")
    shown, other = lab.ask(image_part(red), QUESTION), lab.ask(image_part(blue), QUESTION)
    parts = [lab.patches(blue), lab.embeddings(blue), lab.patches(red), lab.embeddings(red)]
    for _ in range(2):
        answers = [lab.ask(part, QUESTION) for part in parts]
        assert answers == [other, other, shown, shown]
        assert lab.ask(image_part(red), QUESTION) == shown
    # Each of the six once: none was taken for another, and none was encoded again.
    assert lab.server.metric("fovea_images_encoded_total") == before + 6


def test_a_name_brings_tensors_back(lab: Lab) -> None:
    picture = noise(31, (127, 140))
    part = lab.embeddings(picture)
    shown = lab.ask(part | {"uuid": "tensors"}, QUESTION)
    assert shown == lab.ask(image_part(picture), QUESTION)
    assert lab.ask({"type": "image_tensors", "uuid": "tensors"}, QUESTION) == shown
    for alone in ({"type": "image_tensors", "uuid": "x"}, {"type": "image_url", "uuid": "tensors"}):
        refused = lab.server.post(lab.body(alone, QUESTION))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "image_not_kept")


def test_payloads_are_counted_by_kind(lab: Lab) -> None:
    def counts(name: str) -> list[float]:
        return [lab.server.metric(name, payload=kind) for kind in ("Patches", "Embeddings")]

    picture = noise(41, (143, 99))
    embeddings, grid = lab.tower(picture)
    patches, _ = lab.processed(picture)
    images, num_bytes = (
        counts("fovea_payloads_total"),
        counts("fovea_payload_bytes_total"),
    )
    lab.ask(tensor_part(tensor_file(grid, embeddings=embeddings)), QUESTION)
    lab.ask(tensor_part(tensor_file(grid, patches=patches.flatten(1))), QUESTION)
    assert counts("fovea_payloads_total") == [count + 1 for count in images]
    assert counts("fovea_payload_bytes_total") == [
        num_bytes[0] + patches.nbytes,
        num_bytes[1] + embeddings.nbytes,
    ]


def wrong_parts(lab: Lab) -> dict[str, tuple[Part, str, str]]:
    """Parts that are refused, each with its stage and code."""
    picture = noise(51, (150, 121))
    embeddings, grid = lab.tower(picture)
    patches = lab.processed(picture)[0].flatten(1)
    _, rows, columns = grid
    hole, endless = embeddings.clone(), patches.clone()
    hole[-1, -1, -1], endless[3, 5] = torch.nan, torch.inf

    def part(grid: list[int] = grid, **tensors: Tensor) -> Part:
        return tensor_part(tensor_file(grid, **tensors))

    header, encode = ("header", "invalid_tensors"), ("encode", "invalid_tensors")
    shape = ("limit", "invalid_image_shape")
    return {
        "no file": (tensor_part(b"x" * 99), *header),
        "narrow patches": (part(patches=patches[:, :-1]), *header),
        "a patch less": (part(patches=patches[:-1]), *header),
        "a token more": (part(embeddings=torch.cat((embeddings, embeddings), 1)), *header),
        "turned grid": (part([1, rows + 2, columns], patches=patches), *header),
        "half patches": (part(patches=patches.half()), *header),
        "double embeddings": (part(embeddings=embeddings.double()), *header),
        "two frames": (part([2, rows, columns], patches=patches.repeat(2, 1)), *shape),
        "odd grid": (part([1, rows + 1, columns], patches=patches), *shape),
        "endless grid": (part([1, 2**62, 2**62], patches=patches), *shape),
        "infinite patches": (part(patches=endless), *encode),
        "numbers too large": (part(patches=patches * 3e38), *encode),
        "embeddings with a hole": (part(embeddings=hole), *encode),
        "half embeddings": (part(embeddings=embeddings.half()), *encode),
        "wrong width": (part(embeddings=embeddings[:, :, :-1]), *encode),
        "a level more": (part(embeddings=torch.cat((embeddings, embeddings))), *encode),
    }


def test_wrong_tensors_are_the_callers_mistake_and_change_nobodys_answer(lab: Lab) -> None:
    good = [image_part(noise(61, (101, 99))), QUESTION, lab.patches(noise(62, (77, 160)))]
    expected = lab.ask(*good)
    for name, (part, stage, code) in wrong_parts(lab).items():
        with ThreadPoolExecutor(2) as threads:
            beside = threads.submit(lab.ask, *good)
            refused = lab.server.post(lab.body(QUESTION, good[0], part))
        error = refused.json()["error"]
        assert refused.status_code == 400, (name, error)
        assert (error["stage"], error["code"], error["image_index"]) == (stage, code, 1), name
        assert error["param"] == "messages[0].content[2].image_tensors.data", name
        assert beside.result() == lab.ask(*good) == expected, name


def test_embeddings_of_another_model_are_answered_with_the_numbers(lab: Lab) -> None:
    embeddings, grid = lab.tower(noise(71, (88, 140)))
    levels, num_tokens, hidden = embeddings.shape
    part = tensor_part(tensor_file(grid, embeddings=torch.zeros(levels, num_tokens, hidden + 8)))
    message = lab.server.post(lab.body(part)).json()["error"]["message"]
    assert f"[{levels}, {num_tokens}, {hidden + 8}]" in message
    assert f"[{levels}, {num_tokens}, {hidden}]" in message


@pytest.mark.parametrize("size", [3e38, 1e30, -1e20])
def test_absurd_embeddings_change_nobodys_answer(lab: Lab, size: float) -> None:
    good = [image_part(noise(81, (104, 95))), QUESTION]
    expected = lab.ask(*good)
    embeddings, grid = lab.tower(noise(82, (120, 73)))
    part = tensor_part(tensor_file(grid, embeddings=torch.full_like(embeddings, size)))
    with ThreadPoolExecutor(2) as threads:
        beside = threads.submit(lab.ask, *good)
        absurd = lab.server.post(lab.body(part, QUESTION))
    if absurd.status_code != 200:
        assert (absurd.status_code, absurd.json()["error"]["code"]) == (400, "invalid_tensors")
    assert beside.result() == lab.ask(*good) == expected


def test_tensors_are_off_unless_the_operator_allows_them(demo: Server) -> None:
    part = tensor_part(tensor_file((1, 4, 4), patches=torch.zeros(16, 1536)))
    body = {"model": demo.model, "messages": [{"role": "user", "content": [part]}]}
    response = demo.post(body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "tensors_not_allowed"
