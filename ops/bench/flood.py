"""Text beside a flood of images: how long text waits, and how fast what is too much is refused.

Run against a server on loopback: `python -m ops.bench.flood http://127.0.0.1:8000/v1 demo_model`.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from ops.bench.client import Answer, Outcome, Target, ask, make_body
from ops.bench.images import Size
from ops.bench.rounds import open_client
from ops.bench.workload import Workload, make_contents

TEXT = Workload((), 1, 8, num_requests=1, num_rounds=4000, num_warmup=0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with another status than 200."""

    status: int
    seconds: float  # from the end of the body's sending until the status


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


async def text_times(
    client: httpx.AsyncClient, target: Target, bodies: Sequence[bytes], seconds: float
) -> list[Outcome]:
    """Short questions one after the other for so long."""
    outcomes: list[Outcome] = []
    limit = time.perf_counter() + seconds
    for body in bodies:
        if time.perf_counter() > limit:
            break
        outcomes.append(await ask(client, target, body))
        await asyncio.sleep(0.02)
    return outcomes


async def send(client: httpx.AsyncClient, target: Target, body: bytes) -> Refusal | None:
    """One image request, read to its end; a refusal with its time."""
    headers = {"Content-Type": "application/json"}
    begun = time.perf_counter()
    url = f"{target.base_url}/chat/completions"
    async with client.stream("POST", url, content=body, headers=headers) as response:
        seconds = time.perf_counter() - begun
        async for _ in response.aiter_bytes():
            pass
    return (
        None if response.status_code == httpx.codes.OK else Refusal(response.status_code, seconds)
    )


async def capacity(
    client: httpx.AsyncClient, target: Target, next_body: Callable[[], bytes], seconds: float
) -> float:
    """Image requests that the server answers in a second, eight at a time."""
    num_done = 0
    limit = time.perf_counter() + seconds

    async def keep_asking() -> None:
        nonlocal num_done
        while time.perf_counter() < limit:
            refusal = await send(client, target, next_body())
            num_done += refusal is None

    begun = time.perf_counter()
    await asyncio.gather(*(keep_asking() for _ in range(8)))
    return num_done / (time.perf_counter() - begun)


async def flood(
    client: httpx.AsyncClient,
    target: Target,
    next_body: Callable[[], bytes],
    per_second: float,
    beside: Awaitable[list[Outcome]],
) -> tuple[list[Outcome], list[Refusal | None]]:
    """Image requests at a fixed rate, whatever becomes of them, while something goes on beside."""
    texts = asyncio.ensure_future(beside)
    tasks: list[asyncio.Task[Refusal | None]] = []
    due_at = time.perf_counter()
    while not texts.done():
        tasks.append(asyncio.create_task(send(client, target, next_body())))
        due_at += 1 / per_second
        await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
    return await texts, list(await asyncio.gather(*tasks))


def show(name: str, outcomes: Sequence[Outcome]) -> float:
    """Print the first-token times of texts; their P90 in seconds."""
    times = [each.first_token_seconds for each in outcomes if isinstance(each, Answer)]
    failures = Counter(str(each)[:90] for each in outcomes if not isinstance(each, Answer))
    p50, p90, p99 = (percentile(times, share) * 1000 for share in (0.5, 0.9, 0.99))
    print(f"{name}: {len(times)} texts, first token P50 {p50:.1f} P90 {p90:.1f} P99 {p99:.1f} ms")
    for reason, count in failures.items():
        print(f"  {count} failed: {reason}")
    return p90 / 1000


async def run(arguments: argparse.Namespace) -> None:
    """Measure alone, then at `times` the capacity, then alone again."""
    target = Target("server", arguments.url, arguments.model)
    size = Size(*arguments.size)
    images = Workload((size,), 8, arguments.tokens, arguments.images, num_rounds=1, num_warmup=0)
    contents = make_contents(images, arguments.seed)
    bodies = [make_body(target, content, images) for content in contents]
    texts = [make_body(target, each, TEXT) for each in make_contents(TEXT, arguments.seed)]
    position = 0

    def next_body() -> bytes:
        """Images in turn; with enough of them each has left the cache when it comes again."""
        nonlocal position
        position += 1
        return bodies[position % len(bodies)]

    async with open_client(120) as client:
        await text_times(client, target, texts[:20], 2)
        before = show("alone", await text_times(client, target, texts[20:1000], arguments.seconds))
        rate = await capacity(client, target, next_body, arguments.seconds / 2)
        print(f"capacity: {rate:.1f} image requests/s of {size.width}x{size.height}")
        beside = text_times(client, target, texts[1000:], arguments.seconds)
        outcomes, ends = await flood(client, target, next_body, arguments.times * rate, beside)
        during = show(f"flood of {arguments.times:g} times that", outcomes)
        refused = [each.seconds for each in ends if each is not None]
        statuses = Counter(200 if each is None else each.status for each in ends)
        print(
            f"images: {dict(statuses)}; refused within P50 {percentile(refused, 0.5) * 1000:.1f} "
            f"P99 {percentile(refused, 0.99) * 1000:.1f} ms"
        )
        print(f"text P90 under flood: {during / before:.2f} times that alone")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.flood", description=__doc__)
    parser.add_argument("url", help="ends in /v1")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--times", type=float, default=5, help="the flood, in capacities")
    parser.add_argument("--size", type=int, nargs=2, default=(640, 480))
    parser.add_argument("--tokens", type=int, default=16)
    # They are made beforehand, for making one takes longer than sending it.
    parser.add_argument("--images", type=int, default=1024, help="so many different ones")
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
