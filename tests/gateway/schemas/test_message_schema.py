"""Messages and tools of every form; each wrong one is a `BadRequest` with the path of its field."""

from typing import Any

import pytest

from gateway.schemas.schema import parse_request
from tests.gateway.schemas.test_schema import PART, TEXT, body, content, refused

FUNCTION = {"name": "look", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def tool(**fields: Any) -> bytes:
    return body(tools=[{"type": "function", "function": FUNCTION | fields}])


def assistant(**fields: Any) -> bytes:
    return body(messages=[{"role": "assistant"} | fields])


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("content", ["x", None, [], [TEXT], [{"type": "refusal", "refusal": "no"}]])
def test_an_assistant_may_have_said_nothing(content: Any) -> None:
    calls: list[dict[str, Any]] = [{}, *({"tool_calls": each} for each in ([CALL], None, []))]
    for more in calls:
        message = parse_request(assistant(content=content, **more)).messages[0]
        assert len(message.parts) == 1
        assert message.is_plain == (content in ("x", None, []))
    assert (
        parse_request(assistant()).messages[0].parts
        == parse_request(assistant(content="")).messages[0].parts
    )


def test_a_message_comes_back_as_the_official_client_got_it() -> None:
    got = {
        "role": "assistant", "content": None, "refusal": None, "annotations": [], "audio": None,
        "function_call": None, "tool_calls": [CALL | {"index": 0}], "reasoning_content": "Hm.",
    }  # fmt: skip
    message = parse_request(body(messages=[got])).messages[0]
    assert message.reasoning_content == "Hm."
    assert [call.function.name for call in message.tool_calls] == ["look"]
    refused_once = parse_request(assistant(content=None, refusal="No.")).messages[0]
    assert [part.model_dump() for part in refused_once.parts] == [
        {"type": "refusal", "refusal": "No."}
    ]


def test_tools_are_kept_as_they_came() -> None:
    own = {"type": "function", "function": {"parameters": nested(28), "name": "a-b_C9"}, "more": 1}
    request = parse_request(body(tools=[own, TOOL], parallel_tool_calls=False))
    assert [each.given for each in request.tools] == [own, TOOL]
    assert list(request.tools[0].given["function"]) == ["parameters", "name"]
    assert request.parallel_tool_calls is False


@pytest.mark.parametrize("fields", [{"tools": [], "tool_choice": None}, {"tools": None}, {}])
def test_no_tools_may_be_said_in_any_way(fields: dict[str, Any]) -> None:
    request = parse_request(body(**fields))
    assert (request.tools, request.tool_choice) == ((), "auto")


# (body, param, code)
WRONG: list[tuple[bytes, str, str]] = [
    (body(messages=[{"role": "function", "name": "f", "content": "x"}]), "messages[0].role",
     "unsupported_value"),
    (body(messages=[{"role": "tool", "content": "x"}]), "messages[0].tool_call_id",
     "missing_required_parameter"),
    (body(messages=[{"role": "tool", "content": "x", "tool_call_id": ""}]),
     "messages[0].tool_call_id", "invalid_value"),
    (body(messages=[{"role": "tool", "tool_call_id": "x"}]), "messages[0].content",
     "missing_required_parameter"),
    (body(messages=[{"role": "tool", "tool_call_id": "x", "content": None}]),
     "messages[0].content", "invalid_type"),
    (body(messages=[{"role": "user", "content": "x", "tool_call_id": "x"}]),
     "messages[0].tool_call_id", "invalid_value"),
    (body(messages=[{"role": "user", "content": "x", "tool_calls": [CALL]}]),
     "messages[0].tool_calls", "invalid_value"),
    (body(messages=[{"role": "system", "content": "x", "reasoning_content": "x"}]),
     "messages[0].reasoning_content", "invalid_value"),
    (content([TEXT, {"type": "refusal", "refusal": "x"}]), "messages[0].content[1].type",
     "invalid_value"),
    (assistant(content=[{"type": "refusal"}]), f"{PART}.refusal", "missing_required_parameter"),
    (assistant(reasoning_content=5), "messages[0].reasoning_content", "invalid_type"),
    (assistant(function_call={"name": "f"}), "messages[0].function_call", "unsupported_parameter"),
    (assistant(tool_calls={}), "messages[0].tool_calls", "invalid_type"),
    (assistant(tool_calls=[5]), "messages[0].tool_calls[0]", "invalid_type"),
    (assistant(tool_calls=[{"function": CALL["function"]}]), "messages[0].tool_calls[0].id",
     "missing_required_parameter"),
    (assistant(tool_calls=[CALL | {"type": "custom"}]), "messages[0].tool_calls[0].type",
     "invalid_value"),
    (assistant(tool_calls=[CALL | {"function": {"name": "f"}}]),
     "messages[0].tool_calls[0].function.arguments", "missing_required_parameter"),
    (assistant(tool_calls=[CALL | {"function": {"name": "f", "arguments": 5}}]),
     "messages[0].tool_calls[0].function.arguments", "invalid_type"),
    (body(tools={}), "tools", "invalid_type"),
    (body(tools=["x"]), "tools[0]", "invalid_type"),
    (body(tools=[TOOL] * 129), "tools", "invalid_value"),
    (body(tools=[{"function": FUNCTION}]), "tools[0].type", "missing_required_parameter"),
    (body(tools=[{"type": "custom", "custom": {}}]), "tools[0].type", "unsupported_value"),
    (body(tools=[{"type": "function"}]), "tools[0].function", "missing_required_parameter"),
    (body(tools=[{"type": "function", "function": {}}]), "tools[0].function.name",
     "missing_required_parameter"),
    (tool(name="a b"), "tools[0].function.name", "invalid_value"),
    (tool(name="é"), "tools[0].function.name", "invalid_value"),
    (tool(name="a\n"), "tools[0].function.name", "invalid_value"),
    (tool(name="x" * 65), "tools[0].function.name", "invalid_value"),
    (tool(description=5), "tools[0].function.description", "invalid_type"),
    (tool(parameters=[]), "tools[0].function.parameters", "invalid_type"),
    (tool(parameters=nested(40)), "tools[0]", "invalid_value"),
    (tool(strict="yes"), "tools[0].function.strict", "invalid_type"),
    (body(tools=[TOOL], tool_choice="any"), "tool_choice", "unsupported_value"),
    (body(tools=[TOOL], tool_choice=5), "tool_choice", "unsupported_value"),
    (body(tools=[TOOL], tool_choice={"type": "allowed_tools"}), "tool_choice.type",
     "unsupported_value"),
    (body(tools=[TOOL], tool_choice={"type": "function"}), "tool_choice.function",
     "missing_required_parameter"),
    (body(tools=[TOOL], tool_choice={"type": "function", "function": {}}),
     "tool_choice.function.name", "missing_required_parameter"),
    (body(parallel_tool_calls="no"), "parallel_tool_calls", "invalid_type"),
    (body(functions=[FUNCTION]), "functions", "unsupported_parameter"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "param", "code"), WRONG)
def test_a_wrong_field_is_named(data: bytes, param: str, code: str) -> None:
    error = refused(data)
    assert (error.param, error.code) == (param, code)
    assert param in error.message


def test_limits_are_named_with_what_was_asked() -> None:
    assert "at most 128 items, not 129" in refused(body(tools=[TOOL] * 129)).message
    assert "deeper than 32" in refused(tool(parameters=nested(40))).message
