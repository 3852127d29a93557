"""Chats of several turns with a running server."""

from typing import Any

from openai.types.chat import ChatCompletion

from tests.journeys.server import Server

Message = dict[str, Any]


def user(*parts: dict[str, Any]) -> Message:
    return {"role": "user", "content": list(parts)}


def ask(server: Server, messages: list[Message], **options: Any) -> ChatCompletion:
    answer = server.client.chat.completions.create(
        model=server.model, messages=messages, temperature=0, **options
    )
    assert isinstance(answer, ChatCompletion)
    return answer
