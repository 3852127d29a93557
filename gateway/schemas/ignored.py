"""Fields that nobody here knows, and the response header that names them once."""

import re
from collections.abc import Iterable, Iterator

from pydantic import BaseModel

IGNORED_HEADER = "x-fovea-ignored-fields"
MAX_NAMED_FIELDS = 32
_MAX_NAME_CHARS = 64
# Whatever else a name holds is no business of a header.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-\[\]]")


def unknown_in(value: object, path: str) -> Iterator[str]:
    """Dotted names of what a checked body holds beyond its fields; `path[]` is every item.

    `null` asks for nothing, so it is not told.
    """
    if isinstance(value, tuple | list):
        for item in value:
            yield from unknown_in(item, f"{path}[]")
    elif isinstance(value, BaseModel):
        for name, given in (value.model_extra or {}).items():
            if given is not None:
                yield f"{path}.{name[:_MAX_NAME_CHARS]}"
        for name in type(value).model_fields:
            yield from unknown_in(getattr(value, name), f"{path}.{name}")


def name_ignored(fields: Iterable[str]) -> str:
    """The header's value: sorted names, each once, of safe letters and bounded length."""
    names = sorted({_UNSAFE.sub("?", field[: 2 * _MAX_NAME_CHARS]) for field in fields})
    more = ["..."] if len(names) > MAX_NAMED_FIELDS else []
    return ", ".join(names[:MAX_NAMED_FIELDS] + more)
