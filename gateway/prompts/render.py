"""Turns and tools in, the prompt's text out, as the checkpoint's chat template writes it."""

from typing import Any

from gateway.errors import BadRequest
from gateway.prompts.checkpoint import Checkpoint
from gateway.prompts.marks import Marks, Rendered
from gateway.prompts.prompt import Call, Prompt, Turn


def render(prompt: Prompt, checkpoint: Checkpoint) -> Rendered:
    """Render a prompt; what callers wrote in it forges no structure.

    Raises:
        BadRequest: the chat template refuses the messages, or cannot render them.
    """
    marks, use = Marks(checkpoint), prompt.template
    messages = [_message(turn, marks) for turn in prompt.turns]
    if use.continues_last:
        _mark_end(messages[-1], marks)
    tools = [marks.swap_all(tool) for tool in prompt.tool_use.tools]
    variables = {name: marks.swap_all(value) for name, value in use.variables.items()}
    text = checkpoint.template.render(
        messages, tools or None, variables, opens_answer=use.opens_answer
    )
    if not use.continues_last:
        return marks.put_back(text)
    cut = marks.cut(text)
    if cut is None:
        raise _cannot_continue("the model's chat template leaves out how the last message ends")
    return marks.put_back(cut)


def _mark_end(message: dict[str, Any], marks: Marks) -> None:
    """Set a mark where the last text of a message ends."""
    if isinstance(message["content"], str):
        message["content"] = marks.end(message["content"])
        return
    texts = [part for part in message["content"] if part["type"] == "text"]
    if not texts:
        raise _cannot_continue("the last message has no text")
    texts[-1]["text"] = marks.end(texts[-1]["text"])


def _cannot_continue(reason: str) -> BadRequest:
    param = "continue_final_message"
    return BadRequest(f"{param}: {reason}", param=param)


def _message(turn: Turn, marks: Marks) -> dict[str, Any]:
    """A message as templates know it; they ask whether a field is there, so none is null."""
    message: dict[str, Any] = {"role": turn.role, "content": _content(turn, marks)}
    if turn.thoughts is not None:
        message["reasoning_content"] = marks.swap(turn.thoughts)
    if turn.calls:
        message["tool_calls"] = [_call(call, marks) for call in turn.calls]
    if turn.call_id is not None:
        message["tool_call_id"] = marks.swap_all(turn.call_id)
    if turn.name is not None:
        message["name"] = marks.swap_all(turn.name)
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
