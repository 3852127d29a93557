"""The body of POST /v1/responses in; the same wishes as a chat request, and what to tell back."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict
from pydantic_core import PydanticCustomError

from gateway.errors import BadRequest
from gateway.schemas.edge import Edge
from gateway.schemas.ignored import unknown_in
from gateway.schemas.sampling_schema import SamplingFields
from gateway.schemas.schema import load_object, validate
from gateway.schemas.template_schema import TemplateFields
from gateway.schemas.unsupported import HARMLESS_FIELDS, refuse_unsupported

LOGPROBS = "message.output_text.logprobs"
# Nothing here keeps answers, runs tools of its own or judges what is said. Field name -> values
# that ask for nothing; `null` always does.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "access_programs": ({},),
    "background": (False,),
    "background_options": ({},),
    "context_management": ([],),
    "conversation": (),
    "image": ({"context_compression": "auto"}, {"context_compression": "disabled"}),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "truncation": ("disabled",),
}
_UNSUPPORTED_INSIDE: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "stream_options": {"include_obfuscation": (False,)},
    "reasoning": {
        "summary": ("auto",),  # there is none where the model makes none
        "generate_summary": ("auto",),
        "context": ("auto",),
        "mode": ("standard",),
    },
}
Include = Literal[
    "message.output_text.logprobs",
    # They ask for more of what is never there.
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class Reasoning(Edge):
    effort: str | None = None


class TextConfig(Edge):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


def _check_input(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise PydanticCustomError("invalid_type", "input should be a string or a list of items")
    if value == []:
        raise PydanticCustomError("invalid_value", "input should hold at least one item")
    return value


_Input = str | Annotated[list[dict[str, Any]], Field(min_length=1)]


class ResponseFields(Edge):
    """What is this route's own; messages, tools and sampling are read as in chat."""

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[Any, BeforeValidator(_check_input, json_schema_input_type=_Input)]
    instructions: str | None = None
    include: Annotated[tuple[Include, ...], Strict(False), Field(max_length=32)] = ()
    max_output_tokens: int | None = Field(None, ge=1)
    metadata: dict[str, Any] = Field(default_factory=dict)
    parallel_tool_calls: bool = True
    reasoning: Reasoning = Reasoning()
    stream: bool = False
    text: TextConfig = TextConfig()
    tool_choice: Any = "auto"
    tools: Annotated[tuple[Any, ...], Strict(False)] = ()
    top_logprobs: int | None = Field(None, ge=0, le=20)
    user: str | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether likelihoods are asked for, in either way."""
        return bool(self.top_logprobs) or LOGPROBS in self.include


_OWN = ResponseFields.model_fields.keys()
# Wishes that chat has and this route's reference may not; they mean the same here.
PASSED = frozenset(SamplingFields.model_fields | TemplateFields.model_fields) - {
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "n",
    "top_logprobs",
}
_KNOWN = _OWN | PASSED | HARMLESS_FIELDS | UNSUPPORTED.keys() | _UNSUPPORTED_INSIDE.keys()


def parse_response(body: bytes) -> tuple[ResponseFields, dict[str, Any], set[str]]:
    """Check a body; gives its fields, the wishes for chat, and names of fields nobody knows.

    Raises:
        BadRequest: see `gateway.schemas.schema.parse_request`.
        BodyTooLarge: the body has too many parts to be looked at.
    """
    given = {name: value for name, value in load_object(body).items() if value is not None}
    refuse_unsupported(given, UNSUPPORTED)
    for name, table in _UNSUPPORTED_INSIDE.items():
        if isinstance(given.get(name), dict):
            refuse_unsupported(given[name], table, f"{name}.")
    fields = validate(ResponseFields, {name: given[name] for name in _OWN & given.keys()})
    wishes = {name: given[name] for name in PASSED & given.keys()}
    return fields, wishes | _wishes(fields), _unknown(fields, given)


def _wishes(fields: ResponseFields) -> dict[str, Any]:
    """What this route names in a way of its own, as chat names it."""
    wishes: dict[str, Any] = {
        "model": fields.model,
        "max_completion_tokens": fields.max_output_tokens,
        "parallel_tool_calls": fields.parallel_tool_calls,
        "reasoning_effort": fields.reasoning.effort,
        "response_format": _format(fields.text.format),
        "tool_choice": _choice(fields.tool_choice),
        "tools": [_tool(tool) for tool in fields.tools],
        "verbosity": fields.text.verbosity,
    }
    if fields.wants_logprobs:
        wishes |= {"logprobs": True, "top_logprobs": fields.top_logprobs or 0}
    return wishes


def _format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Here a schema lies beside the type, in chat one level deeper."""
    if given is None or given.get("type") != "json_schema":
        return given
    if given.get("schema") is None:
        param = "text.format.schema"
        raise BadRequest(f"{param}: field required", param=param, code="missing_required_parameter")
    inner = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": inner}


def _tool(given: Any) -> Any:
    if not isinstance(given, dict) or given.get("type") != "function":
        return given
    inner = {name: value for name, value in given.items() if name != "type" and value is not None}
    return {"type": "function", "function": inner}


def _choice(given: Any) -> Any:
    if not isinstance(given, dict) or given.get("type") != "function":
        return given
    return {"type": "function", "function": {"name": given.get("name")}}


def _unknown(fields: ResponseFields, given: Mapping[str, Any]) -> set[str]:
    known_inside = {
        f"{name}.{inner}" for name, table in _UNSUPPORTED_INSIDE.items() for inner in table
    }
    inside = {*unknown_in(fields.reasoning, "reasoning"), *unknown_in(fields.text, "text")}
    return (given.keys() - _KNOWN) | (inside - known_inside)
