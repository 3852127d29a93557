"""The language of POST /v1/responses, translated to and from that of chat; nothing is kept."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from gateway.answers.answer import Piece
from gateway.answers.sse import Usage
from gateway.routes.responses_input import Conversation
from gateway.routes.responses_output import Event, Output, Status, status_of
from gateway.schemas.responses_schema import ResponseFields, parse_response
from gateway.schemas.schema import check_request
from gateway.talk import Asked, Desk


class ResponseTalk:
    """One request for a response; see `gateway.talk.Talk`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._conversation = Conversation()
        self._created = int(time.time())
        self._told: dict[str, Any] = {}  # of the request
        self._output = Output(desk.job_id)
        self._status: Status = "in_progress"
        self._num_events = 0

    def read(self, body: bytes) -> Asked:
        """Check a body; see `gateway.talk.Talk.read`."""
        fields, wishes, unknown = parse_response(body)
        if fields.instructions is not None:
            self._conversation.add_instructions(fields.instructions)
        self._conversation.add_input(fields.input)
        request = check_request(wishes | {"messages": self._conversation.messages})
        unknown |= {name.replace("messages[]", "input[]") for name in request.unknown_fields}
        prompt = self._desk.prompt(request)
        sampling = {"temperature": prompt.sampling.temperature, "top_p": prompt.sampling.top_p}
        self._told = _told(fields) | sampling
        return Asked((prompt,), fields.stream, tuple(sorted(unknown)))

    def blame(self, param: str) -> str:
        """The name of a field in a response's body."""
        return self._conversation.blame(param)

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """A response."""
        for _ in self._take(pieces):
            pass
        return self._response(self._status, usage)

    def opening(self) -> bytes:
        """The response, without output."""
        response = self._response("in_progress")
        kinds = ("response.created", "response.in_progress")
        return self._frames({"type": kind, "response": response} for kind in kinds)

    def pieces(self, pieces: Sequence[Piece]) -> bytes:
        """What items gain."""
        return self._frames(self._take(pieces))

    def closing(self, usage: Usage) -> bytes:
        """The whole response."""
        response = self._response(self._status, usage)
        return self._frames([{"type": f"response.{self._status}", "response": response}])

    def failure(self, body: dict[str, Any]) -> bytes:
        """The error, and the response as it is."""
        error = body["error"]
        event = {name: error[name] for name in ("code", "message", "param")}
        response = self._response("failed")
        response["error"] = {"code": error["code"], "message": error["message"]}
        return self._frames(
            [{"type": "error", **event}, {"type": "response.failed", "response": response}]
        )

    def _take(self, pieces: Sequence[Piece]) -> Iterable[Event]:
        for piece in pieces:
            yield from self._output.take(piece)
            if piece.reason is not None:
                self._status = status_of(piece.reason)

    def _response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        is_incomplete = status == "incomplete"
        return {
            "id": f"resp_{self._desk.job_id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
            "model": self._desk.services.served_model_name,
            "output": self._output.bodies(),
            "usage": None if usage is None else _usage(usage),
            **self._told,
        }

    def _frames(self, events: Iterable[Event]) -> bytes:
        return b"".join(map(self._frame, events))

    def _frame(self, event: Event) -> bytes:
        numbered = event | {"sequence_number": self._num_events}
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(numbered))


def _told(fields: ResponseFields) -> dict[str, Any]:
    """What a response tells back of its request."""
    return {
        "background": False,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "max_tool_calls": None,
        "metadata": fields.metadata,
        "parallel_tool_calls": fields.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": fields.reasoning.effort, "summary": None},
        "service_tier": "default",
        "store": False,
        "text": {"format": fields.text.format or {"type": "text"}},
        "tool_choice": fields.tool_choice,
        "tools": list(fields.tools),
        "top_logprobs": fields.top_logprobs or 0,
        "truncation": "disabled",
        "user": fields.user,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """The same counts as in chat, by this route's names."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,
            "image_tokens": usage.image_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
