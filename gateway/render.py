"""Turns and tools in, the prompt's text out, as the checkpoint's chat template writes it."""

from typing import Any

from gateway.checkpoint import Checkpoint
from gateway.marks import Marks, Rendered
from gateway.prompt import Call, Prompt, Turn


def render(prompt: Prompt, checkpoint: Checkpoint) -> Rendered:
    """Render a prompt; what callers wrote in it forges no structure.

    Raises:
        BadRequest: the chat template refuses the messages, or cannot render them.
    """
    marks = Marks(checkpoint)
    messages = [_message(turn, marks) for turn in prompt.turns]
    tools = marks.swap_all(list(prompt.tool_use.tools))
    return marks.put_back(checkpoint.template.render(messages, tools or None))


def _message(turn: Turn, marks: Marks) -> dict[str, Any]:
    """A message as templates know it; they ask whether a field is there, so none is null."""
    message: dict[str, Any] = {"role": turn.role, "content": _content(turn, marks)}
    if turn.thoughts is not None:
        message["reasoning_content"] = marks.swap(turn.thoughts)
    if turn.calls:
        message["tool_calls"] = [_call(call, marks) for call in turn.calls]
    if turn.call_id is not None:
        message["tool_call_id"] = marks.swap_all(turn.call_id)
    return message


def _content(turn: Turn, marks: Marks) -> str | list[dict[str, str]]:
    """A turn's content as templates know it: a string stays one, parts become a list."""
    swap = marks.swap_all if turn.role == "tool" else marks.swap
    if turn.plain:
        return "".join(swap(part) for part in turn.parts if isinstance(part, str))
    return [
        {"type": "text", "text": swap(part)} if isinstance(part, str) else {"type": "image"}
        for part in turn.parts
    ]


def _call(call: Call, marks: Marks) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    swapped: dict[str, Any] = marks.swap_all(
        {"id": call.id, "type": "function", "function": function}
    )
    return swapped
