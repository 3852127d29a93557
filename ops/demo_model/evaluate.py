"""Let a server or a checkpoint directory sit the exam, and print the model card's table."""

import argparse
import asyncio
import base64
import collections
import io
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from openai import AsyncOpenAI, OpenAI
from PIL import Image
from tqdm import tqdm
from transformers import AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ops.demo_model.exam import SKILLS, Item, Turn, set_exam
from ops.demo_model.tables import load

MAX_ANSWER_TOKENS = 64
BAR = 0.95


Results = Mapping[str, Sequence[tuple[Item, str]]]  # by skill: what was asked and the reply


@dataclass(frozen=True, slots=True)
class Sitting:
    """Which exam is sat, and how."""

    wordings: str  # a file in `words/`
    num_items: int  # of each skill
    skills: tuple[str, ...] = SKILLS
    seed: int = 1
    num_at_once: int = 1


class Candidate(Protocol):
    """Whoever sits the exam."""

    async def reply(self, item: Item) -> str:
        """The whole answer to one item, greedy."""
        ...


class Server:
    """A server that speaks OpenAI's chat completions; its first model sits the exam."""

    def __init__(self, url: str) -> None:
        self._client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
        self._model = OpenAI(base_url=url, api_key="none").models.list().data[0].id

    async def reply(self, item: Item) -> str:
        """Post the conversation."""
        completion = await self._client.chat.completions.create(
            model=self._model,
            messages=[_as_message(turn) for turn in item.turns],  # type: ignore[misc]
            max_tokens=MAX_ANSWER_TOKENS,
            temperature=0,
        )
        return completion.choices[0].message.content or ""


def _as_message(turn: Turn) -> dict[str, Any]:
    if len(turn.parts) == 1 and isinstance(turn.parts[0], str):
        return {"role": turn.role, "content": turn.parts[0]}
    return {"role": turn.role, "content": [_as_part(part) for part in turn.parts]}


def _as_part(part: str | bytes) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    media_type = "png" if part.startswith(b"\x89PNG") else "jpeg"
    encoded = base64.b64encode(part).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{media_type};base64,{encoded}"}}


class Local:
    """A checkpoint directory, run by transformers."""

    def __init__(self, directory: Path) -> None:
        self._model = AutoModelForImageTextToText.from_pretrained(
            directory, dtype=torch.float32
        ).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        self._processor = Qwen2VLImageProcessorPil.from_pretrained(directory)
        self._pad_id = self._model.config.image_token_id

    async def reply(self, item: Item) -> str:
        """Generate with the library, as its own processor would prepare it."""
        turns = [_as_message(turn) for turn in item.turns]
        text = self._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        parts = [part for turn in item.turns for part in turn.parts if isinstance(part, bytes)]
        images = [Image.open(io.BytesIO(part)).convert("RGB") for part in parts]
        inputs = self._prepare(text, images)
        with torch.no_grad():
            ids = self._model.generate(**inputs, max_new_tokens=MAX_ANSWER_TOKENS, do_sample=False)
        new_ids = ids[0, inputs["input_ids"].shape[1] :]
        return str(self._tokenizer.decode(new_ids, skip_special_tokens=True))

    def _prepare(self, text: str, images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        inputs: dict[str, torch.Tensor] = {}
        if images:
            features = self._processor(images=images, return_tensors="pt")
            for grid in features["image_grid_thw"]:  # one placeholder becomes one per token
                num_tokens = int(grid.prod()) // 4
                text = text.replace("<|image_pad|>", "<|video_pad|>" * num_tokens, 1)
            text = text.replace("<|video_pad|>", "<|image_pad|>")
            inputs = dict(features)
        ids = self._tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        if images:
            inputs["mm_token_type_ids"] = (ids == self._pad_id).int()
        return {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}


async def _sit(
    candidate: Candidate, items: Iterable[Item], num_at_once: int
) -> AsyncIterator[tuple[Item, str]]:
    """Replies in the order of the items, some at once."""
    gate = asyncio.Semaphore(num_at_once)

    async def answer(item: Item) -> tuple[Item, str]:
        async with gate:
            return item, await candidate.reply(item)

    for done in asyncio.as_completed([asyncio.create_task(answer(item)) for item in items]):
        yield await done


async def examine(candidate: Candidate, sitting: Sitting) -> Results:
    """All replies by skill."""
    wordings = load(sitting.wordings)
    results: dict[str, list[tuple[Item, str]]] = {}
    for skill in tqdm(sitting.skills, desc="exam"):
        items = set_exam(skill, wordings, sitting.num_items, sitting.seed)
        results[skill] = [pair async for pair in _sit(candidate, items, sitting.num_at_once)]
    return results


def as_table(results: Results) -> str:
    """A Markdown table, one row a skill."""
    lines = ["| skill | n | exact | passes |", "|---|---|---|---|"]
    for skill, pairs in results.items():
        share = sum(item.answer == reply for item, reply in pairs) / len(pairs)
        lines.append(
            f"| {skill} | {len(pairs)} | {share:.3f} | {'yes' if share >= BAR else 'no'} |"
        )
    return "\n".join(lines)


def as_misses(results: Results, num_shown: int) -> str:
    """The wordings that fail most, with an example each."""
    lines = []
    for skill, pairs in results.items():
        misses = collections.Counter(i.wording for i, reply in pairs if i.answer != reply)
        for wording, count in misses.most_common(num_shown):
            item, reply = next(p for p in pairs if p[0].wording == wording and p[0].answer != p[1])
            lines.append(f"{skill}: {count} x {wording!r}: {item.answer!r}, said {reply!r}")
    return "\n".join(lines)


def main() -> None:
    """Sit the exam and print the table, then what went wrong."""
    options = _read_options()
    torch.set_num_threads(1)
    candidate = Server(options.url) if options.url else Local(options.local)
    sitting = Sitting(
        wordings=options.wordings,
        num_items=options.items,
        skills=tuple(options.skills or SKILLS),
        seed=options.seed,
        num_at_once=options.at_once,
    )
    results = asyncio.run(examine(candidate, sitting))
    print(as_table(results))
    print(as_misses(results, options.misses))
    if options.out:
        options.out.write_text(json.dumps(_as_records(results), indent=1))


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--url", help="an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
    )
    where.add_argument("--local", type=Path, help="a checkpoint directory, run by transformers")
    parser.add_argument(
        "--wordings",
        choices=("training", "watched", "final"),
        default="watched",
        help="final: those kept for the model card; training has none for chat",
    )
    parser.add_argument("--items", type=int, default=300, help="questions per skill")
    parser.add_argument("--skills", nargs="*", choices=SKILLS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=8, help="requests in flight")
    parser.add_argument("--misses", type=int, default=3, help="failing wordings shown per skill")
    parser.add_argument("--out", type=Path, help="write all replies here, as JSON")
    return parser.parse_args()


def _as_records(results: Results) -> list[dict[str, str]]:
    return [
        {"skill": skill, "wording": item.wording, "answer": item.answer, "reply": reply}
        for skill, pairs in results.items()
        for item, reply in pairs
    ]


if __name__ == "__main__":
    main()
