"""Read the text files in `words/`: named sections of one entry a line."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words"
Table = Mapping[str, tuple[str, ...]]


@lru_cache
def load(name: str) -> Table:
    """The sections of a file; a section in capitals is a pattern that others name in braces."""
    sections: dict[str, list[str]] = {}
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            entries = sections.setdefault(line.removeprefix("== "), [])
        elif line and not line.startswith("#"):
            entries.append(_substituted(line, sections))
    return {key: tuple(entries) for key, entries in sections.items() if not key.isupper()}


def _substituted(line: str, sections: Mapping[str, list[str]]) -> str:
    for name, entries in sections.items():
        if name.isupper():
            line = line.replace(f"{{{name}}}", entries[0] if entries else "")
    return line
