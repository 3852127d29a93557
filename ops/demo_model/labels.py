"""Say for every patch and every merged token of a picture what lies there."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ops.demo_model.render import number_mask
from ops.demo_model.scenes import COLOURS, REGIONS, SHAPES, Number, Scene, region_of

COLOUR, SHAPE, DIGIT, PLACE, REGION, CENTRE, COUNT = range(7)
NUM_CLASSES = (1 + len(COLOURS), 1 + len(SHAPES), 11, 3, 1 + len(REGIONS), 2, 5)
UNASKED = -100
Labels = NDArray[np.int64]  # [7, rows, columns]; 0 means nothing, or for COUNT no object


def label(scene: Scene, num_rows: int, num_columns: int) -> Labels:
    """Dense labels on a grid laid over the picture."""
    labels = np.zeros((len(NUM_CLASSES), num_rows, num_columns), np.int64)
    labels[COUNT] = len(scene.things)
    _label_things(labels, scene)
    if scene.number is not None:
        _label_digits(labels, scene, scene.number)
    return labels


def label_patches(scene: Scene, num_rows: int, num_columns: int) -> Labels:
    """Labels of the four patches of each merged token, in the tower's order: [7, patches]."""
    fine = label(scene, 2 * num_rows, 2 * num_columns)
    blocks = fine.reshape(len(NUM_CLASSES), num_rows, 2, num_columns, 2)
    return blocks.transpose(0, 1, 3, 2, 4).reshape(len(NUM_CLASSES), -1)


def rank(scene: Scene, num_rows: int, num_columns: int) -> NDArray[np.int64]:
    """How many things of its shape, and of its colour, come before a thing: [2, rows, columns].

    Cells count in reading order, as the decoder reads them, so that the last circle knows how
    many circles there are. Only cells with a thing's centre have a rank, the others `UNASKED`.
    """
    ranks = np.full((2, num_rows, num_columns), UNASKED, np.int64)
    placed = [(_cell(scene, ranks, thing.x, thing.y), thing) for thing in scene.things]
    for cell, thing in placed:
        before = [other for place, other in placed if place < cell]
        ranks[:, *cell] = (
            sum(other.shape == thing.shape for other in before),
            sum(other.colour == thing.colour for other in before),
        )
    return ranks


def _cell(scene: Scene, labels: Labels, x: float, y: float) -> tuple[int, int]:
    num_rows, num_columns = labels.shape[1:]
    row = min(num_rows - 1, max(0, int(y * num_rows / scene.height)))
    column = min(num_columns - 1, max(0, int(x * num_columns / scene.width)))
    return row, column


def _centres(scene: Scene, labels: Labels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pixel coordinates of the cells' centres: x as a row, y as a column."""
    num_rows, num_columns = labels.shape[1:]
    x = (np.arange(num_columns) + 0.5) * scene.width / num_columns
    y = (np.arange(num_rows) + 0.5) * scene.height / num_rows
    return x[None, :], y[:, None]


def _label_things(labels: Labels, scene: Scene) -> None:
    x, y = _centres(scene, labels)
    for thing in scene.things:
        row, column = _cell(scene, labels, thing.x, thing.y)
        covered = np.hypot(x - thing.x, y - thing.y) < 0.75 * thing.radius
        covered[row, column] = True
        region = region_of(thing.x, thing.y, scene.width, scene.height)
        labels[COLOUR][covered] = 1 + list(COLOURS).index(thing.colour)
        labels[SHAPE][covered] = 1 + SHAPES.index(thing.shape)
        labels[REGION][covered] = 0 if region is None else 1 + REGIONS.index(region)
        labels[CENTRE][row, column] = 1


def _digit_spans(number: Number) -> Iterator[tuple[int, float, float, float]]:
    """For each digit its value, centre x, half width and half height, in pixels."""
    mask = number_mask(number)
    width = mask.width / len(number.digits)
    for index, digit in enumerate(number.digits):
        x = number.x + (index - (len(number.digits) - 1) / 2) * width
        yield int(digit), x, width / 2, mask.height / 2


def _label_digits(labels: Labels, scene: Scene, number: Number) -> None:
    x, y = _centres(scene, labels)
    for index, (digit, centre, half_width, half_height) in enumerate(_digit_spans(number)):
        inside = np.abs(x - centre) < 0.84 * half_width
        covered = inside & (np.abs(y - number.y) < 0.9 * half_height)
        covered[_cell(scene, labels, centre, number.y)] = True
        labels[COLOUR][covered] = 1 + list(COLOURS).index(number.colour)
        labels[DIGIT][covered] = 1 + digit
        labels[PLACE][covered] = 1 + index
