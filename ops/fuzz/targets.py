"""The names of all targets, and how many inputs of each make a whole run."""

from collections.abc import Callable, Mapping
from importlib import import_module

from ops.fuzz.bodies import Bodies
from ops.fuzz.frames import Frames
from ops.fuzz.images import Headers, Pixels
from ops.fuzz.schemas import Schemas
from ops.fuzz.target import Target
from ops.fuzz.tensors import TensorFiles
from ops.fuzz.uris import DataUris

_MAKERS: Mapping[str, Callable[[], Target]] = {
    "header": Headers,
    "decode": Pixels,
    "uri": DataUris,
    "body": Bodies,
    "frame": Frames,
    "tensors": TensorFiles,
    "schema": Schemas,
}
WHOLE_RUN: Mapping[str, int] = {
    "header": 100_000,
    "decode": 100_000,
    "uri": 100_000,
    "body": 60_000,
    "frame": 60_000,
    "tensors": 40_000,
    "schema": 30_000,
}


def open_target(name: str) -> Target:
    """The target of that name, or `MODULE:CLASS`; to be closed by who asks for it."""
    module, _, made = name.partition(":")
    maker = getattr(import_module(module), made) if made else _MAKERS[name]
    target: Target = maker()
    return target
