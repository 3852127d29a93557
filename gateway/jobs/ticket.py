"""What arrives of one answer, and what is held for it meanwhile."""

import asyncio
import time
from dataclasses import dataclass, field

from gateway.encoding.lease import Share
from gateway.jobs.fence import INNOCENT, Key
from gateway.observe.timeline import Timeline, current_timeline
from workers.messages import Failed, Finished, Region
from workers.sampling import Likelihood


@dataclass(frozen=True, slots=True)
class Batch:
    """What arrived of an answer since the last look."""

    token_ids: tuple[int, ...]
    likelihoods: tuple[Likelihood, ...]  # one for each token if logprobs were asked for
    end: Finished | Failed | None


@dataclass(slots=True)
class Ticket:
    """One generate job under way; tokens pile up here, so a slow reader slows nobody.

    Owned by the dispatcher, which alone fills it; the request's task alone reads it.
    """

    job_id: str
    worker: int
    share: Share | None  # of the embeddings
    regions: tuple[Region, ...]  # of these
    wake: asyncio.Event  # set whenever something arrives; several tickets may have it in common
    key: Key = INNOCENT  # the prompt's, see `gateway.jobs.fence`
    token_ids: list[int] = field(default_factory=list)
    likelihoods: list[Likelihood] = field(default_factory=list)
    scores: list[Likelihood] = field(default_factory=list)  # of the prompt's own tokens
    num_cached_tokens: int = 0  # of the prompt; known when the first token comes
    missing: tuple[int, ...] | None = None  # starts of images that the engine lacks; None: unknown
    end: Finished | Failed | None = None
    timeline: Timeline = field(default_factory=current_timeline)
    stage_begun: float = field(default_factory=time.monotonic)  # when the engine's stage began
    is_started: bool = False  # whether the first token has come

    @property
    def is_decided(self) -> bool:
        """Whether the engine has taken the job, or said what it misses, or it ended."""
        return self.missing is not None or self.end is not None

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return bool(self.token_ids) or self.end is not None

    def take(self) -> Batch:
        """Take all there is."""
        batch = Batch(tuple(self.token_ids), tuple(self.likelihoods), self.end)
        self.token_ids.clear()
        self.likelihoods.clear()
        return batch

    def take_scores(self) -> list[Likelihood]:
        """Take what has come of the prompt's likelihoods; all of them come before any news."""
        scores, self.scores = self.scores, []
        return scores

    def release(self) -> None:
        """Let the embeddings go; twice does nothing."""
        share, self.share = self.share, None
        if share is not None:
            share.release()
