"""Samplings that differ from greedy in what is named, and what they ask for, in plain numbers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.language.sequence import Sequence
from workers.sampling import BIAS_FIELDS, Sampling


def bias_bytes(biases: Mapping[int, float]) -> bytes:
    return np.array(list(biases.items()), BIAS_FIELDS).tobytes()


def make_wish(**fields: Any) -> Sampling:
    """Greedy, but for these fields; `logit_bias` is given as a mapping."""
    defaults: dict[str, Any] = {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 0,
        "max_tokens": 8,
        "stop_token_ids": (),
    }
    if "logit_bias" in fields:
        fields["logit_bias"] = bias_bytes(fields["logit_bias"])
    return Sampling(**(defaults | fields))


def make_sequence(
    prompt: list[int], sampling: Sampling, job_id: str = "a", answer: tuple[int, ...] = ()
) -> Sequence:
    return Sequence(
        job_id=job_id,
        token_ids=[*prompt, *answer],
        num_prompt_tokens=len(prompt),
        sampling=sampling,
        max_tokens=10_000,
        deadline=math.inf,
    )


def wished_scores(logits: list[float], sequence: Sequence) -> list[float]:
    """What is left to draw from, one number at a time."""
    sampling = sequence.sampling
    prompt = sequence.token_ids[: sequence.num_prompt_tokens]
    answer = sequence.token_ids[sequence.num_prompt_tokens :]
    biases = {
        int(token): float(bias) for token, bias in np.frombuffer(sampling.logit_bias, BIAS_FIELDS)
    }
    scores = []
    for token, logit in enumerate(logits):
        score = logit + biases.get(token, 0.0)
        if len(answer) < sampling.min_tokens and token in sampling.stop_token_ids:
            score = -math.inf
        if token in prompt or token in answer:
            penalty = sampling.repetition_penalty
            score = score / penalty if score > 0 else score * penalty
        score -= sampling.frequency_penalty * answer.count(token)
        score -= sampling.presence_penalty if token in answer else 0.0
        scores.append(score)
    return scores
