"""What a library in Rust stumbles over ends one request, by an error that has our form."""

import pytest

from gateway.errors import BadRequest
from gateway.panic import LibraryPanic, name_panics
from gateway.structured.json_grammar import schema_rule
from tests.gateway.structured.reading import read

# The library cuts what it cannot take at the hundredth byte, to tell it: here within a letter.
CUT_WITHIN_A_LETTER = "a" + 99 * "é"


class PanicException(BaseException):
    """As the bindings of Rust make it, in a module that does not exist."""


def test_a_panic_becomes_an_exception_that_handlers_catch() -> None:
    with pytest.raises(LibraryPanic, match="why"), name_panics():
        raise PanicException("why")


@pytest.mark.parametrize("other", [KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_is_no_panic_goes_on_as_it_is(other: type[BaseException]) -> None:
    with pytest.raises(other), name_panics():
        raise other


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": {CUT_WITHIN_A_LETTER: 1}},
        {"items": {"minimum": {CUT_WITHIN_A_LETTER: 1}}},
        {"pattern": {CUT_WITHIN_A_LETTER: 1}},
    ],
)
def test_a_schema_over_which_the_library_panics_is_the_callers_mistake(
    schema: dict[str, object],
) -> None:
    rule = schema_rule(schema, "response_format")
    with pytest.raises(BadRequest, match="no answer can be kept to this schema") as caught:
        read(rule)
    assert caught.value.code == "invalid_schema"
