"""The baseline's bits and bytes, the ways from a file to the tower, and the whole command."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from config.settings import DEMO_MODEL, ImageSettings
from gateway.encoding.flight import Payloads
from gateway.images.header import set_up_pillow
from ops.bench.deferral.materialise import Route, compare, median_cost, take_pictures
from ops.bench.deferral.rules import EagerPatches, OneForm, make_patches, patches_bytes
from ops.bench.deferral.servers import owners_setting
from ops.bench.images import Size
from tests.plans import make_plan
from workers.families import load_layout
from workers.vision.preprocess import Preprocessor, cut

pytestmark = pytest.mark.usefixtures("pillow")

SIZES = (Size(96, 64), Size(150, 210), Size(33, 70))


class Sum:
    """A tower that adds up what it sees, with each patch's place."""

    device = torch.device("cpu")
    dtype = torch.float32
    num_levels = 1
    hidden_size = 1

    def encode(self, patches: torch.Tensor, grids: Any) -> list[torch.Tensor]:
        places = torch.arange(1.0, len(patches) + 1)
        return [(patches.sum(dim=1) * places).view(1, -1, 1)]


@pytest.fixture
def pillow() -> None:
    set_up_pillow(ImageSettings())


@pytest.mark.parametrize("order", ["merged", "raster"])
@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("resized", [(56, 84), (50, 71), (29, 84)])
def test_patches_have_the_bits_of_the_owners(
    order: str, frames: int, resized: tuple[int, int]
) -> None:
    padded = tuple(-(-side // 28) * 28 for side in resized)
    plan = make_plan(
        (100, 200),
        resized_size=resized,
        padded_size=padded,
        grid=(1, padded[0] // 14, padded[1] // 14),
        temporal_patch_size=frames,
        patch_order=order,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
    )
    pixels = np.random.default_rng(5).integers(0, 256, (*resized, 3), np.uint8)
    expected = Preprocessor(torch.device("cpu")).normalised(
        cut(torch.from_numpy(pixels), plan), plan
    )
    patches = make_patches(pixels, plan)
    assert np.array_equal(patches.view(np.uint32), expected.numpy().view(np.uint32))
    assert patches.nbytes == patches_bytes(plan)


def test_every_way_gives_the_tower_the_same_bits_and_resized_pixels_take_an_eighth() -> None:
    pictures = take_pictures(load_layout(DEMO_MODEL), SIZES, seed=3)
    rules: dict[str, Payloads] = {
        "eager": EagerPatches(),
        "resized": OneForm("resized"),
        "source": OneForm("source"),
    }
    routes = {name: Route(rule, Sum()) for name, rule in rules.items()}
    costs = {name: median_cost(each) for name, each in compare(pictures, routes, 1).items()}
    assert costs["eager"].num_bytes == 8 * costs["resized"].num_bytes
    assert costs["source"].num_bytes == sum(3 * size.width * size.height for size in SIZES)


def test_a_way_that_changes_a_bit_is_found_out() -> None:
    pictures = take_pictures(load_layout(DEMO_MODEL), SIZES, seed=3)
    others = take_pictures(load_layout(DEMO_MODEL), SIZES, seed=4)

    class OtherPictures(OneForm):
        def make(self, picture: Any, *, decoded: bool) -> Any:
            return super().make(others[picture.task.index], decoded=decoded)

    routes = {
        "right": Route(OneForm("resized"), Sum()),
        "wrong": Route(OtherPictures("resized"), Sum()),
    }
    with pytest.raises(AssertionError, match="differ"):
        compare(pictures, routes, 1)


def test_room_is_what_the_payload_takes() -> None:
    for picture in take_pictures(load_layout(DEMO_MODEL), SIZES, seed=3):
        for rule in (EagerPatches(), OneForm("resized"), OneForm("source"), OneForm("jpeg")):
            data, _ = rule.make(picture, decoded=False)
            assert rule.num_bytes(picture) == len(data)


def test_one_of_the_owners_is_the_engine() -> None:
    assert owners_setting(1) == "cpu:vision+language"
    assert owners_setting(3) == "cpu:vision+language,cpu:vision,cpu:vision"


@pytest.mark.slow
def test_both_gateways_serve_and_answer_alike() -> None:
    command = [sys.executable, "-m", "ops.bench.deferral", str(DEMO_MODEL), "serve"]
    options = ["--owners", "2", "--rounds", "1", "--requests", "1", "--in-flight", "1"]
    options += ["--sets", "1x1536x1024"]
    printed = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    assert printed.stdout.count("answers are equal") == 1
    assert printed.stdout.count("failed: 0") == 2
