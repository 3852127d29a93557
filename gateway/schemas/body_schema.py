"""The bodies that routes take, as JSON schemas: from the classes and tables that check them."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from gateway.routes.tokenize import CountFields, TokenFields
from gateway.schemas import completions_schema, responses_schema
from gateway.schemas.completions_schema import CompletionFields, EchoWishes
from gateway.schemas.responses_schema import ResponseFields
from gateway.schemas.sampling_schema import SamplingFields
from gateway.schemas.schema import ChatRequest
from gateway.schemas.template_schema import TemplateFields
from gateway.schemas.unsupported import HARMLESS_FIELDS, REQUEST_FIELDS

Schema = dict[str, Any]

_PLACE = "#/components/schemas/{model}"
_CLASSES = (
    ChatRequest,
    CompletionFields,
    CountFields,
    EchoWishes,
    ResponseFields,
    SamplingFields,
    TemplateFields,
    TokenFields,
)
_NULL: Schema = {"type": "null"}


class _WithoutTitles(GenerateJsonSchema):
    """Titles would only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schemas_of(classes: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """The schemas of these classes and of all that are in them, by name."""
    pairs = [(each, "validation") for each in classes]
    _, made = models_json_schema(
        pairs,  # type: ignore[arg-type]  # the mode is a literal, which a list forgets
        ref_template=_PLACE,
        schema_generator=_WithoutTitles,
    )
    found: dict[str, Schema] = made["$defs"]
    for schema in found.values():
        schema.pop("title", None)
    return found


def request_bodies(model: str) -> dict[str, Schema]:
    """The schemas of all bodies by name, and of what is in them; `model` is the one served."""
    found = schemas_of(_CLASSES)
    own = {each: found.pop(each.__name__)["properties"] for each in _CLASSES}
    chat = own[ChatRequest] | _refused(REQUEST_FIELDS)
    texts = {name: own[EchoWishes][name] for name in completions_schema.WISHES}
    texts |= {name: own[CompletionFields][name] for name in completions_schema.OWN - {"n"}}
    passed = own[SamplingFields] | own[TemplateFields]
    items = {name: passed[name] for name in responses_schema.PASSED} | own[ResponseFields]
    bodies = {
        "ChatBody": _body(chat, model, ("model", "messages")),
        "CompletionBody": _body(
            _refused(completions_schema.UNSUPPORTED) | texts, model, ("model", "prompt")
        ),
        "ResponseInput": _body(
            items | _refused(responses_schema.UNSUPPORTED), model, ("model", "input")
        ),
        "CountBody": _body(chat | own[CountFields], model, ()) | _either("messages", "prompt"),
        "SpellBody": _body(own[TokenFields], model, ("tokens",)),
    }
    return found | bodies


def _body(fields: Mapping[str, Schema], model: str, required: tuple[str, ...]) -> Schema:
    """Fields that nobody knows are taken, and named in a header of the answer."""
    known: dict[str, Schema] = {name: {} for name in HARMLESS_FIELDS - fields.keys()}
    known |= {**fields, "model": {"type": "string", "enum": [model]}}
    properties = {
        name: known[name] if name in required else _or_null(known[name]) for name in sorted(known)
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": True,
    }


def _or_null(schema: Schema) -> Schema:
    """Outermost fields that are null are taken as absent."""
    rest = {name: value for name, value in schema.items() if name != "default"}
    is_free = not rest or _NULL in rest.get("anyOf", ()) or None in rest.get("enum", ())
    taken = rest if is_free else {"anyOf": [rest, _NULL]}
    default = schema.get("default")
    return taken if default is None else taken | {"default": default}


def _refused(table: Mapping[str, tuple[Any, ...]]) -> dict[str, Schema]:
    """Fields of which nothing is honoured: the values that ask for nothing."""
    return {name: {"enum": [None, *nothing]} for name, nothing in table.items()}


def _either(*names: str) -> Schema:
    """One of these is there and not null, the others are not."""
    given = [{"required": [name], "properties": {name: {"not": _NULL}}} for name in names]
    return {"oneOf": given}
