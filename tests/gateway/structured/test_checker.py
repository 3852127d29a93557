"""Schemas that would end the process that reads them, or take all it has, end a child of it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.structured.json_grammar import schema_rule
from tests.schemas import SCHEMAS

ROOT = Path(__file__).parents[3]
MAIN = "from gateway.structured.checker import main; main()"
FINE = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}}
NO_TYPE = {"type": "colour"}


def chain(num_links: int, **beside: Any) -> dict[str, Any]:
    """A definition that refers to another, which refers to another."""
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(num_links)}
    return {"$ref": "#/$defs/d0", "$defs": links | {f"d{num_links}": {"type": "null"}}, **beside}


# Bodies of a hundred kilobytes at most, of which each once ended the process.
OVERFLOWS = chain(3000)
ALLOCATES = {"allOf": [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(50)]}
LASTS = {"type": "object", "patternProperties": {f"^a{i:04}$": {} for i in range(9000)}}


def judge(*lists: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """What a checker says of lists of schemas, one after the other."""
    texts = [[schema_rule(schema, "form").text for schema in schemas] for schemas in lists]
    done = subprocess.run(
        [sys.executable, "-c", MAIN],
        input="".join(json.dumps(each) + "\n" for each in texts),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    return [(place, reason) for place, reason in map(json.loads, done.stdout.splitlines())]


def test_schemas_as_people_write_them_are_taken() -> None:
    lists = [[schema] for schema in SCHEMAS.values()]
    assert {reason for _, reason in judge(*lists, list(SCHEMAS.values()), [chain(100)])} == {""}


def test_a_refusal_names_the_schema_that_it_is_about() -> None:
    (place, reason), other = judge([FINE, NO_TYPE, FINE], [FINE, FINE])
    assert (place, other) == (1, (2, ""))
    assert "colour" in reason


@pytest.mark.parametrize(
    ("schema", "word"),
    [(OVERFLOWS, "too deep"), (ALLOCATES, "more than 128 MiB"), (LASTS, "more than 2 s")],
)
@pytest.mark.slow
def test_a_schema_that_ends_its_reader_is_refused_and_the_next_one_is_read(
    schema: dict[str, Any], word: str
) -> None:
    begun = time.monotonic()
    (place, reason), (_, nothing) = judge([FINE, schema], [FINE])
    assert place == 1
    assert word in reason
    assert nothing == ""
    assert time.monotonic() - begun < 20
