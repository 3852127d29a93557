"""What a caller wishes of the choice of tokens, and what is told of one, as they travel."""

import msgspec

BIAS_FIELDS = [("token_id", "<i4"), ("bias", "<f4")]  # numpy's form, of `Sampling.logit_bias`


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to choose tokens; plain values, already checked and capped at the edge.

    What has a default is off by it, and `workers/language/sampler.py` says what each does.
    """

    temperature: float  # 0 is greedy
    top_p: float  # in (0, 1]
    top_k: int  # 0 is off
    seed: int  # always set; drawn by the gateway when the caller gives none
    max_tokens: int
    stop_token_ids: tuple[int, ...]  # end of sequence, unless ignored, and the caller's own
    min_tokens: int = 0  # of the answer's tokens, so many are none of stop_token_ids
    min_p: float = 0.0  # in [0, 1]
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: bytes = b""  # records of BIAS_FIELDS: tokens, and what their logits gain
    logprobs: bool = False
    top_logprobs: int = 0  # likeliest tokens to tell beside the chosen one
    prompt_logprobs: bool = False  # tell those of the prompt's own tokens as well
    grammar: str = ""  # that the answer follows, in llguidance's form of Lark; empty: none


class Likelihood(msgspec.Struct, frozen=True, array_like=True):
    """How likely the model held a token to be, before any wish of the caller changed that."""

    logprob: float  # natural logarithm of its probability
    top: tuple[tuple[int, float], ...]  # token ids and logprobs, the likeliest first
