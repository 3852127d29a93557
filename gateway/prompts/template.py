"""A checkpoint's chat template: its source in, a sandboxed renderer out; messages in, text out.

A template is a program that somebody else wrote, so it runs in jinja2's immutable sandbox, with
the same options, extensions, globals and filters that transformers gives it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.errors import BadRequest
from gateway.prompts.tool_declaration import declare, sort_keys
from workers.families import UnsupportedCheckpoint

MAX_REASON_CHARACTERS = 100  # it may repeat what the caller wrote
DECLARATION = "tools_ts_str"  # tools in the form of `gateway.prompts.tool_declaration`
# What a template is given, and what transformers takes for itself beside a template.
RESERVED = frozenset(
    (
        "messages",
        "tools",
        DECLARATION,
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "tokenize",
    )
)
# What an expression over strings, lists and dictionaries can raise inside a template.
FAULTS = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class TemplateRefusal(TemplateError):
    """The template called `raise_exception`: the caller's messages are not what it takes."""


class GenerationTag(Extension):
    """`{% generation %}` marks an assistant's words for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - the name and type are jinja2's

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to `{% endgeneration %}`; what the body sets stays inside it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled template, with the tokens that it may name (for example `eos_token`)."""

    template: Template
    special_tokens: Mapping[str, str]
    takes_tools: bool  # whether it says anything of them
    takes_declaration: bool  # whether it has a place for `DECLARATION`

    def refuse_reserved(self, variables: Iterable[str]) -> None:
        """Raise `BadRequest` for a caller's variable that would take the place of ours."""
        globals_ = self.template.globals
        for name in variables:
            if name in RESERVED or name in self.special_tokens or name in globals_:
                param = f"chat_template_kwargs.{name}"
                raise BadRequest(f"{param}: it cannot be set here", param=param)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        opens_answer: bool = True,
    ) -> str:
        """The prompt of a conversation, up to where the assistant's answer begins.

        Args:
            messages: the conversation, as templates know it.
            tools: functions that the model may call, if any; shown as TypeScript where the
                template has a place for that and the form has words for all of them.
            variables: more for the template, of names that `refuse_reserved` let pass.
            opens_answer: whether the template opens the answer.

        Raises:
            BadRequest: the template refuses the messages, or cannot render them.
        """
        declared: dict[str, str] = {}
        if tools and self.takes_declaration:
            tools = sort_keys(tools)
            declaration = declare(tools)
            declared = {} if declaration is None else {DECLARATION: declaration}
        try:
            return self.template.render(
                messages=messages,
                tools=tools,
                **declared,
                documents=None,
                add_generation_prompt=opens_answer,
                **self.special_tokens,
                **(variables or {}),
            )
        except TemplateRefusal as error:
            reason = (error.message or "").strip()[:MAX_REASON_CHARACTERS]
            raise BadRequest(
                f"the model's chat template refuses the messages: {reason}", param="messages"
            ) from error
        except FAULTS as error:
            raise BadRequest(
                f"the model's chat template cannot render the messages ({type(error).__name__})",
                param="messages",
            ) from error


def compile_template(source: str, special_tokens: Mapping[str, str]) -> ChatTemplate:
    """Compile the source of a chat template.

    Raises:
        UnsupportedCheckpoint: it is no valid template.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _format_now
    try:
        asked_for = meta.find_undeclared_variables(environment.parse(source))
        template = environment.from_string(source)
    except TemplateError as error:
        raise UnsupportedCheckpoint(f"the chat template does not compile: {error}") from error
    return ChatTemplate(
        template,
        dict(special_tokens),
        takes_tools=bool(asked_for & {"tools", DECLARATION}),
        takes_declaration=DECLARATION in asked_for,
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)


def _format_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it stands: jinja2's own filter escapes what HTML would take for markup."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
