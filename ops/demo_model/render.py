"""Turn a scene into pixels: shapes, digits, paper grain and JPEG artefacts."""

import io
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ops.demo_model.scenes import Number, Paper, Scene, Thing

GLYPH_PIXELS = 96  # digits are drawn once at this size and then scaled


def render(scene: Scene) -> Image.Image:
    """The picture as a server sees it: RGB, after any JPEG round trip."""
    image = draw(scene)
    if scene.jpeg_quality is None:
        return image
    with Image.open(io.BytesIO(to_file(scene))) as decoded:
        return decoded.convert("RGB")


def to_file(scene: Scene) -> bytes:
    """The picture as a caller sends it: JPEG of the scene's quality, or PNG."""
    buffer = io.BytesIO()
    if scene.jpeg_quality is None:
        draw(scene).save(buffer, "PNG")
    else:
        draw(scene).save(buffer, "JPEG", quality=scene.jpeg_quality)
    return buffer.getvalue()


def draw(scene: Scene) -> Image.Image:
    """The picture before it became a file, RGB."""
    image = _draw_things(scene, _lay_paper(scene))
    if scene.number is not None:
        _draw_number(image, scene.number)
    return image


def _lay_paper(scene: Scene) -> Image.Image:
    paper, size = scene.paper, (scene.width, scene.height)
    if paper.rgb == paper.far_rgb and paper.grain == 0:
        return Image.new("RGB", size, paper.rgb)
    return Image.fromarray(_paper_pixels(paper, size))


def _paper_pixels(paper: Paper, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The background, [height, width, 3]."""
    width, height = size
    ramp = np.linspace(0, 1, height if paper.is_vertical else width)
    ramp = ramp[:, None, None] if paper.is_vertical else ramp[None, :, None]
    near, far = np.array(paper.rgb, float), np.array(paper.far_rgb, float)
    grain = np.random.default_rng(paper.seed).normal(0, paper.grain, (height, width, 1))
    pixels: NDArray[np.float64] = near + (far - near) * ramp + grain
    return pixels.clip(0, 255).astype(np.uint8)


def _draw_things(scene: Scene, paper: Image.Image) -> Image.Image:
    if not scene.things:
        return paper
    scale = scene.scale
    image = paper
    if scale > 1:
        image = paper.resize((scene.width * scale, scene.height * scale), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(image)
    for thing in scene.things:
        _draw_thing(draw, thing, scale)
    if scale > 1:
        image = image.reduce(scale)
    return image


def _draw_thing(draw: ImageDraw.ImageDraw, thing: Thing, scale: int) -> None:
    x, y, radius = thing.x * scale, thing.y * scale, thing.radius * scale
    if thing.shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=thing.rgb)
        return
    turn, radii = {
        "square": (math.pi / 4, (1.18,) * 4),
        "triangle": (0.0, (1.0,) * 3),
        "star": (0.0, (1.0, 0.42) * 5),
    }[thing.shape]
    step = 2 * math.pi / len(radii)
    corners = [
        (
            x + radius * share * math.sin(turn + thing.angle + index * step),
            y - radius * share * math.cos(turn + thing.angle + index * step),
        )
        for index, share in enumerate(radii)
    ]
    draw.polygon(corners, fill=thing.rgb)


@lru_cache(maxsize=256)
def _glyph_mask(digits: str, stroke: int) -> Image.Image:
    """The digits in Pillow's own font, cut to their box; mode L."""
    font = ImageFont.load_default(GLYPH_PIXELS)
    left, top, right, bottom = font.getbbox(digits, stroke_width=stroke)
    mask = Image.new("L", (math.ceil(right - left), math.ceil(bottom - top)), 0)
    draw = ImageDraw.Draw(mask)
    draw.text((-left, -top), digits, fill=255, font=font, stroke_width=stroke)
    return mask


def number_mask(number: Number) -> Image.Image:
    """The digits scaled, leant and turned; mode L, ready to paste at the centre."""
    mask = _glyph_mask(number.digits, number.stroke)
    height = max(8, round(number.height))
    width = max(6, round(mask.width * height / mask.height * number.stretch))
    mask = mask.resize((width, height), Image.Resampling.BILINEAR)
    if number.lean:
        shift = math.tan(math.radians(number.lean))
        room = math.ceil(abs(shift) * height)
        offset = -room if shift > 0 else 0
        mask = mask.transform(
            (width + room, height),
            Image.Transform.AFFINE,
            (1, shift, offset, 0, 1, 0),
            Image.Resampling.BILINEAR,
        )
    if number.turn:
        mask = mask.rotate(number.turn, Image.Resampling.BILINEAR, expand=True)
    return mask


def _draw_number(image: Image.Image, number: Number) -> None:
    mask = number_mask(number)
    x = round(min(max(0, number.x - mask.width / 2), max(0, image.width - mask.width)))
    y = round(min(max(0, number.y - mask.height / 2), max(0, image.height - mask.height)))
    image.paste(number.rgb, (x, y), mask)
