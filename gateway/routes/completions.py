"""The language of POST /v1/completions: texts or token ids that a model goes on with."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.answers.answer import Piece
from gateway.answers.old_log import OldLog
from gateway.answers.spelling import Ruler, name_of
from gateway.answers.sse import DONE, Usage, frame
from gateway.answers.token_log import Entry
from gateway.prompts.prompt import Prompt, RawText, RawTokens
from gateway.prompts.raw import check_tokens, make_raw_prompt
from gateway.schemas.completions_schema import CompletionFields, parse_completion
from gateway.schemas.sampling_schema import SamplingFields
from gateway.structured.grammar import make_raw_grammar
from gateway.talk import Asked, Desk, check_model


class CompletionTalk:
    """One request for completions; see `gateway.talk.Talk`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._head = {
            "id": f"cmpl-{desk.job_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": desk.services.served_model_name,
        }
        self._choices: tuple[_Choice, ...] = ()
        self._num_choices = 1  # of each prompt
        self._is_scored = False  # whether the prompts' own tokens are told of
        self._include_usage = False

    def read(self, body: bytes) -> Asked:
        """Check a body; see `gateway.talk.Talk.read`."""
        fields, wishes, unknown = parse_completion(body)
        check_model(fields.model, self._desk.services.served_model_name)
        self._include_usage = fields.stream_options.include_usage is True
        self._choices = tuple(
            _Choice(self._echo(prompt) if fields.echo else "")
            for prompt in fields.prompts
            for _ in range(wishes.n)
        )
        self._num_choices = wishes.n
        self._is_scored = fields.echo and fields.logprobs is not None
        prompts = tuple(self._prompts(fields, wishes))
        return Asked(prompts, fields.stream, unknown)

    def _prompts(self, fields: CompletionFields, wishes: SamplingFields) -> Sequence[Prompt]:
        prompts = []
        grammar = make_raw_grammar(fields.response_format)
        for index, given in enumerate(fields.prompts):
            raw: RawText | RawTokens
            if isinstance(given, str):
                raw = RawText(given, fields.add_special_tokens)
            else:
                param = f"prompt[{index}]" if len(fields.prompts) > 1 else "prompt"
                check_tokens(given, param, self._desk.services.checkpoint.tokenizer)
                raw = RawTokens(given)
            job_id = f"{self._desk.job_id}-{index}"
            prompt = make_raw_prompt(raw, wishes, self._desk, job_id, grammar, self._is_scored)
            prompts.append(prompt)
        return prompts

    def _echo(self, prompt: str | tuple[int, ...]) -> str:
        if isinstance(prompt, str):
            return prompt
        tokenizer = self._desk.services.checkpoint.tokenizer
        text: str = tokenizer.decode(prompt, skip_special_tokens=False)
        return text

    def blame(self, param: str) -> str:
        """The prompt is what messages are in chat."""
        return "prompt" if param == "messages" else param

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """A completion."""
        choices = []
        logs = {piece.choice: piece.prompt_log for piece in pieces if piece.prompt_log is not None}
        for index, choice in enumerate(self._choices):
            mine = [piece for piece in pieces if piece.choice == index]
            entries = [entry for piece in mine for entry in piece.logprobs or ()]
            log = choice.log(None if mine[0].logprobs is None else entries)
            before = logs.get(index - index % self._num_choices)
            if log is not None and before is not None:
                log = before.join(log)
            text = choice.echo + "".join(piece.text for piece in mine)
            choices.append(_body(index, text, log, mine[-1].reason))
        return {**self._head, "choices": choices, "usage": usage.body()}

    def opening(self) -> bytes:
        """The prompt of each choice, where it is to be told and nothing is told about it."""
        echoes = () if self._is_scored else range(len(self._choices))
        return b"".join(self._open(index, None) for index in echoes if self._choices[index].echo)

    def pieces(self, pieces: Sequence[Piece]) -> bytes:
        """The next texts, after prompts that are told about."""
        return b"".join(frame for piece in pieces for frame in self._frames(piece))

    def _frames(self, piece: Piece) -> Iterator[bytes]:
        if piece.prompt_log is not None:  # the first piece of all choices of its prompt
            for index in range(piece.choice, piece.choice + self._num_choices):
                yield self._open(index, piece.prompt_log)
        if piece.text or piece.logprobs or piece.reason:
            log = self._choices[piece.choice].log(piece.logprobs)
            yield self._chunk([_body(piece.choice, piece.text, log, piece.reason)])

    def _open(self, index: int, log: OldLog | None) -> bytes:
        return self._chunk([_body(index, self._choices[index].echo, log, None)])

    def closing(self, usage: Usage) -> bytes:
        """Usage where it was asked for, and the end."""
        told = self._chunk([], usage=usage.body()) if self._include_usage else b""
        return told + DONE

    def failure(self, body: dict[str, Any]) -> bytes:
        """The error, and the end."""
        return frame(body) + DONE

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return frame({**self._head, "choices": choices, **more})


def _body(index: int, text: str, log: OldLog | None, reason: str | None) -> dict[str, Any]:
    logprobs = None if log is None else log.body()
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _name(entry: Entry) -> str:
    name: str = entry["token"]
    return name if entry["bytes"] is None else name_of(bytes(entry["bytes"]))


class _Choice:
    """Keeps count of where the tokens of one choice stand in its text."""

    def __init__(self, echo: str) -> None:
        self.echo = echo  # what is told before the answer
        self._ruler = Ruler(len(echo))

    def log(self, entries: list[Entry] | None) -> OldLog | None:
        """What there is to tell of the next tokens."""
        if entries is None:
            return None
        log = OldLog()
        for entry in entries:
            top = [(_name(each), each["logprob"]) for each in entry["top_logprobs"]]
            start = self._ruler.place(bytes(entry["bytes"] or ()))
            log.add(_name(entry), entry["logprob"], top, start)
        return log
