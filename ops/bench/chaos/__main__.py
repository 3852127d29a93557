"""Mixed traffic against a gateway whose workers are killed: does every answer stay right?

`python -m ops.bench.chaos --minutes 30` starts a gateway on a free port of loopback with two
workers, asks every question once in peace, and then all of them over and over, in every way: whole
and streamed, with known images and new ones, several choices, callers that leave, damaged images.
Every answer is compared with the first one. The exit status is 0 if nothing happened that must not.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

import httpx

from ops.bench.chaos.catalogue import Question, make_questions
from ops.bench.chaos.faults import Fault, break_workers
from ops.bench.chaos.house import House, open_house
from ops.bench.chaos.memory import Watch, settled, slope
from ops.bench.chaos.traffic import BUSY, EXCUSED, Answer, Outcome, Traffic, read_whole

# Few bytes, so that images come, go and are waited for.
SETTINGS = (
    "workers=cpu:vision+language,cpu:vision+language",
    "threads_per_worker=1",
    "arena_bytes=33554432",
    "restart_seconds=0.2",
    "silent_seconds=5",
    "fence_seconds=20",
)
TOLD = ("fovea_worker_lost_total", "fovea_request_retries_total", "fovea_embedding_evictions_total")
# After a fault's end, what it touched may take a moment to be told.
_AFTER_SECONDS = 5.0
MAX_FAULTS_SHOWN = 10


async def read_references(house: House, questions: Sequence[Question]) -> dict[str, Answer]:
    """The answer to every question, asked by itself."""
    references = {}
    for question in questions:
        body = question.body(house.model, streamed=False, nonce=None)
        url = f"{house.url}/v1/chat/completions"
        response = await house.client.post(url, content=body, timeout=120)
        if response.status_code != httpx.codes.OK:
            raise SystemExit(f"{question.name} in peace: {response.status_code} {response.text}")
        references[question.name] = read_whole(response)
    return references


def judge(outcomes: Sequence[Outcome], faults: Sequence[Fault]) -> list[str]:
    """Everything that must not have happened."""
    wrongs = [f"{each.kind}: {each.fault}" for each in outcomes if each.fault]
    wrongs += [
        f"{each.kind}: {each.verdict}, though no worker was touched"
        for each in outcomes
        if each.verdict in EXCUSED and not any(_touches(fault, each) for fault in faults)
    ]
    wrongs += [f"{each.name}: the pool did not recover" for each in faults if not each.whole_at]
    return wrongs


def _touches(fault: Fault, outcome: Outcome) -> bool:
    whole_at = fault.whole_at or float("inf")
    return outcome.begun_at < whole_at + _AFTER_SECONDS and outcome.ended_at > fault.began_at


def show(traffic: Traffic, faults: Sequence[Fault], watch: Watch) -> None:
    """Print what was done and what came of it."""
    verdicts = Counter((each.kind, each.verdict) for each in traffic.outcomes)
    print(f"{len(traffic.outcomes)} requests, {len(faults)} faults")
    for (kind, verdict), count in sorted(verdicts.items()):
        note = " (a death's or a full server's)" if verdict in EXCUSED | BUSY else ""
        print(f"  {count:6} {kind}: {verdict}{note}")
    print("memory of their own, from when it had settled:")
    for name, samples in watch.samples.items():
        rest = settled(samples)
        minutes = (rest[-1].at - rest[0].at) / 60
        print(
            f"  {name}: {rest[0].mebibytes:.0f} to {rest[-1].mebibytes:.0f} MiB in "
            f"{minutes:.1f} min, {slope(rest):+.2f} MiB/min"
        )


async def run(arguments: argparse.Namespace) -> int:
    """The whole of it; the exit status."""
    chance = random.Random(arguments.seed)
    questions = make_questions(arguments.seed, arguments.questions)
    async with open_house(arguments.main, [*SETTINGS, *arguments.settings]) as house:
        print(f"{house.model} on {house.url}, seed {arguments.seed}", flush=True)
        traffic = Traffic(house, questions, await read_references(house, questions), chance)
        watch = Watch(house)
        sampling = asyncio.create_task(watch.run(arguments.sample_seconds))
        seconds = 60 * arguments.minutes
        begun = time.monotonic()
        asking = asyncio.create_task(traffic.run(arguments.callers, seconds))
        faults = await break_workers(house, chance, seconds, arguments.rest_seconds)
        await asking
        sampling.cancel()
        print(f"after {time.monotonic() - begun:.0f} s:")
        show(traffic, faults, watch)
        counters = await house.counters(TOLD)
        print(", ".join(f"{name} {value:.0f}" for name, value in counters.items()))
        held = await house.held()
    wrongs = judge(traffic.outcomes, faults)
    wrongs += [f"{name} stayed at {value:g}" for name, value in held.items()]
    if house.process.returncode != 0:
        wrongs.append(f"the gateway ended with {house.process.returncode}")
    print(f"{len(wrongs)} things that must not happen", *wrongs[:MAX_FAULTS_SHOWN], sep="\n  ")
    return 1 if wrongs else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--callers", type=int, default=12, help="requests in flight")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--rest-seconds", type=float, default=8, help="between faults, about")
    parser.add_argument("--sample-seconds", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--main", default="gateway", help="the module that is the gateway")
    parser.add_argument("settings", nargs="*", help="name=value, as FOVEA_NAME")
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
