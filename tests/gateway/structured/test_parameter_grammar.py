"""Arguments that are written one by one: any way through their rules fits the schema."""

import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.errors import BadRequest
from tests.gateway.structured.reading import read
from tests.gateway.structured.test_grammar import Subject, named, spelt_xml, token_xml
from tests.schemas import AGE, COLOUR, POINT, SCHEMAS, WORD, Schema, listed, record
from tests.walks import ids_of, settled

# Texts of a form are not kept to; a reference is looked up in the whole.
UNFIT = {"pattern", "date", "address", "reference"}
FITTING: dict[str, Schema] = {
    **{name: record(it=SCHEMAS[name]) for name in sorted(SCHEMAS.keys() - UNFIT)},
    "optional": record(required=False, a=AGE, b=WORD, c=COLOUR),
    "mixed": record(a=AGE) | {"properties": {"a": AGE, "b": listed(POINT, 1, 2)}},
    "nullable": record(a={"anyOf": [WORD, {"type": "null"}]}, b={"type": ["integer", "null"]}),
    "others": {"type": "object", "additionalProperties": AGE},
    "referred": {
        "$ref": "#/$defs/all",
        "$defs": {"all": record(a={"$ref": "#/$defs/age"}, b={"$ref": "#/$defs/list"}),
                  "age": AGE, "list": listed({"$ref": "#/$defs/age"}, 1, 2)},
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=[spelt_xml, token_xml])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("vocabulary"))


def tool(schema: Schema, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": schema} | fields}


def refused(subject: Subject, schema: Schema, strict: bool = True) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        rules(subject, schema, strict)
    return caught.value


def rules(subject: Subject, schema: Schema, strict: bool = False) -> str:
    grammar = subject.grammar(tools=[tool(schema, strict=strict)], tool_choice="required")
    assert grammar is not None
    read(*grammar.schemas)
    return grammar.text(subject.checkpoint, in_thought=False)


@pytest.mark.parametrize("name", FITTING)
def test_arguments_fit_the_schema_whatever_is_chosen(subject: Subject, name: str) -> None:
    schema = FITTING[name]
    heard = subject.answers(
        tools=[tool(schema)], tool_choice=named("f"), functions={"f": schema}, seeds=3
    )
    for _, arguments in itertools.chain.from_iterable(each.calls for each in heard):
        jsonschema.validate(json.loads(arguments), schema)


BEGUN = "<tool_call>\n<function=f>\n"


def takes(subject: Subject, text: str, answer: str) -> bool:
    """Whether an answer may begin so."""
    follower = subject.grammars.begin(text)
    for token_id in subject.checkpoint.tokenizer.encode(answer, add_special_tokens=False).ids:
        if token_id not in ids_of(settled(subject.grammars, follower)):
            return False
        follower.advance(token_id)
    return True


def test_no_text_that_may_be_chosen_is_read_as_structure(subject: Subject) -> None:
    text = rules(subject, record(a={"type": "string"}, b=AGE))
    begun = f"{BEGUN}<parameter=a>\nx"
    for inside in (" </parameter>", "\n<parameter=b", "<tool_call>", "</tool_call>"):
        assert not takes(subject, text, begun + inside)
    for inside in (" <b> </function>\n</param>", "\n</parameter>\n<parameter=b>\n12", " {}\n\n\n"):
        assert takes(subject, text, begun + inside)


def test_parameters_without_a_schema_are_texts(subject: Subject) -> None:
    parameter = "<parameter=b>\n{1}\n</parameter>\n"
    free, named = {"type": "object"}, {"type": "object", "required": ["b"]}
    closed, open_to = record(), record(required=False, b={"type": "string"})
    end = "</function>\n</tool_call>"
    for schema, can_come, can_lack in (
        (free, True, True), (named, True, False), (closed, False, True), (open_to, True, True),
    ):  # fmt: skip
        text = rules(subject, schema)
        assert takes(subject, text, BEGUN + parameter + end) == can_come
        assert takes(subject, text, BEGUN + end) == can_lack


UNKEPT: list[tuple[Schema, str]] = [
    (record(a={"type": "string", "pattern": "^a$"}), "pattern"),
    (record(a={"type": "string", "format": "date"}), "format"),
    (record(a={"anyOf": [AGE], "minimum": 3}), "minimum"),
    (record(a={"enum": [1], "minimum": 3}), "minimum"),
    (record(a=AGE) | {"minProperties": 1}, "minProperties"),
    (record(a={"type": "string", "maxLength": 100_000}), "1024"),
]


@pytest.mark.parametrize(("schema", "word"), UNKEPT)
def test_what_cannot_be_kept_to_is_refused_if_it_has_to_be(
    subject: Subject, schema: Schema, word: str
) -> None:
    error = refused(subject, schema)
    assert (error.param, error.code) == ("tools[0].function.parameters", "invalid_schema")
    assert word in error.message
    assert takes(subject, rules(subject, schema), f"{BEGUN}<parameter=a>\n")


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"properties": [1]}, "properties"),
        ({"required": {"a": 1}}, "required"),
        ({"properties": {"a>b": AGE}}, "a>b"),
        ({"properties": {"": AGE}}, "called"),
        (record(a=AGE | {"type": "colour"}), "colour"),
    ],
)
def test_what_is_no_set_of_parameters_is_always_refused(
    subject: Subject, schema: Schema, word: str
) -> None:
    for strict in (True, False):
        assert word in refused(subject, schema, strict).message


def test_choices_that_refer_to_themselves_come_to_an_end(subject: Subject) -> None:
    choices = {"anyOf": [{"$ref": "#/$defs/c"}] * 20}
    assert "4096" in refused(subject, record(a=choices) | {"$defs": {"c": choices}}, False).message


def test_strict_arguments_are_kept_to_under_auto(tmp_path: Path) -> None:
    subject = Subject(token_xml, tmp_path)
    schema = record(count=AGE, note=WORD)
    heard = subject.answers(tools=[tool(schema, strict=True)], functions={"f": schema}, seeds=30)
    called = [arguments for each in heard for _, arguments in each.calls]
    assert called
    for arguments in called:
        jsonschema.validate(json.loads(arguments), schema)
