"""A checked `ChatRequest` and the checkpoint's own wishes in, a `Sampling` out."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import msgspec
import numpy as np
from tokenizers import Tokenizer

from gateway.errors import BadRequest
from gateway.schemas.sampling_schema import SamplingFields
from workers.sampling import BIAS_FIELDS, Sampling

# Stands for "as many as fit"; the length of the context caps it as soon as the prompt is tokens.
UNCAPPED_TOKENS = 2**31 - 1
_MOST_TOKENS = UNCAPPED_TOKENS - 1  # that a caller can ask for
_SEED_RANGE = 2**63
_MAX_ID = 2**31 - 1  # larger numbers are no int32

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What the checkpoint says about sampling, for fields that a request leaves out."""

    temperature: float
    top_p: float
    top_k: int  # 0 is off
    eos_token_ids: tuple[int, ...]
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def make_sampling(
    request: SamplingFields, defaults: SamplingDefaults, tokenizer: Tokenizer
) -> Sampling:
    """Fill in what the request leaves out.

    Raises:
        BadRequest: a token id is not among the tokenizer's.
    """
    asked = request.max_completion_tokens
    if asked is None:
        asked = request.max_tokens
    ends = () if request.ignore_eos else defaults.eos_token_ids
    own = {f"stop_token_ids[{at}]": token for at, token in enumerate(request.stop_token_ids)}
    _check_tokens(own, tokenizer)
    return Sampling(
        temperature=_pick(request.temperature, defaults.temperature),
        top_p=_pick(request.top_p, defaults.top_p),
        top_k=max(0, _pick(request.top_k, defaults.top_k)),
        min_p=_pick(request.min_p, defaults.min_p),
        seed=secrets.randbits(63) if request.seed is None else request.seed % _SEED_RANGE,
        max_tokens=UNCAPPED_TOKENS if asked is None else min(asked, _MOST_TOKENS),
        min_tokens=min(request.min_tokens, UNCAPPED_TOKENS),
        stop_token_ids=tuple(dict.fromkeys((*ends, *request.stop_token_ids))),
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        repetition_penalty=_pick(request.repetition_penalty, defaults.repetition_penalty),
        logit_bias=_pack(request.logit_bias, tokenizer),
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
    )


def for_choice(sampling: Sampling, choice: int) -> Sampling:
    """The sampling of one of several choices: the first has the request's seed, others their own.

    So the first choice is what the request would get alone. What is told of the prompt, it alone
    tells.
    """
    if choice == 0:
        return sampling
    digest = blake2b(f"{sampling.seed}:{choice}".encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little") % _SEED_RANGE
    return msgspec.structs.replace(sampling, seed=seed, prompt_logprobs=False)


def _pick(asked: Number | None, default: Number) -> Number:
    return default if asked is None else asked


def _pack(biases: Mapping[str, float], tokenizer: Tokenizer) -> bytes:
    tokens = {f"logit_bias.{key}": int(key) for key in biases}
    _check_tokens(tokens, tokenizer)
    return np.array(list(zip(tokens.values(), biases.values(), strict=True)), BIAS_FIELDS).tobytes()


def _check_tokens(tokens: Mapping[str, int], tokenizer: Tokenizer) -> None:
    """Refuse ids of no token; they come by the name of their field."""
    for param, token_id in tokens.items():
        if token_id > _MAX_ID or tokenizer.id_to_token(token_id) is None:
            raise BadRequest(f"{param}: the model has no token {token_id}", param=param)
