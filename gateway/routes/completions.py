"""The language of POST /v1/completions: texts or token ids that a model goes on with."""

import codecs
import time
from collections.abc import Sequence
from typing import Any

from gateway.answers.answer import Piece
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
            prompts.append(make_raw_prompt(raw, wishes, self._desk, job_id, grammar))
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
        for index, choice in enumerate(self._choices):
            mine = [piece for piece in pieces if piece.choice == index]
            entries = [entry for piece in mine for entry in piece.logprobs or ()]
            logged = None if mine[0].logprobs is None else entries
            text = choice.echo + "".join(piece.text for piece in mine)
            choices.append(_body(index, text, choice.log(logged), mine[-1].reason))
        return {**self._head, "choices": choices, "usage": usage.body()}

    def opening(self) -> bytes:
        """The prompt of each choice, where it is to be told."""
        return b"".join(
            self._chunk([_body(index, choice.echo, None, None)])
            for index, choice in enumerate(self._choices)
            if choice.echo
        )

    def pieces(self, pieces: Sequence[Piece]) -> bytes:
        """The next texts."""
        return b"".join(
            self._chunk([_body(piece.choice, piece.text, self._log(piece), piece.reason)])
            for piece in pieces
            if piece.text or piece.logprobs or piece.reason
        )

    def _log(self, piece: Piece) -> dict[str, Any] | None:
        return self._choices[piece.choice].log(piece.logprobs)

    def closing(self, usage: Usage) -> bytes:
        """Usage where it was asked for, and the end."""
        told = self._chunk([], usage=usage.body()) if self._include_usage else b""
        return told + DONE

    def failure(self, body: dict[str, Any]) -> bytes:
        """The error, and the end."""
        return frame(body) + DONE

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return frame({**self._head, "choices": choices, **more})


def _body(index: int, text: str, log: dict[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": log, "finish_reason": reason}


class _Choice:
    """Keeps count of where the tokens of one choice stand in its text."""

    def __init__(self, echo: str) -> None:
        self.echo = echo  # what is told before the answer
        self._offset = len(echo)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def log(self, entries: list[Entry] | None) -> dict[str, Any] | None:
        """OpenAI's older form of the likelihoods of the next tokens."""
        if entries is None:
            return None
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(bytes(entry["bytes"] or ())))
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [
                {each["token"]: each["logprob"] for each in (*entry["top_logprobs"], entry)}
                for entry in entries
            ],
            "text_offset": offsets,
        }
