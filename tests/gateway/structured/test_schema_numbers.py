"""Numbers in schemas that the grammar library cannot stand never get to it."""

import json
import time

import pytest

from gateway.errors import BadRequest
from gateway.structured.json_grammar import schema_rule
from gateway.structured.schema_numbers import reason_against
from tests.gateway.structured.reading import read

LEAST = -(2**63)  # of 64 bits


@pytest.mark.parametrize(
    "schema",
    [
        {"const": LEAST},
        {"enum": [1, [{"a": LEAST + 300}]]},
        {"type": "integer", "minimum": -1e308, "maximum": LEAST + 2},
        {"allOf": [{"type": "integer"}, {"exclusiveMaximum": LEAST + 1}]},
    ],
)
def test_a_number_at_which_the_library_overflows_its_stack_never_gets_there(
    schema: dict[str, object],
) -> None:
    """Without the check this ends the process that runs the tests."""
    with pytest.raises(BadRequest, match=r"a number below -9\.2e\+18") as caught:
        schema_rule(schema, "response_format")
    assert caught.value.code == "invalid_schema"


def test_numbers_of_64_bits_that_it_can_take_are_taken() -> None:
    for number in (-(2**62), 2**63 - 1):
        read(schema_rule({"const": number}, "response_format"))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 1_000_003},
        {"type": "number", "exclusiveMinimum": -0.5, "multipleOf": -2147483648},
        {"type": "number", "multipleOf": 123.457},
        {"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]},
        {"properties": {str(number): {"multipleOf": 997} for number in range(60)}},
    ],
)
def test_multiples_whose_remainders_the_library_would_count_for_hours_are_refused(
    schema: dict[str, object],
) -> None:
    with pytest.raises(BadRequest, match="too many remainders") as caught:
        schema_rule(schema, "response_format")
    assert caught.value.code == "invalid_schema"


@pytest.mark.parametrize("step", [1, 2, 5, 7, 12, 60, 3600, 86_400, 1000, 1e6, 0.01, 0.25, 1e-9])
def test_multiples_as_people_write_them_are_taken(step: float) -> None:
    schema = {"properties": {name: {"type": "number", "multipleOf": step} for name in "abc"}}
    assert reason_against(json.loads(json.dumps(schema))) == ""


def test_what_is_no_number_is_left_to_the_library() -> None:
    for value in (True, None, "7", [True]):
        assert reason_against({"type": "integer", "multipleOf": value}) == ""


def test_looking_at_numbers_takes_no_time() -> None:
    schema = {"enum": [{"multipleOf": 10**15 + number} for number in range(80_000)]}
    begun = time.process_time()
    assert reason_against(schema)
    assert time.process_time() - begun < 1
