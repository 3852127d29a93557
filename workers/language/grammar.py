"""A grammar and an answer's tokens in, the tokens that may follow out; worked out in threads.

The library lets go of the interpreter's lock while it works, so the engine's loop goes on.
"""

import logging
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from workers.fail_kind import FailKind
from workers.messages import Vocabulary

NUM_THREADS = 4  # grammars that are slow at the same time before others wait for them
MAX_COMPILED = 64  # grammars kept for answers to come
MAX_KEPT_CHARACTERS = 1 << 20  # of them all; the worst take a kilobyte for each
MAX_LEXER_STATES = 25_000  # of one answer; one or two kilobytes each
_MAX_REASON_CHARACTERS = 200
_NO_WAY = "NoExtension"  # the library's word

logger = logging.getLogger(__name__)

Bits = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What may follow the tokens so far."""

    allowed: Bits  # a bit for each of the model's tokens, the first one lowest in its byte
    may_end: bool  # whether the answer is whole as it is

    @property
    def is_over(self) -> bool:
        """Whether the answer can only end."""
        return self.may_end and not self.allowed.any()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an answer cannot be followed any further."""

    kind: FailKind
    message: str


class Follower:
    """The way of one answer through its grammar. Live: owned by the engine."""

    def __init__(self, grammars: "Grammars") -> None:
        self._grammars = grammars
        self._matcher: LLMatcher | None = None
        self._work: Future[Outlook | Fault] | None = None  # None: it is still compiled

    @property
    def is_ready(self) -> bool:
        """Whether it is known what may follow the last token."""
        return self._work is not None and self._work.done()

    @property
    def may_choose(self) -> bool:
        """Whether there are tokens to choose the next one from."""
        if not self.is_ready:
            return False
        outlook = self.outlook
        return isinstance(outlook, Outlook) and not outlook.is_over

    @property
    def outlook(self) -> Outlook | Fault:
        """What may follow, once it is ready."""
        assert self._work is not None, "the grammar is not compiled yet"
        error = self._work.exception()
        if error is None:
            return self._work.result()
        logger.error("a grammar could not be followed", exc_info=error)
        return Fault("internal", "the engine failed while it followed a grammar")

    def start(self, compiled: Future[LLMatcher]) -> None:
        """Look at the beginning; called once, by whichever thread compiled the grammar."""
        self._work = self._grammars.submit(self._begin, compiled)

    def advance(self, token_id: int) -> None:
        """Take the token that was chosen among those allowed; it is not ready until later."""
        self._work = self._grammars.submit(self._follow, token_id)

    def _begin(self, compiled: Future[LLMatcher]) -> Outlook | Fault:
        self._matcher = compiled.result().deep_copy()
        return self._grammars.look(self._matcher)

    def _follow(self, token_id: int) -> Outlook | Fault:
        assert self._matcher is not None, "nothing was allowed yet"
        self._grammars.consume(self._matcher, token_id)
        return self._grammars.look(self._matcher)


class Grammars:
    """Follows answers through grammars, for one engine and its vocabulary. Owned by the engine."""

    def __init__(self, vocabulary: Vocabulary, num_tokens: int) -> None:
        """Takes half a second of CPU time for 150 000 tokens; `num_tokens` have a logit."""
        spellings = vocabulary.spellings[:num_tokens]
        self._num_bytes = -(-num_tokens // 8)
        self._end_id = len(spellings)  # a token that no model has stands for the end
        self._num_words = self._end_id // 32 + 1
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Spelling(spellings, vocabulary.control_ids)),
            slices=LLTokenizer.json_slices(),
        )
        self._limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
        self._threads = ThreadPoolExecutor(NUM_THREADS, "grammar")
        self._benches: SimpleQueue[_Bench] = SimpleQueue()  # that no thread uses just now
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()
        self._progress = Event()

    def begin(self, text: str) -> Follower:
        """Follow an answer from its beginning; never waits and never raises."""
        compiled = self._compiled.get(text)
        if compiled is None:
            compiled = self._compiled[text] = self._threads.submit(self._compile, text)
        self._compiled.move_to_end(text)
        self._forget()
        follower = Follower(self)
        compiled.add_done_callback(follower.start)
        return follower

    def _forget(self) -> None:
        """Drop those that were not asked for the longest, but never the last one."""
        num_characters = sum(map(len, self._compiled))
        while len(self._compiled) > 1 and (
            len(self._compiled) > MAX_COMPILED or num_characters > MAX_KEPT_CHARACTERS
        ):
            text, _ = self._compiled.popitem(last=False)
            num_characters -= len(text)

    def wait(self, seconds: float) -> None:
        """Return when a follower may have become ready since the last call, or time is up."""
        self._progress.wait(seconds)
        self._progress.clear()

    def submit(self, work: Any, argument: Any) -> "Future[Outlook | Fault]":
        """Have a thread do a follower's work."""
        future: Future[Outlook | Fault] = self._threads.submit(work, argument)
        future.add_done_callback(lambda _: self._progress.set())
        return future

    def consume(self, matcher: LLMatcher, token_id: int) -> None:
        """Take a token; called in a thread."""
        try:
            bench = self._benches.get_nowait()
        except Empty:
            bench = _Bench(self._tokenizer)
        bench.consume(matcher, token_id)
        self._benches.put(bench)

    def look(self, matcher: LLMatcher) -> Outlook | Fault:
        """What may follow; called in a thread."""
        bits = np.zeros(max(4 * self._num_words, self._num_bytes), np.uint8)
        matcher.unsafe_compute_mask_ptr(bits.ctypes.data, 4 * self._num_words)
        if matcher.is_error():
            return _fault(matcher.get_error())
        bits[self._end_id // 8] &= 0xFF ^ 1 << self._end_id % 8
        outlook = Outlook(bits[: self._num_bytes], matcher.is_accepting())
        if outlook.may_end or outlook.allowed.any():
            return outlook
        return _fault(_NO_WAY)

    def _compile(self, text: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, text, log_level=0, limits=self._limits)


def _fault(reason: str) -> Fault:
    if reason.startswith(_NO_WAY):
        return Fault("bad_input", "no answer can have the form that was asked for")
    reason = reason.split("\n", 1)[0][:_MAX_REASON_CHARACTERS]
    return Fault("bad_input", f"the form that was asked for takes too much work: {reason}")


class _Spelling:
    """A vocabulary as the library takes it."""

    bos_token_id = None

    def __init__(self, spellings: tuple[bytes, ...], control_ids: tuple[int, ...]) -> None:
        self.eos_token_id = len(spellings)
        self.tokens = [*spellings, b"<end>"]
        known = [token_id for token_id in control_ids if token_id < len(spellings)]
        self.special_token_ids = [*known, self.eos_token_id]

    def __call__(self, text: bytes) -> list[int]:
        """Tokens of a text. The library asks when it forces tokens, which grammars forbid."""
        return []


class _Bench:
    """Takes tokens without the interpreter's lock.

    Alone a matcher keeps it, for tens of milliseconds with a grammar of thousands of rules; two
    at once do not. So a second one comes along that is broken and does nothing.
    """

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._executor = LLExecutor(1)
        self._idle = LLMatcher(tokenizer, "", log_level=0)

    def consume(self, matcher: LLMatcher, token_id: int) -> None:
        self._executor.consume_token_par([(matcher, token_id), (self._idle, token_id)])
