"""A worker without a process: whatever it is sent, it answers in the same event loop, at once."""

import asyncio
import zlib
from collections.abc import Callable, Sequence

from workers.arena import Arena
from workers.keeper import WorkerView
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Finished,
    FromWorker,
    GenerateJob,
    Scored,
    Started,
    Taken,
    Tokens,
)
from workers.pool import Fleet
from workers.sampling import Likelihood

CONTEXT_TOKENS = 2048
_HIDDEN_BYTES = 32  # of a token's embedding
_ARENA_BYTES = 64 << 20
_MOST_TOKENS = 24
_NAME = "worker-0"


class InlinePool:
    """Stands for the gateway's pool of workers. Owned by the event loop."""

    def __init__(self, num_tokens: int = 1, arena_bytes: int = _ARENA_BYTES) -> None:
        """`num_tokens` is the size of the vocabulary, all of which comes in answers."""
        self.names = (_NAME,)
        self.on_event: Callable[[int, FromWorker], None] = lambda worker, event: None
        self._num_tokens = num_tokens
        self._arena = Arena(0, arena_bytes)
        self._view = WorkerView(
            index=0,
            name=_NAME,
            device="cpu",
            roles=("vision", "language"),
            ready=True,
            in_flight=0,
            embedding_bytes_per_token=_HIDDEN_BYTES,
            max_context_tokens=CONTEXT_TOKENS,
            kv_cache_tokens=1 << 30,
            load_seconds=0.0,
        )

    @property
    def places(self) -> Sequence[Arena]:
        """See `workers.pool.Pool`."""
        return (self._arena,)

    def arena(self, index: int) -> Arena:
        """See `workers.pool.Pool`."""
        return (self._arena,)[index]

    def fleet(self) -> Fleet:
        """One worker with both roles, which is always ready."""
        return Fleet((self._view,))

    def send(self, index: int, message: EncodeJob | GenerateJob | Abort) -> None:
        """Answer a job when the loop comes to it; an abort comes too late."""
        if isinstance(message, EncodeJob):
            self._say(self._encoded(message))
        elif isinstance(message, GenerateJob):
            self._answer(message)

    def _say(self, event: FromWorker) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.on_event(0, event))

    def _encoded(self, job: EncodeJob) -> Encoded:
        payload = bytes(self._arena.view(job.payload.region))
        return Encoded(
            job_id=job.job_id,
            dtype="float32",
            shape=(1, job.plan.num_tokens, _HIDDEN_BYTES // 4),
            feature_digest=zlib.crc32(payload).to_bytes(16, "big"),
            queue_seconds=0.0,
            decode_seconds=0.0,
            preprocess_seconds=0.0,
            digest_seconds=0.0,
            encode_seconds=0.0,
        )

    def _answer(self, job: GenerateJob) -> None:
        """Tokens by chance, the same for the same prompt; control tokens are among them."""
        seed = zlib.crc32(job.token_ids)
        length = min(job.sampling.max_tokens, 1 + seed % _MOST_TOKENS)
        token_ids = tuple((seed + 7919 * place) % self._num_tokens for place in range(length))
        self._say(Taken(job_id=job.job_id, is_copied=True, transfer_seconds=0.0))
        if job.sampling.prompt_logprobs:
            self._say(self._scored(job))
        self._say(Started(job_id=job.job_id, num_cached_tokens=0))
        for start in range(0, length, 3):
            chosen = token_ids[start : start + 3]
            likelihoods = tuple(self._likelihood(job, each) for each in chosen)
            self._say(
                Tokens(
                    job_id=job.job_id,
                    token_ids=chosen,
                    likelihoods=likelihoods if job.sampling.logprobs else (),
                )
            )
        finished = Finished(
            job_id=job.job_id,
            reason="length" if length == job.sampling.max_tokens else "stop",
            num_prompt_tokens=len(job.token_ids) // 4,
            num_completion_tokens=length,
        )
        self._say(finished)

    def _scored(self, job: GenerateJob) -> Scored:
        ids = memoryview(job.token_ids).cast("i")[1:]
        likelihoods = tuple(self._likelihood(job, each) for each in ids)
        return Scored(job_id=job.job_id, likelihoods=likelihoods)

    def _likelihood(self, job: GenerateJob, token_id: int) -> Likelihood:
        others = range(token_id, token_id + job.sampling.top_logprobs)
        return Likelihood(-0.5, tuple((each % self._num_tokens, -0.5) for each in others))

    def close(self) -> None:
        """Let the memory go."""
        self._arena.close()
