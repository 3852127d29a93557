"""Grammars of answers and calls: any way through one is read back as what was asked for."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.answers.text_stream import TextStream
from gateway.errors import BadRequest
from gateway.prompts.checkpoint import Checkpoint, load_checkpoint
from gateway.prompts.tiktoken_vocabulary import read_vocabulary
from gateway.prompts.tool_use import NO_TOOLS, ToolUse
from gateway.schemas.format_schema import ResponseFormat
from gateway.schemas.schema import parse_request
from gateway.structured.call_grammar import MAX_CALLS_CHARACTERS
from gateway.structured.grammar import Grammar, make_grammar, make_raw_grammar
from gateway.structured.json_grammar import MAX_SCHEMA_BYTES
from tests.gateway.structured.reading import read
from tests.schemas import AGE, SCHEMAS, WORD, Schema, record
from tests.vocabularies import trained_ranks, write_vocabulary
from tests.walks import vocabulary_of, walk
from workers.families.answers import (
    AnswerForm,
    CallArguments,
    CallBegun,
    Functions,
    Thoughts,
    Words,
)
from workers.families.kimi_k25 import answers as kimi
from workers.families.kimi_k25 import markers
from workers.families.qwen_vl import answers as qwen
from workers.language.grammar import Grammars

QWEN_TEMPLATE = "<tool_call>"
XML_TEMPLATE = "<tool_call>\n<function=f>"
KIMI_TEMPLATE = markers.CALLS_BEGIN
SUM = record(a=AGE, b=AGE)
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": SUM, "strict": True}},
    {"type": "function", "function": {"name": "greet", "parameters": record(name=WORD)}},
    {"type": "function", "function": {"name": "now"}},
]
NOTHING: Schema = {"type": "object", "maxProperties": 0}
PARAMETERS: dict[str, Schema] = {"add": SUM, "greet": record(name=WORD), "now": NOTHING}


def with_tokens(tokenizer: Tokenizer, tokens: list[str]) -> Tokenizer:
    tokenizer.add_tokens(tokens)
    return tokenizer


def spelt_qwen(_: Path) -> tuple[Tokenizer, AnswerForm]:
    """Markers are text like any other."""
    return load_checkpoint(DEMO_MODEL).tokenizer, qwen.read_answer_form(QWEN_TEMPLATE)


def token_qwen(_: Path) -> tuple[Tokenizer, AnswerForm]:
    tokens = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    return with_tokens(spelt_qwen(_)[0], tokens), qwen.read_answer_form(QWEN_TEMPLATE)


def spelt_xml(_: Path) -> tuple[Tokenizer, AnswerForm]:
    return spelt_qwen(_)[0], qwen.read_answer_form(XML_TEMPLATE)


def token_xml(_: Path) -> tuple[Tokenizer, AnswerForm]:
    return token_qwen(_)[0], qwen.read_answer_form(XML_TEMPLATE)


def token_kimi(folder: Path) -> tuple[Tokenizer, AnswerForm]:
    write_vocabulary(folder, trained_ranks(600))
    return read_vocabulary(folder), kimi.read_answer_form(KIMI_TEMPLATE)


Make = Callable[[Path], tuple[Tokenizer, AnswerForm]]


class Subject:
    """A checkpoint of one kind of vocabulary and calls, and an engine's grammars for it."""

    def __init__(self, make: Make, folder: Path) -> None:
        tokenizer, form = make(folder)
        self.checkpoint: Checkpoint = replace(
            load_checkpoint(DEMO_MODEL),
            tokenizer=tokenizer,
            speller=Speller(tokenizer),
            answer_form=form,
        )
        vocabulary = vocabulary_of(tokenizer)
        self.grammars = Grammars(vocabulary, len(vocabulary.spellings))

    def thinking(self) -> "Subject":
        """The same, of a model that thinks."""
        other = object.__new__(Subject)
        other.grammars = self.grammars
        form = replace(self.checkpoint.answer_form, thinks=True)
        other.checkpoint = replace(self.checkpoint, answer_form=form)
        return other

    def grammar(self, **fields: Any) -> Grammar | None:
        request = parse_request(
            json.dumps(
                {"model": "m", "messages": [{"role": "user", "content": "x"}]} | fields
            ).encode()
        )
        choice = fields.get("tool_choice", "auto")
        named = choice["function"]["name"] if isinstance(choice, dict) else None
        use = ToolUse(
            tools=tuple(fields.get("tools", ())),
            choice="required" if named else choice,
            named=named,
            parallel=fields.get("parallel_tool_calls", True),
        )
        used = use if request.tools and choice != "none" else NO_TOOLS
        return make_grammar(request, used, self.checkpoint)

    def answers(
        self,
        in_thought: bool = False,
        seeds: int = 4,
        functions: Functions = PARAMETERS,
        **fields: Any,
    ) -> list["Heard"]:
        """What random answers are read as."""
        grammar = self.grammar(**fields)
        assert grammar is not None
        read(*grammar.schemas)
        text = grammar.text(self.checkpoint, in_thought)
        return [
            self.hear(
                walk(self.grammars, text, seed, self.marker_tokens()),
                in_thought,
                functions if "tools" in fields else None,
            )
            for seed in range(seeds)
        ]

    def marker_tokens(self) -> set[int]:
        form = self.checkpoint.answer_form
        markers = {form.thought_begin, form.thought_end, *form.call_markers}
        found = {self.checkpoint.speller.find(marker) for marker in markers}
        return {token_id for token_id in found if token_id is not None}

    def hear(self, token_ids: list[int], in_thought: bool, functions: Functions | None) -> "Heard":
        stream = TextStream(self.checkpoint.speller, ())
        stream.read_as(self.checkpoint.answer_form, in_thought, functions)
        return Heard([*stream.push(token_ids), *stream.finish()])


class Heard:
    """One answer."""

    def __init__(self, events: list[Any]) -> None:
        self.words = "".join(each.text for each in events if isinstance(each, Words))
        self.thoughts = "".join(each.text for each in events if isinstance(each, Thoughts))
        self.calls: list[tuple[str, str]] = []
        for each in events:
            if isinstance(each, CallBegun):
                self.calls.append((each.name, ""))
            elif isinstance(each, CallArguments):
                name, arguments = self.calls.pop()
                self.calls.append((name, arguments + each.text))

    def check_calls(self) -> None:
        for name, arguments in self.calls:
            jsonschema.validate(json.loads(arguments), PARAMETERS[name])


@pytest.fixture(scope="module", params=[spelt_qwen, token_qwen, spelt_xml, token_xml, token_kimi])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module", params=[token_qwen, token_xml, token_kimi])
def token_subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("vocabulary"))


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def form_of(schema: Schema | None, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema} | fields}


def test_free_answers_follow_no_grammar(subject: Subject) -> None:
    assert subject.grammar() is None
    assert subject.grammar(response_format={"type": "text"}) is None
    assert subject.grammar(tools=TOOLS[1:]) is None
    assert subject.grammar(tools=TOOLS, tool_choice="none") is None


def test_required_calls_are_calls_of_the_tools_and_nothing_else(subject: Subject) -> None:
    heard = subject.answers(tools=TOOLS, tool_choice="required", seeds=8)
    assert not any(each.words for each in heard)
    assert all(each.calls for each in heard)
    assert {len(each.calls) for each in heard} > {1}
    for each in heard:
        each.check_calls()


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_named_function_is_the_only_one_that_is_called(subject: Subject, name: str) -> None:
    for each in subject.answers(tools=TOOLS, tool_choice=named(name)):
        assert {called for called, _ in each.calls} == {name}
        each.check_calls()


def test_without_parallel_calls_there_is_exactly_one(subject: Subject) -> None:
    heard = subject.answers(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seeds=8)
    assert [len(each.calls) for each in heard] == [1] * 8


def test_json_or_calls_where_both_may_come(subject: Subject) -> None:
    heard = subject.answers(tools=TOOLS, response_format=form_of(SCHEMAS["record"]), seeds=12)
    for each in heard:
        assert bool(each.words) != bool(each.calls)
        each.check_calls()
        if each.words:
            jsonschema.validate(json.loads(each.words), SCHEMAS["record"])
    assert {bool(each.words) for each in heard} == {True, False}


def test_a_thought_that_the_prompt_opens_ends_before_the_form_begins(
    token_subject: Subject,
) -> None:
    thinking = token_subject.thinking()
    for each in thinking.answers(in_thought=True, response_format=form_of(SCHEMAS["nested"])):
        jsonschema.validate(json.loads(each.words), SCHEMAS["nested"])


def test_a_model_that_thinks_may_think_first(token_subject: Subject) -> None:
    thinking = token_subject.thinking()
    speller, form = thinking.checkpoint.speller, thinking.checkpoint.answer_form
    grammar = thinking.grammar(response_format=form_of({"const": 1}))
    assert grammar is not None
    text = grammar.text(thinking.checkpoint, in_thought=False)
    begin, end = speller.find(form.thought_begin), speller.find(form.thought_end)
    assert f"<[{begin}]>" in text
    assert f"<[{end}]>" in text
    heard = thinking.answers(response_format=form_of({"const": 1}), seeds=20)
    assert {each.words for each in heard} == {"1"}
    assert {bool(each.thoughts) for each in heard} == {True, False}


def test_what_goes_on_with_a_raw_prompt_has_no_thought_before_its_form(
    token_subject: Subject,
) -> None:
    thinking = token_subject.thinking()
    grammar = make_raw_grammar(ResponseFormat.model_validate(form_of({"const": 1})))
    assert grammar is not None
    text = grammar.text(thinking.checkpoint, in_thought=False)
    said = {
        tuple(walk(thinking.grammars, text, seed, thinking.marker_tokens())) for seed in range(8)
    }
    assert {thinking.checkpoint.tokenizer.decode(ids) for ids in said} == {"1"}
    assert make_raw_grammar(ResponseFormat(type="text")) is None


def test_a_strict_function_that_may_be_called_is_kept_to_its_schema(
    token_subject: Subject,
) -> None:
    heard = token_subject.answers(tools=TOOLS, seeds=60)
    assert any(each.words for each in heard)
    assert any(each.calls for each in heard)
    for each in heard:
        each.check_calls()


def test_strictness_asks_for_nothing_where_calls_begin_with_no_token(tmp_path: Path) -> None:
    assert Subject(spelt_qwen, tmp_path).grammar(tools=TOOLS) is None


def test_what_the_library_does_not_know_is_left_out_unless_it_is_strict(subject: Subject) -> None:
    odd = record(a=AGE | {"not": {"const": 3}})
    tool = {"type": "function", "function": {"name": "f", "parameters": odd}}
    strict = {"type": "function", "function": tool["function"] | {"strict": True}}  # type: ignore[operator]
    for fields, param in (
        ({"tools": [tool], "tool_choice": "required"}, None),
        ({"response_format": form_of(odd, strict=False)}, None),
        ({"tools": [TOOLS[0], strict], "tool_choice": "required"}, "tools[1].function.parameters"),
        ({"response_format": form_of(odd)}, "response_format.json_schema.schema"),
        ({"response_format": form_of(odd, strict=True)}, "response_format.json_schema.schema"),
    ):
        grammar = subject.grammar(**fields)
        assert grammar is not None
        if param is None:
            read(*grammar.schemas)
            continue
        with pytest.raises(BadRequest) as caught:
            read(*grammar.schemas)
        assert caught.value.param == param
        assert '"not"' in caught.value.message


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "colour"}, "colour"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "(a"}, "unclosed group"),
        ({"type": "string", "format": "colour"}, "colour"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"properties": [1]}, "properties"),
    ],
)
def test_a_schema_that_the_library_cannot_take_is_refused_with_its_reason(
    subject: Subject, schema: Schema, word: str
) -> None:
    grammar = subject.grammar(response_format=form_of(schema))
    assert grammar is not None
    with pytest.raises(BadRequest, match=word) as caught:
        read(*grammar.schemas)
    assert caught.value.param == "response_format.json_schema.schema"
    assert caught.value.code == "invalid_schema"
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500


def test_a_schema_that_is_too_large_or_too_deep_is_refused(subject: Subject) -> None:
    deep: Schema = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadRequest, match=str(MAX_SCHEMA_BYTES)):
        subject.grammar(response_format=form_of({"const": "x" * MAX_SCHEMA_BYTES}))
    grammar = subject.grammar(response_format=form_of(deep))
    assert grammar is not None
    with pytest.raises(BadRequest, match="recursion limit"):
        read(*grammar.schemas)
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadRequest, match="too deep"):
        subject.grammar(response_format=form_of(deep))
    big = record(a={"const": "x" * (MAX_CALLS_CHARACTERS // 3)})
    tools = [
        {"type": "function", "function": {"name": f"f{index}", "parameters": big}}
        for index in range(4)
    ]
    with pytest.raises(BadRequest, match=str(MAX_CALLS_CHARACTERS)) as caught:
        subject.grammar(tools=tools, tool_choice="required")
    assert caught.value.param == "tools"


def test_a_callers_options_for_the_library_are_dropped(subject: Subject) -> None:
    schema = record(a=AGE | {"not": {"const": 3}}) | {"x-guidance": {"lenient": True}}
    grammar = subject.grammar(response_format=form_of(schema))
    assert grammar is not None
    with pytest.raises(BadRequest):
        read(*grammar.schemas)


def test_any_object_is_the_form_where_no_schema_is_given(subject: Subject) -> None:
    rules = {
        subject.grammar(response_format=given).rules  # type: ignore[union-attr]
        for given in (
            {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "it"}},
            {"type": "json_schema", "json_schema": {"name": "it", "schema": None}},
        )
    }
    assert len(rules) == 1
    assert '"type":"object"' in rules.pop()
