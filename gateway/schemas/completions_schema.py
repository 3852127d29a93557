"""The body of POST /v1/completions in, checked fields out."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Discriminator, FailFast, Field, Strict, Tag, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from gateway.prompts.raw import TokenIds
from gateway.schemas.edge import Edge
from gateway.schemas.format_schema import ResponseFormat
from gateway.schemas.ignored import unknown_in
from gateway.schemas.sampling_schema import MAX_TOP_LOGPROBS, SamplingFields
from gateway.schemas.schema import StreamOptions, load_object, validate
from gateway.schemas.unsupported import (
    HARMLESS_FIELDS,
    REQUEST_FIELDS,
    STREAM_FIELDS,
    refuse_unsupported,
)

MAX_PROMPTS = 64
MAX_ANSWERS = 128  # prompts times choices
_DEFAULT_MAX_TOKENS = 16  # OpenAI's for this route

_Several = TypeAliasType(
    "_Several",
    Annotated[
        tuple[
            Annotated[
                Annotated[str, Tag("<text>")] | Annotated[TokenIds, Tag("<tokens>")],
                Discriminator(lambda value: "<text>" if isinstance(value, str) else "<tokens>"),
            ],
            ...,
        ],
        Strict(False),
        FailFast(),
        Field(min_length=1, max_length=MAX_PROMPTS),
    ],
)


def _form_of(value: Any) -> str:
    if isinstance(value, list):
        return "<tokens>" if value and isinstance(value[0], int) else "<several>"
    return "<text>"


class CompletionFields(Edge):
    """What is this route's own; how tokens are chosen is read as in chat."""

    model: Annotated[str, Field(min_length=1)]
    prompt: Annotated[
        Annotated[str, Tag("<text>")]
        | Annotated[TokenIds, Tag("<tokens>")]
        | Annotated[_Several, Tag("<several>")],
        Discriminator(_form_of),
    ]
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    n: int = 1  # its range is held to with the other wishes
    best_of: int | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    response_format: ResponseFormat = ResponseFormat(type="text")
    add_special_tokens: bool = True  # those that the tokenizer sets around a text

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.best_of is not None and self.best_of != self.n:
            raise _refusal("unsupported_value", "it should be as n, or left out", "best_of")
        if len(self.prompts) * self.n > MAX_ANSWERS:
            message = f"prompts times n should be at most {MAX_ANSWERS}"
            raise _refusal("invalid_value", message, "prompt")
        return self

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Each prompt, as text or as token ids."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        if isinstance(self.prompt[0], int):
            return (self.prompt,)
        return self.prompt


class EchoWishes(SamplingFields):
    """Who wants the prompt back may want nothing more."""

    max_tokens: int | None = Field(None, ge=0)


def _refusal(kind: Any, message: Any, field: str) -> PydanticCustomError:
    return PydanticCustomError(kind, message, {"field": field})


WISHES = SamplingFields.model_fields.keys() - {
    "logprobs",
    "top_logprobs",
    "max_completion_tokens",
}
OWN = CompletionFields.model_fields.keys()
_KNOWN = WISHES | OWN | HARMLESS_FIELDS
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **{name: off for name, off in REQUEST_FIELDS.items() if name not in OWN},
    # Honoured in chat, where a template is known.
    "messages": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}


def parse_completion(body: bytes) -> tuple[CompletionFields, SamplingFields, tuple[str, ...]]:
    """Check a body; gives its fields, its wishes, and the names of fields that nobody knows.

    Raises:
        BadRequest: see `gateway.schemas.schema.parse_request`.
        BodyTooLarge: the body has too many parts to be looked at.
    """
    given = {name: value for name, value in load_object(body).items() if value is not None}
    refuse_unsupported(given, UNSUPPORTED)
    options = given.get("stream_options")
    if isinstance(options, dict):
        refuse_unsupported(options, STREAM_FIELDS, "stream_options.")
    fields = validate(CompletionFields, {name: given[name] for name in OWN & given.keys()})
    wishes: dict[str, Any] = {"max_tokens": _DEFAULT_MAX_TOKENS}
    wishes |= {name: given[name] for name in WISHES & given.keys()}
    if fields.logprobs is not None:
        wishes |= {"logprobs": True, "top_logprobs": fields.logprobs}
    unknown = {
        *given.keys() - _KNOWN - UNSUPPORTED.keys(),
        *unknown_in(fields.stream_options, "stream_options"),
        *unknown_in(fields.response_format, "response_format"),
    }
    unknown -= {f"stream_options.{name}" for name in STREAM_FIELDS}
    kind = EchoWishes if fields.echo else SamplingFields
    return fields, validate(kind, wishes), tuple(sorted(unknown))
