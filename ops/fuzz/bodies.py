"""Bodies of every POST route as inputs to the whole gateway, and rules for what callers are told.

An input is a path, a line feed and a body. Never a 5xx, never silence, one ending; an error has
type, code and message, tells no secret of this machine and repeats little of what came; and
afterwards nothing is held.
"""

import json
import re
from random import Random
from typing import Any

from ops.fuzz.files import make_files
from ops.fuzz.house import House, Reply
from ops.fuzz.images import make_file
from ops.fuzz.mutate import mutate
from ops.fuzz.requests import data_uri, make_bodies, names_in
from ops.fuzz.target import Wrong
from ops.fuzz.tensors import make_tensors
from ops.fuzz.trees import damage

MAX_ECHO_CHARS = 100
_MAX_MESSAGE_CHARS = 600
_SECRETS = re.compile(r"0x[0-9a-f]{6,}|object at|/(?:work|usr|home|root|tmp|etc/)|Traceback|\.py\b")
_STATUSES = frozenset((200, 400, 404, 413, 422))
_EVENT = re.compile(r"^data: (.*)$", re.MULTILINE)
_LIKENESS = "data:image/png;base64,AAAA"  # stands for an image until one is drawn


class Bodies:
    """Requests to all routes that take a body."""

    def __init__(self) -> None:
        self._files = make_files()
        self._names = names_in(make_bodies(_LIKENESS, b""))
        self._house = House()

    def make(self, chance: Random) -> bytes:
        """A path and a body; half of the bodies are damaged as trees, some as bytes."""
        whole = chance.random() < 0.4
        file = chance.choice(self._files) if whole else make_file(self._files, chance)
        path, body = chance.choice(make_bodies(data_uri(file, chance), make_tensors(chance)))
        tree: Any = json.loads(json.dumps(body))
        if chance.random() < 0.7:
            tree = damage(tree, self._names, chance)
        data = json.dumps(tree, ensure_ascii=chance.random() < 0.5).encode()
        if chance.random() < 0.1:
            data = mutate(data, chance)
        return path.encode() + b"\n" + data

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        path, _, body = data.partition(b"\n")
        reply = self._house.post(path.decode(), body)
        if reply.status not in _STATUSES:
            raise Wrong(f"status {reply.status}: {reply.body[:200]!r}")
        code = _check_reply(reply, body)
        return f"{path.decode()}: {reply.status} {code}".strip()

    def close(self) -> None:
        """Ends the gateway."""
        self._house.close()


def _check_reply(reply: Reply, body: bytes) -> str:
    """The code of the error that it is or ends with, if any."""
    text = reply.body.decode()
    if text.startswith(("data:", "event:")):
        return _check_stream(text, body)
    answer = json.loads(text)
    if reply.status != 200:
        return check_error(answer, body)
    if "error" in answer and answer["error"] is not None:
        raise Wrong("an error with status 200")
    return ""


def _check_stream(text: str, body: bytes) -> str:
    """Frames of JSON, perhaps an error at the end, then `[DONE]` where the route has it."""
    code = ""
    for event in _EVENT.findall(text):
        if event == "[DONE]":
            continue
        frame = json.loads(event)
        if isinstance(frame.get("error"), dict):
            code = check_error(frame, body)
            if frame["error"]["type"] not in ("invalid_request_error",):
                raise Wrong(f"a stream ends by {code}")
    return code


def check_error(answer: dict[str, Any], body: bytes) -> str:
    """Hold an error to the rules; its code.

    Raises:
        Wrong: it breaks one.
    """
    error = answer["error"]
    missing = {"message", "type", "code", "param", "retryable"} - error.keys()
    if missing or not all(isinstance(error[name], str) for name in ("message", "type", "code")):
        raise Wrong(f"the error lacks {missing}")
    for told in (error["message"], error["param"] or ""):
        if len(told) > _MAX_MESSAGE_CHARS:
            raise Wrong(f"an error of {len(told)} characters: {told[:120]!r}")
        if echo := _echo(told, body):
            raise Wrong(f"an error repeats {echo!r}")
        found = _SECRETS.search(told)
        if found and found[0].encode() not in body:
            raise Wrong(f"an error tells {told[max(0, found.start() - 40) : found.end() + 40]!r}")
    return str(error["code"])


def _echo(told: str, body: bytes) -> str:
    """A piece of what came that is too long to be told back."""
    if len(told) <= MAX_ECHO_CHARS:
        return ""
    given = body.decode(errors="replace")
    for text in (given, given.encode().decode("unicode_escape", "ignore")):
        for start in range(len(told) - MAX_ECHO_CHARS):
            piece = told[start : start + MAX_ECHO_CHARS + 1]
            if piece in text:
                return piece
    return ""
