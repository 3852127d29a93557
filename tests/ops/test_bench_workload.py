"""Requests of a run: as many as the rounds need, and none like another unless asked for."""

import base64
import io
from dataclasses import replace

import pytest
from PIL import Image

from ops.bench.images import Size
from ops.bench.workload import WORKLOADS, Content, Workload, make_contents, parse_images

SMALL = Workload((Size(20, 12), Size(16, 28)), 2, 8, num_requests=3, num_rounds=2, num_warmup=1)


def image_urls(content: Content) -> list[str]:
    assert isinstance(content, list)
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def question(content: Content) -> str:
    return content if isinstance(content, str) else str(content[-1]["text"])


def test_every_request_of_a_run_has_its_own_images_and_question() -> None:
    contents = make_contents(SMALL, seed=1)
    assert len(contents) == 7
    assert len({url for content in contents for url in image_urls(content)}) == 14
    assert len({question(content) for content in contents}) == 7


def test_repeated_images_come_with_new_questions() -> None:
    contents = make_contents(replace(SMALL, num_image_sets=2), seed=2)
    sets = {tuple(image_urls(content)) for content in contents}
    assert len(sets) == 2
    assert len({question(content) for content in contents}) == 7


def test_images_have_the_sizes_and_order_of_the_workload() -> None:
    sizes = []
    for url in image_urls(make_contents(SMALL, seed=3)[0]):
        data = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
        sizes.append(Image.open(io.BytesIO(data)).size)
    assert sizes == [(20, 12), (16, 28)]


def test_text_only_questions_share_no_prefix() -> None:
    contents = make_contents(replace(SMALL, images=()), seed=4)
    assert all(isinstance(content, str) for content in contents)
    assert len({question(content).split()[0] for content in contents}) == 7


def test_images_are_parsed_with_their_counts() -> None:
    assert parse_images("2x640x480,1x9x7") == (Size(640, 480), Size(640, 480), Size(9, 7))
    assert parse_images("none") == ()


@pytest.mark.parametrize("text", ["", "640x480", "1x640", "0x8x8", "1x0x8", "axbxc"])
def test_what_is_no_list_of_images_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_images(text)


def test_the_named_workloads_are_those_of_the_baseline() -> None:
    shape = {
        name: (len(load.images), load.concurrency, load.max_tokens, load.num_image_sets)
        for name, load in WORKLOADS.items()
    }
    assert shape == {
        "W1": (1, 1, 16, None),
        "W2": (1, 16, 16, None),
        "W3": (4, 4, 16, None),
        "W4": (1, 8, 16, 1),
        "W5": (0, 16, 64, None),
    }
