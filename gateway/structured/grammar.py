"""What a request wants of an answer's form in, a grammar for the engine out."""

import json
from dataclasses import dataclass

from gateway.prompts.checkpoint import Checkpoint
from gateway.prompts.tool_use import ToolUse
from gateway.schemas.format_schema import ResponseFormat
from gateway.schemas.schema import ChatRequest
from gateway.structured.call_grammar import call_rules, marker_token
from gateway.structured.json_grammar import OPTIONS, SchemaRule, schema_rule


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules, of which `answer` is what is said behind the thought, if there is one."""

    rules: str
    schemas: tuple[SchemaRule, ...]  # of the caller's
    holds_thought: bool = False  # `answer` is all of it

    def text(self, checkpoint: Checkpoint, in_thought: bool) -> str:
        """The whole, for an answer that begins within a thought or does not."""
        form = checkpoint.answer_form
        if self.holds_thought or not form.thinks:
            return f"{OPTIONS}start: answer\n{self.rules}"
        begin, end = (
            (text, checkpoint.speller.find(text)) for text in (form.thought_begin, form.thought_end)
        )
        opening = json.dumps(begin[0]) if begin[1] is None else f"<[{begin[1]}]>"
        lines = '"\\n"{0,2}' if form.thought_in_lines else ""
        start = f"thought {lines} answer" if in_thought else f"({opening} thought {lines})? answer"
        thought = f"thought: /(?s:.*)/ <[{end[1]}]>"
        if end[1] is None:
            thought = f"thought[suffix={json.dumps(end[0])}]: /(?s:.*)/"
        return f"{OPTIONS}start: {start}\n{thought}\n{self.rules}"


def make_grammar(request: ChatRequest, tool_use: ToolUse, checkpoint: Checkpoint) -> Grammar | None:
    """The grammar of a request's answers; none if they may be anything.

    Raises:
        BadRequest: a schema is too large, or too deep.
    """
    said = _said(request.response_format)
    is_strict = any(tool.function.strict for tool in request.tools)
    if not tool_use.may_call or not (said or is_strict or tool_use.choice == "required"):
        return None if said is None else Grammar(f"answer: {said.text}\n", (said,))
    form, speller = checkpoint.answer_form, checkpoint.speller
    calls = call_rules(request.tools, tool_use.named, tool_use.parallel, form, speller)
    if tool_use.choice == "required":
        return Grammar(f"answer: calls\n{calls.text}", calls.schemas)
    if said is not None:
        rules = f"answer: {said.text} | calls\n{calls.text}"
        return Grammar(rules, (said, *calls.schemas))
    begin = None if form.call_syntax is None else marker_token(form.call_syntax, speller)
    if begin is None:
        return None  # nothing tells a call's beginning from words
    rules = f"answer: other* (calls other*)*\nother: <[^{begin}]>\n{calls.text}"
    return Grammar(rules, calls.schemas, holds_thought=True)


def make_raw_grammar(form: ResponseFormat) -> Grammar | None:
    """The grammar of what goes on with a raw prompt: all of it has the form, with no thought first.

    Raises:
        BadRequest: the schema is too large, or too deep.
    """
    said = _said(form)
    return None if said is None else Grammar(f"answer: {said.text}\n", (said,), holds_thought=True)


def _said(form: ResponseFormat) -> SchemaRule | None:
    """What the words of an answer follow; none if they are free."""
    if form.type == "text":
        return None
    if form.json_schema is None or form.json_schema.body is None:
        return schema_rule({"type": "object"}, "response_format")
    param = "response_format.json_schema.schema"
    is_strict = form.json_schema.strict is not False
    return schema_rule(form.json_schema.body, param, is_strict=is_strict)
