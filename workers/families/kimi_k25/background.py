"""What shows through transparent pixels: an image processor's section in, a background out.

K2.5 says nothing and drops transparency; K3 asks for a chessboard under the resized picture.
"""

from pathlib import Path
from typing import Any

from workers.families.config_files import refuse, value_of
from workers.families.plan import Background, Colour

PLAIN = {"white": 255, "black": 0, "gray": 128}
STAGES = ("before_resize", "after_resize")


def read_background(model: Path, processor: dict[str, Any]) -> Background | None:
    """The ground that `transparent_bg_config` asks for; None without such a section.

    Raises:
        UnsupportedCheckpoint: a pattern, stage or number that is not known.
    """
    section = processor.get("transparent_bg_config")
    if section is None:
        return None
    if not isinstance(section, dict):
        refuse(model, "transparent_bg_config of this type", "an object")
    stage = value_of(processor, "transparent_bg_fill_stage", STAGES[0])
    if stage not in STAGES:
        refuse(model, f"transparent_bg_fill_stage {stage!r}", " or ".join(STAGES))
    pattern = value_of(section, "pattern", "black")
    if pattern == "chessboard":
        first, second = _squares(model, section)
        side = _number(model, section, "chessboard_square_size", 16, range(1, 2**16))
        return Background(stage=stage, square=side, first=first, second=second)
    if pattern not in PLAIN:
        refuse(model, f"background {pattern!r}", ", ".join([*PLAIN, "chessboard"]))
    colour = _gray(PLAIN[pattern])
    return Background(stage=stage, square=1, first=colour, second=colour)


def _squares(model: Path, section: dict[str, Any]) -> tuple[Colour, Colour]:
    """The colour in the top left corner and the other one."""
    white = _gray(_number(model, section, "chessboard_white_value", 255, range(256)))
    gray = _gray(_number(model, section, "chessboard_gray_value", 200, range(256)))
    corner_is_white = value_of(section, "chessboard_square_on_top_left", True)
    return (white, gray) if corner_is_white else (gray, white)


def _number(model: Path, section: dict[str, Any], name: str, default: int, allowed: range) -> int:
    number = value_of(section, name, default)
    if not isinstance(number, int) or number not in allowed:
        refuse(model, f"{name} {number!r}", f"{allowed.start} to {allowed.stop - 1}")
    return number


def _gray(level: int) -> Colour:
    return (level, level, level)
