"""Servers whose models recite answers that were chosen here, and requests to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.journeys.server import Server, running
from tests.reciting import Reciter, make_reciter

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}
ARGUMENTS = '{"where": "Zürich 日本 🦊"}'


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


TEXTS = {
    "two": f"I look.\n{call('look', ARGUMENTS)}\n{call('see', '{}')}",
    "broken": f"Well: {call('look', '{')}, sorry.".replace('"name"', "name"),
    "plain": "No tool is needed 🦊.\n",
    "unknown": call("fly", '{"to": ["Mars"]}'),
    "bare": call("stare", '{"at": "END of it"}') + " then END and more",
    "third": call("peek", '{"x":1}') + "\n" + call("poke", '{"y":2}'),
}
Messages = list[dict[str, Any]]


class Pupil:
    """A server whose model recites, and requests to it."""

    def __init__(self, server: Server, reciter: Reciter) -> None:
        self.server = server
        self.reciter = reciter

    def fields(self, text: str, messages: Messages | None = None, **more: Any) -> dict[str, Any]:
        messages = messages or [{"role": "user", "content": "Go on."}]
        wishes = {"model": self.server.model, "messages": messages, "tools": [LOOK]}
        return wishes | self.reciter.say(text) | more

    def ask(self, text: str, messages: Messages | None = None, **more: Any) -> Any:
        create = self.server.client.chat.completions.create
        return create(**self.fields(text, messages, **more))

    def stream(self, text: str, **more: Any) -> list[Any]:
        return list(self.ask(text, stream=True, stream_options={"include_usage": True}, **more))


def pupil(folder: Path, model_type: str, texts: dict[str, str], **options: Any) -> Iterator[Pupil]:
    reciter = make_reciter(folder, model_type, texts, **options)
    with running(model=reciter.path) as server:
        yield Pupil(server, reciter)


THOUGHT = "Where is it?\n\nIn Zürich, I think."
THINKING_TEXTS = {
    "think": f"{THOUGHT}\n</think>\n\nI look.\n{call('look', ARGUMENTS)}",
    "long": "It goes on and on and never comes to an end",
}


XML_TEXTS = {
    "two": "I look.\n\n<tool_call>\n<function=look>\n<parameter=where>\nZürich 日本 🦊\n"
    "</parameter>\n<parameter=far>\n12\n</parameter>\n<parameter=now>\nTrue\n</parameter>\n"
    "</function>\n</tool_call>\n<tool_call>\n<function=see>\n</function>\n</tool_call>",
}


KIMI_TOKENS = ("<think>", "</think>")
KIMI_TEXTS = {
    "one": "Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0"
    f"<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_call_begin|>functions.see:1"
    "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    "two": "Straight to it<|tool_calls_section_begin|><|tool_call_begin|>functions.look:7"
    "<|tool_call_argument_begin|>[]<|tool_call_end|>",
}


def called(answer: Any, choice: int = 0) -> list[tuple[str, str]]:
    calls = answer.choices[choice].message.tool_calls or ()
    return [(each.function.name, each.function.arguments) for each in calls]


TWO_XML_CALLS = [("look", '{"where": "Zürich 日本 🦊", "far": 12, "now": true}'), ("see", "{}")]
TWO_CALLS = [("look", ARGUMENTS), ("see", "{}")]
