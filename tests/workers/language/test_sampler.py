"""What changes logits, against plain numbers and the library's own processors."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.workers.language.wishes import make_sequence, make_wish, wished_scores
from workers.language import sampler as sampler_module
from workers.language.drawing import Draw, draw
from workers.language.sampler import Choice, Sampler
from workers.language.sequence import Sequence

VOCAB = 30
WISHES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6},
    {"frequency_penalty": 1.3},
    {"frequency_penalty": -2.0},
    {"presence_penalty": 2.0},
    {"presence_penalty": -1.1},
    {"logit_bias": {3: 5.0, 29: -100.0, 0: 0.5}},
    {"min_tokens": 3, "stop_token_ids": (4, 9, 11)},
    {
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.7,
        "presence_penalty": 0.4,
        "logit_bias": {7: 3.0, 4: 100.0},
        "min_tokens": 2,
        "stop_token_ids": (4,),
    },
]


def random_logits(seed: int, rows: int, vocab: int = VOCAB) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def watch_draws(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What is drawn from, from now on."""
    seen: list[Tensor] = []

    def keep(scores: Tensor, draws: list[Draw]) -> tuple[Tensor, Tensor]:
        seen.append(scores.clone())
        return draw(scores, draws)

    monkeypatch.setattr(sampler_module, "draw", keep)
    return seen


def scores_of(monkeypatch: pytest.MonkeyPatch, logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """What the sampler draws from."""
    seen = watch_draws(monkeypatch)
    Sampler(len(sequences)).choose(logits.clone(), tuple(sequences))
    return seen[0]


def token_ids(choices: list[Choice | None]) -> list[int | None]:
    return [None if choice is None else choice.token_id for choice in choices]


def test_scores_are_those_of_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    sequences = [
        make_sequence(
            chance.choices(range(VOCAB), k=6),
            make_wish(**wish),
            job_id=f"{number}.{length}",
            answer=tuple(chance.choices(range(VOCAB), k=length)),
        )
        for number, wish in enumerate(WISHES)
        for length in (0, 1, 2, 9)
    ]
    chance.shuffle(sequences)
    logits = random_logits(1, len(sequences))
    found = scores_of(monkeypatch, logits, sequences)
    for row, sequence in enumerate(sequences):
        expected = wished_scores(logits[row].tolist(), sequence)
        torch.testing.assert_close(found[row], torch.tensor(expected))


def test_repetition_penalty_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    sequence = make_sequence([1, 5, 5, 9], make_wish(repetition_penalty=1.4), answer=(2, 5))
    logits = random_logits(2, 1)
    expected = RepetitionPenaltyLogitsProcessor(1.4)(
        torch.tensor([sequence.token_ids]), logits.clone()
    )
    torch.testing.assert_close(scores_of(monkeypatch, logits, [sequence]), expected)


def test_logit_bias_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import SequenceBiasLogitsProcessor

    biases = {4: 2.5, 17: -100.0}
    sequence = make_sequence([1, 5], make_wish(logit_bias=biases))
    logits = random_logits(3, 1)
    expected = SequenceBiasLogitsProcessor([[[token], bias] for token, bias in biases.items()])(
        torch.tensor([sequence.token_ids]), logits.clone()
    )
    torch.testing.assert_close(scores_of(monkeypatch, logits, [sequence]), expected)


@pytest.mark.parametrize("num_chosen", [0, 2, 3])
def test_min_tokens_is_the_librarys(monkeypatch: pytest.MonkeyPatch, num_chosen: int) -> None:
    from transformers import MinNewTokensLengthLogitsProcessor

    wish = make_wish(min_tokens=3, stop_token_ids=(4, 9))
    sequence = make_sequence([1, 5], wish, answer=tuple(range(num_chosen)))
    logits = random_logits(4, 1)
    expected = MinNewTokensLengthLogitsProcessor(2, 3, [4, 9])(
        torch.tensor([sequence.token_ids]), logits.clone()
    )
    torch.testing.assert_close(scores_of(monkeypatch, logits, [sequence]), expected)


@pytest.mark.parametrize("max_rows", [3, 20])
def test_counts_follow_answers_that_pause_and_come_back(
    monkeypatch: pytest.MonkeyPatch, max_rows: int
) -> None:
    """With 3 rows for 12 sequences, each loses its row again and again."""
    chance = random.Random(7)
    sequences = [
        make_sequence(
            chance.choices(range(VOCAB), k=5), make_wish(**WISHES[1 + number % 9]), f"{number}"
        )
        for number in range(12)
    ]
    seen = watch_draws(monkeypatch)
    sampler = Sampler(max_rows)
    for step in range(60):
        chosen = chance.sample(sequences, 3)
        logits = random_logits(100 + step, 3)
        expected = [
            wished_scores(row.tolist(), sequence)
            for row, sequence in zip(logits, chosen, strict=True)
        ]
        choices = sampler.choose(logits, tuple(chosen))
        torch.testing.assert_close(seen.pop(), torch.tensor(expected))
        for sequence, token_id in zip(chosen, token_ids(choices), strict=True):
            assert token_id is not None
            sequence.token_ids.append(token_id)
        if step % 10 == 9:  # one ends, another takes its name
            ended = sequences.pop(0)
            sampler.forget(ended)
            prompt = chance.choices(range(VOCAB), k=5)
            sequences.append(make_sequence(prompt, make_wish(**WISHES[9]), ended.job_id))


def test_tokens_that_nobody_chose_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch_draws(monkeypatch)
    sampler = Sampler(2)
    sequence = make_sequence([1, 2], make_wish(**WISHES[9]))
    for step in range(4):
        logits = random_logits(50 + step, 1)
        expected = wished_scores(logits[0].tolist(), sequence)
        sampler.choose(logits, (sequence,))
        torch.testing.assert_close(seen.pop()[0], torch.tensor(expected))
        sequence.token_ids += [20 + step, 11]


def test_rows_of_ended_sequences_are_used_again() -> None:
    sampler = Sampler(4)
    for number in range(50):
        sequence = make_sequence([1, 2], make_wish(presence_penalty=1.0), f"{number}")
        sampler.choose(random_logits(number, 1), (sequence,))
        sampler.forget(sequence)
    assert sampler._counts._counts.shape == (4, VOCAB)


def test_rows_that_ask_for_nothing_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = [
        make_sequence([1], make_wish(**wish), str(number))
        for number, wish in enumerate(({}, WISHES[9], {"logprobs": True}))
    ]
    logits = random_logits(8, 3)
    found = scores_of(monkeypatch, logits, sequences)
    assert found[[0, 2]].equal(logits[[0, 2]])
    assert not found[1].equal(logits[1])


class Watch(TorchFunctionMode):
    """Notes what is done with tensors that are as wide as the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(each, Tensor) and each.shape[-1:] == (VOCAB,) for each in args):
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("wish", "is_more"), [({}, False), (WISHES[1], True), (WISHES[7], True)])
def test_plain_rows_cost_nothing_beside_the_draw(
    monkeypatch: pytest.MonkeyPatch, wish: dict[str, Any], is_more: bool
) -> None:
    def draw_nothing(scores: Tensor, draws: list[Draw]) -> tuple[Tensor, Tensor]:
        return torch.zeros(4, dtype=torch.int64), torch.zeros(4)

    monkeypatch.setattr(sampler_module, "draw", draw_nothing)
    sequences = tuple(make_sequence([1], make_wish(**wish), str(number)) for number in range(4))
    logits = random_logits(9, 4)
    with Watch() as watch:
        Sampler(4).choose(logits, sequences)
    assert bool(watch.seen) == is_more


def test_logprobs_are_those_of_the_logits_as_they_came() -> None:
    wish = make_wish(logprobs=True, top_logprobs=4, temperature=0.3, seed=3, **WISHES[9])
    sequence = make_sequence([1, 2, 3], wish, answer=(7,))
    logits = random_logits(11, 1)
    row = logits[0].tolist()
    (choice,) = Sampler(1).choose(logits, (sequence,))
    assert choice is not None
    assert choice.likelihood is not None
    total = math.log(sum(map(math.exp, row)))
    expected = {token: value - total for token, value in enumerate(row)}
    assert choice.likelihood.logprob == pytest.approx(expected[choice.token_id], abs=1e-5)
    best = sorted(expected, key=lambda token: -expected[token])[:4]
    assert [token for token, _ in choice.likelihood.top] == best
    assert [value for _, value in choice.likelihood.top] == pytest.approx(
        [expected[token] for token in best], abs=1e-5
    )


def test_each_row_is_told_as_many_logprobs_as_it_asked_for() -> None:
    counts = [None, 0, 3, 20, None]
    sequences = tuple(
        make_sequence([1], make_wish(logprobs=count is not None, top_logprobs=count or 0), f"{row}")
        for row, count in enumerate(counts)
    )
    found = Sampler(5).choose(random_logits(12, 5, vocab=16), sequences)
    likelihoods = [choice.likelihood for choice in found if choice is not None]
    assert [each and len(each.top) for each in likelihoods] == [None, 0, 3, 16, None]


def test_equals_among_the_likeliest_are_told_by_their_ids() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [17, 3, 8]] = 2.0
    sequence = make_sequence([1], make_wish(logprobs=True, top_logprobs=3))
    (choice,) = Sampler(1).choose(logits, (sequence,))
    assert choice is not None
    assert choice.likelihood is not None
    assert [token for token, _ in choice.likelihood.top] == [3, 8, 17]
    assert choice.token_id == 3


def test_a_choice_does_not_depend_on_the_batch() -> None:
    chance = random.Random(2)
    logits = random_logits(13, 24)
    sequences = [
        make_sequence(
            chance.choices(range(VOCAB), k=4),
            make_wish(
                temperature=chance.choice([0.0, 0.8]),
                seed=row,
                logprobs=chance.random() < 0.5,
                top_logprobs=chance.randrange(5),
                **chance.choice(WISHES),
            ),
            f"{row}",
            tuple(chance.choices(range(VOCAB), k=chance.randrange(4))),
        )
        for row in range(24)
    ]
    together = Sampler(24).choose(logits.clone(), tuple(sequences))
    order = chance.sample(range(24), 24)
    shuffled = Sampler(24).choose(logits[order], tuple(sequences[row] for row in order))
    alone = [
        Sampler(1).choose(logits[row : row + 1].clone(), (sequence,))[0]
        for row, sequence in enumerate(sequences)
    ]
    assert alone == together
    assert [together[row] for row in order] == shuffled


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_only_a_row_without_finite_maximum_is_refused(wish: dict[str, Any], bad: float) -> None:
    logits = random_logits(14, 3)
    logits[1, 5] = bad
    sequences = tuple(
        make_sequence([1], make_wish(logprobs=True, **wish), f"{row}") for row in range(3)
    )
    found = Sampler(3).choose(logits, sequences)
    assert [choice is None for choice in found] == [False, True, False]
