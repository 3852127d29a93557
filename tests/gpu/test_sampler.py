"""The sampler on a CUDA device chooses what it chooses on the CPU."""

import random

import pytest
import torch

from tests.workers.language.test_sampler import WISHES, random_logits
from tests.workers.language.wishes import make_sequence, make_wish
from workers.devices import count_gpus
from workers.language.sampler import Sampler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]


def test_choices_on_cuda_equal_those_on_the_cpu() -> None:
    chance = random.Random(3)
    sequences = tuple(
        make_sequence(
            chance.choices(range(30), k=6),
            make_wish(
                temperature=[0.0, 0.9][number % 2],
                seed=number,
                min_p=[0.0, 0.05][number % 3 == 0],
                logprobs=True,
                top_logprobs=number % 4,
                **WISHES[number % len(WISHES)],
            ),
            f"{number}",
        )
        for number in range(40)
    )
    ours, theirs = Sampler(40), Sampler(40)
    for step in range(20):
        logits = random_logits(step, 40)
        on_cuda = theirs.choose(logits.to("cuda"), sequences)
        on_cpu = ours.choose(logits.clone(), sequences)
        for sequence, one, other in zip(sequences, on_cpu, on_cuda, strict=True):
            assert one is not None
            assert other is not None
            assert one.token_id == other.token_id
            assert one.likelihood is not None
            assert other.likelihood is not None
            assert one.likelihood.logprob == pytest.approx(other.likelihood.logprob, abs=1e-4)
            assert [token for token, _ in one.likelihood.top] == [
                token for token, _ in other.likelihood.top
            ]
            sequence.token_ids.append(one.token_id)
    torch.cuda.synchronize()
