"""What an engine says of a prompt's tokens, up to the first piece of its answers."""

import asyncio
from contextlib import ExitStack

import anyio
import pytest

from gateway.answers.answer import Answers, Piece
from gateway.edge import admit
from gateway.edge.admit import Permit
from gateway.edge.keys import KeyLimits
from gateway.edge.limits import Account
from gateway.errors import BadRequest
from gateway.journey import Journey
from gateway.prompts.prompt import RawTokens
from gateway.prompts.raw import make_raw_prompt
from gateway.schemas.sampling_schema import SamplingFields
from gateway.talk import Desk
from tests.gateway.answers.test_answer import LETTERS, Bench
from workers.messages import Finished, Scored, Started, Taken, Tokens
from workers.sampling import Likelihood

PROMPT = tuple(LETTERS[letter] for letter in "abcd")


async def start(bench: Bench, num_choices: int = 1) -> Answers:
    wishes = SamplingFields(logprobs=True, top_logprobs=1, n=num_choices, max_tokens=2)
    desk = Desk(bench.services, "r")
    prompt = make_raw_prompt(RawTokens(PROMPT), wishes, desk, prompt_logprobs=True)
    permit = Permit(bench.services.admission, Account(b"", KeyLimits()))
    wake = asyncio.Event()
    journey = Journey(bench.services, prompt, permit, 0)
    return Answers([await journey.start(bench.cleanup, wake)], wake)


def scored(job_id: str, *logprobs: float) -> Scored:
    best = LETTERS["X"]
    likelihoods = tuple(Likelihood(each, ((best, each / 2),)) for each in logprobs)
    return Scored(job_id=job_id, likelihoods=likelihoods)


def token(job_id: str, letter: str) -> Tokens:
    likelihood = Likelihood(-0.25, ())
    return Tokens(job_id=job_id, token_ids=(LETTERS[letter],), likelihoods=(likelihood,))


def finished(job_id: str) -> Finished:
    return Finished(job_id=job_id, reason="length", num_prompt_tokens=4, num_completion_tokens=1)


def test_the_first_piece_of_the_first_choice_tells_of_the_prompt_and_others_wait() -> None:
    async def run() -> list[Piece]:
        bench = Bench({})
        with ExitStack() as cleanup:
            cleanup.callback(bench.cleanup.close)
            answers = await start(bench, num_choices=2)
            assert [job.sampling.prompt_logprobs for job in bench.jobs] == [True, False]
            assert [job.sampling.logprobs for job in bench.jobs] == [True, True]
            first, second = (job.job_id for job in bench.jobs)
            bench.tell(Started(job_id=second, num_cached_tokens=0), token(second, "Y"))
            bench.tell(scored(first, -1.0, -2.0))
            with anyio.move_on_after(0.05) as waited:
                await answers.next()
            assert waited.cancelled_caught, "a piece came before the prompt was told of"
            bench.tell(scored(first, -9e9), finished(second), token(first, "Z"), finished(first))
            pieces = await answers.next()
            assert answers.usage is not None
            return pieces

    first, second = asyncio.run(run())
    assert (first.choice, first.text, second.choice, second.text) == (0, "Z", 1, "Y")
    assert second.prompt_log is None
    assert first.prompt_log is not None
    assert first.prompt_log.body() == {
        "tokens": ["a", "b", "c", "d"],
        "token_logprobs": [None, -1.0, -2.0, -9999.0],
        "top_logprobs": [
            None,
            {"X": -0.5, "b": -1.0},
            {"X": -1.0, "c": -2.0},
            {"X": -9999.0, "d": -9999.0},
        ],
        "text_offset": [0, 1, 2, 3],
    }


def test_a_prompt_is_told_of_once() -> None:
    async def run() -> None:
        bench = Bench({})
        with ExitStack() as cleanup:
            cleanup.callback(bench.cleanup.close)
            answers = await start(bench)
            bench.tell(Taken(job_id="r", is_copied=True, transfer_seconds=0.0))
            bench.tell(scored("r", -1.0, -2.0, -3.0), token("r", "X"))
            (piece,) = await answers.next()
            assert piece.prompt_log is not None
            assert piece.prompt_log.token_logprobs == [None, -1.0, -2.0, -3.0]
            bench.tell(token("r", "Y"), finished("r"))
            (piece,) = await answers.next()
            assert (piece.text, piece.prompt_log) == ("Y", None)

    asyncio.run(run())


def test_more_than_may_be_told_is_refused_before_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admit, "MAX_SCORES", 15)  # four tokens, two numbers, two choices

    async def run() -> None:
        bench = Bench({})
        with ExitStack() as cleanup:
            cleanup.callback(bench.cleanup.close)
            with pytest.raises(BadRequest, match=r"16 numbers.*limit is 15") as caught:
                await start(bench, num_choices=2)
            assert caught.value.param == "logprobs"
            assert not bench.jobs
            await start(bench, num_choices=1)

    asyncio.run(run())
