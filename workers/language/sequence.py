"""One prompt and the answer so far."""

from dataclasses import dataclass, field
from typing import Literal

from workers.language.grammar import Follower
from workers.language.prefix import BlockKeys
from workers.sampling import Sampling


@dataclass(slots=True, eq=False)
class Sequence:
    """A job inside the engine. Live: owned by the engine, whose scheduler moves the counters.

    Tokens [0, num_computed_tokens) have keys and values in the blocks; later ones have none.
    """

    job_id: str
    token_ids: list[int]  # prompt, then answer
    num_prompt_tokens: int
    sampling: Sampling
    max_tokens: int  # prompt plus answer, in tokens
    deadline: float  # monotonic seconds
    num_computed_tokens: int = 0
    num_finite_tokens: int = 0  # computed ones that were seen to be finite
    num_cached_tokens: int = 0  # of the prompt, not computed because they were known
    num_scored_tokens: int = 0  # of the prompt, whose likelihoods were told
    num_known_tokens: int = 0  # what that looked like when it was queued
    arrival: int = 0  # its number, in the order in which sequences were queued
    num_passes: int = 0  # younger ones that started while it waited for blocks
    num_anchored_blocks: int = 0  # its first ones, which it holds from `put` to its end
    block_ids: list[int] = field(default_factory=list)
    keys: BlockKeys | None = None  # None: it shares no blocks with others
    follower: Follower | None = None  # None: its answer follows no grammar
    is_held: bool = False  # nothing of it is computed before it is known what may follow

    @property
    def num_tokens(self) -> int:
        """Tokens known so far."""
        return len(self.token_ids)

    @property
    def num_completion_tokens(self) -> int:
        """Tokens chosen so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def unscored(self) -> range:
        """Prompt tokens whose likelihoods are still to be told; the first token has none."""
        first = 1 + self.num_scored_tokens
        return range(first, self.num_prompt_tokens if self.sampling.prompt_logprobs else first)

    @property
    def num_sparable_tokens(self) -> int:
        """Tokens at the beginning that need not be computed if their keys and values are known.

        The next token is told by the row of the one before it.
        """
        return (self.unscored.start if self.unscored else self.num_tokens) - 1

    @property
    def is_complete(self) -> bool:
        """Whether no more tokens may be added."""
        return self.num_tokens >= self.max_tokens

    @property
    def is_running(self) -> bool:
        """Whether it takes part in steps; one that waits holds anchored blocks at most."""
        return len(self.block_ids) > self.num_anchored_blocks

    def accept(self, token_id: int) -> Literal["stop", "length"] | None:
        """Add a token chosen by finite logits; the reason to end, if it is the last.

        One too many, chosen where only the prompt was asked about, is dropped.
        """
        self.num_finite_tokens = self.num_computed_tokens
        if self.is_complete:
            return "length"
        self.token_ids.append(token_id)
        if token_id in self.sampling.stop_token_ids:
            return "stop"
        return "length" if self.is_complete else None
