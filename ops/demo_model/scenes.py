"""What a picture shows: one to four shapes, a number, or nothing; and where things lie in it."""

from dataclasses import dataclass
from typing import Literal

Rgb = tuple[int, int, int]
Kind = Literal["one", "two", "many", "number", "empty"]

COLOURS: dict[str, tuple[Rgb, Rgb]] = {  # the pure tone and the centre of the mixed tones
    "red": ((255, 0, 0), (220, 30, 35)),
    "green": ((0, 128, 0), (30, 150, 55)),
    "blue": ((0, 0, 255), (35, 75, 220)),
    "yellow": ((255, 255, 0), (245, 222, 35)),
    "orange": ((255, 165, 0), (250, 140, 20)),
    "purple": ((128, 0, 128), (135, 40, 175)),
    "black": ((0, 0, 0), (18, 18, 18)),
    "white": ((255, 255, 255), (250, 250, 250)),
}
SHAPES = ("circle", "square", "triangle", "star")
REGIONS = (
    *("top left", "top", "top right"),
    *("left", "centre", "right"),
    *("bottom left", "bottom", "bottom right"),
)


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape; centre and radius in pixels, angle in radians."""

    shape: str
    colour: str
    rgb: Rgb
    x: float
    y: float
    radius: float
    angle: float

    @property
    def name(self) -> str:
        """The colour and the shape, as an answer says them."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True, slots=True)
class Number:
    """One or two digits; centre and glyph height in pixels, lean and turn in degrees."""

    digits: str
    colour: str
    rgb: Rgb
    x: float
    y: float
    height: float
    stretch: float
    lean: float
    turn: float
    stroke: int


@dataclass(frozen=True, slots=True)
class Paper:
    """The background: a plain tone or a slight gradient, with or without grain."""

    rgb: Rgb
    far_rgb: Rgb
    is_vertical: bool
    grain: float  # standard deviation, in levels of 255
    seed: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that decides the pixels; things are in reading order."""

    width: int
    height: int
    kind: Kind
    paper: Paper
    things: tuple[Thing, ...]
    number: Number | None
    scale: int  # drawn this many times larger, then averaged down
    jpeg_quality: int | None  # None: kept without loss


def is_held_out_size(width: int, height: int) -> bool:
    """Whether the size belongs to the tenth that training never renders."""
    return (7 * width + 13 * height) % 10 == 0


def region_of(x: float, y: float, width: int, height: int) -> str | None:
    """The ninth of the picture a point lies in; None where two answers would be fair."""
    column, row = _third(x / width), _third(y / height)
    return None if column is None or row is None else REGIONS[row * 3 + column]


def _third(share: float) -> int | None:
    if share < 0.31:
        return 0
    if share > 0.69:
        return 2
    return 1 if 0.37 < share < 0.63 else None


def in_reading_order(things: tuple[Thing, ...], scene: Scene) -> tuple[Thing, ...]:
    """Left to right; top to bottom in a picture that is clearly taller than wide."""
    if scene.height > 1.5 * scene.width:
        return tuple(sorted(things, key=lambda thing: thing.y))
    return tuple(sorted(things, key=lambda thing: thing.x))
