"""Likelihoods of prompts told back by completions, held to the library's logits.

This is what evaluation harnesses ask for: the likelihood of a continuation is the sum over its
tokens, all of them in the prompt.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import openai
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from tests.journeys.server import Server, running
from tests.pictures import image_part, noise, text_part

pytestmark = pytest.mark.slow

TOLERANCE = 1e-3
NUM_TOP = 5
PLAIN_IDS = range(760)  # of the random checkpoints; the others are special
TEXTS = (
    "What can you do?",
    "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n",
    "Ünï cöde 🦊 and 日本, e\u0301 and  spaces\n\n",
    "a",
    "The fox says: " + "ring ding ding, " * 30,
)
Prompt = str | list[int]


@dataclass(frozen=True)
class Subject:
    """A served checkpoint with the library's model and tokenizer of the same."""

    server: Server
    model: Any
    tokenizer: Any

    def ids_of(self, prompt: Prompt) -> list[int]:
        return list(self.tokenizer.encode(prompt)) if isinstance(prompt, str) else prompt

    @torch.inference_mode()
    def scores(self, ids: list[int]) -> torch.Tensor:
        """Logarithms of probabilities of what comes after each token, [tokens, vocab]."""
        logits: torch.Tensor = self.model(input_ids=torch.tensor([ids])).logits[0]
        return logits.float().log_softmax(-1)


def complete(server: Server, prompt: Any, **options: Any) -> Any:
    wishes = {"echo": True, "logprobs": NUM_TOP, "max_tokens": 1, "temperature": 0}
    return server.client.completions.create(model=server.model, prompt=prompt, **(wishes | options))


@pytest.fixture(scope="module", params=[*ALL_MODEL_TYPES, "demo"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Subject]:
    name = request.param
    folder = tmp_path_factory.mktemp("checkpoints")
    path = DEMO_MODEL if name == "demo" else make_checkpoint(folder, name)
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    # Small steps, so that prompts are cut.
    with running(model=path, max_step_tokens=48) as server:
        yield Subject(server, model.eval(), tokenizer)


def make_prompts() -> list[Prompt]:
    chance = random.Random(8)
    lengths = (1, 2, 47, 48, 49, 300)
    return [*TEXTS, *(chance.choices(PLAIN_IDS, k=length) for length in lengths)]


def agrees(subject: Subject, prompt: Prompt, log: Any, shift: int = 0) -> bool:
    """Whether a log tells what the library says of the prompt, from the row `shift` on."""
    ids = subject.ids_of(prompt)
    rows = subject.scores(ids)[shift:-1]
    told = torch.tensor(log.token_logprobs[1 : len(rows) + 1])
    expected = rows.gather(1, torch.tensor(ids[1 : len(rows) + 1])[:, None])[:, 0]
    is_near = torch.allclose(told, expected, atol=TOLERANCE)
    for row, top in zip(rows, log.top_logprobs[1:], strict=False):
        best = sorted(top.values(), reverse=True)[:1]
        is_near &= best == pytest.approx(row.topk(1).values.tolist(), abs=TOLERANCE)
    return bool(is_near)


def check(subject: Subject, prompt: Prompt, answer: Any) -> None:
    ids = subject.ids_of(prompt)
    (choice,) = answer.choices
    log = choice.logprobs
    assert answer.usage.prompt_tokens == len(ids)
    num_tokens = len(ids) + answer.usage.completion_tokens
    columns = (log.tokens, log.token_logprobs, log.top_logprobs, log.text_offset)
    assert [len(column) for column in columns] == [num_tokens] * 4
    assert (log.token_logprobs[0], log.top_logprobs[0], log.text_offset[0]) == (None, None, 0)
    assert agrees(subject, prompt, log)
    told = subject.tokenizer.decode(ids) if isinstance(prompt, list) else prompt
    assert choice.text.startswith(told)
    for token, start in zip(log.tokens, log.text_offset, strict=True):
        if not token.startswith("bytes:") and start < len(told):
            assert choice.text[start : start + len(token)] == token


def test_prompts_are_told_of_as_the_library_scores_them_alone_and_among_others(
    subject: Subject,
) -> None:
    prompts = make_prompts()
    for prompt in prompts:
        check(subject, prompt, complete(subject.server, prompt))
    tasks: list[Any] = [*prompts * 2, *range(8)]
    random.Random(9).shuffle(tasks)

    def one(task: Any) -> Any:
        if not isinstance(task, int):
            return complete(subject.server, task)
        parts = [image_part(noise(task, (60 + 9 * task, 90))), text_part(f"What is it? {task}")]
        return subject.server.client.chat.completions.create(
            model=subject.server.model,
            messages=[{"role": "user", "content": parts}],
            max_tokens=6,
        )

    with ThreadPoolExecutor(12) as threads:
        for task, answer in zip(tasks, threads.map(one, tasks), strict=True):
            if not isinstance(task, int):
                check(subject, task, answer)


def test_control_the_row_beside_would_be_noticed(subject: Subject) -> None:
    for prompt in make_prompts():
        if len(subject.ids_of(prompt)) > 2:
            log = complete(subject.server, prompt).choices[0].logprobs
            assert not agrees(subject, prompt, log, shift=1)


def test_a_continuation_is_weighed_as_harnesses_weigh_it(subject: Subject) -> None:
    """The likelihood of what comes after a context, and whether the model itself would say it."""
    verdicts = set[bool]()
    for text in TEXTS[:3]:
        context = subject.ids_of(text)
        scores = subject.scores(context)[-1]
        best, second = map(int, scores.topk(2).indices)
        for first in (best, second):
            ids = [*context, first]
            after = subject.scores(ids)[-1]
            ids.append(int(after.argmax()))
            log = complete(subject.server, ids, logprobs=1, seed=1234).choices[0].logprobs
            told, top = (
                column[len(context) : -1] for column in (log.token_logprobs, log.top_logprobs)
            )
            expected = (scores[first] + after.max()).item()
            assert sum(told) == pytest.approx(expected, abs=TOLERANCE)
            is_greedy = all(one == max(row.values()) for one, row in zip(told, top, strict=True))
            assert is_greedy == (first != second)
            verdicts.add(is_greedy)
    assert verdicts == {True, False}


@pytest.mark.parametrize("subject", ["qwen3_vl"], indirect=True)
def test_tokens_of_one_text_are_told_apart_by_their_bytes(subject: Subject) -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    prompt = "🦊日本é"
    log = complete(subject.server, prompt, max_tokens=0).choices[0].logprobs
    spelt = b""
    for token, token_id in zip(log.tokens, tokenizer.encode(prompt).ids, strict=True):
        is_text = not token.startswith("bytes:")
        spelt += token.encode() if is_text else bytes.fromhex(token[6:].replace("\\x", ""))
        assert is_text == ("\ufffd" not in tokenizer.decode([token_id]))
    assert spelt.decode() == prompt
    assert log.text_offset == [len(spelt[:at].decode(errors="ignore")) for at in places(log)]


def places(log: Any) -> list[int]:
    """The byte where each token begins."""
    found, at = [], 0
    for token in log.tokens:
        found.append(at)
        at += token.count("\\x") if token.startswith("bytes:") else len(token.encode())
    return found


def test_nothing_more_may_be_asked_for_than_the_prompt(subject: Subject) -> None:
    for prompt in make_prompts():
        both, bare = (complete(subject.server, prompt, max_tokens=most) for most in (1, 0))
        choice, num_tokens = bare.choices[0], len(subject.ids_of(prompt))
        assert choice.finish_reason == "length"
        assert both.choices[0].text.startswith(choice.text)
        assert (bare.usage.completion_tokens, bare.usage.total_tokens) == (0, num_tokens)
        assert choice.logprobs.tokens == both.choices[0].logprobs.tokens[:num_tokens]
        assert agrees(subject, prompt, choice.logprobs)
    plain = complete(subject.server, "Only this", max_tokens=0, logprobs=None).choices[0]
    assert (plain.text, plain.logprobs, plain.finish_reason) == ("Only this", None, "length")


def put_together(chunks: list[Any], num_choices: int) -> list[dict[str, Any]]:
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    told: list[dict[str, Any]] = [
        {"text": "", "reason": None, **{name: [] for name in names}} for _ in range(num_choices)
    ]
    for chunk in chunks:
        for choice in chunk.choices:
            one = told[choice.index]
            assert one["reason"] is None
            assert not choice.text or choice.logprobs is not None
            one["text"] += choice.text
            one["reason"] = choice.finish_reason
            for name in names:
                one[name] += getattr(choice.logprobs, name) if choice.logprobs else []
    return told


@pytest.mark.parametrize("subject", ["qwen2_5_vl"], indirect=True)
@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("max_tokens", [0, 9])
def test_a_stream_of_several_prompts_and_choices_is_the_answer_cut_up(
    subject: Subject, num_choices: int, max_tokens: int
) -> None:
    prompts, server = list(TEXTS), subject.server
    options = {"n": num_choices, "max_tokens": max_tokens, "temperature": 1, "seed": 6}
    for _ in ("cold", "known"):
        whole = complete(server, prompts, **options)
        told = put_together(
            list(complete(server, prompts, stream=True, **options)), len(whole.choices)
        )
        assert len(whole.choices) == len(TEXTS) * num_choices
        assert whole.usage.prompt_tokens == sum(len(subject.ids_of(text)) for text in TEXTS)
        for choice, one in zip(whole.choices, told, strict=True):
            prompt = prompts[choice.index // num_choices]
            assert agrees(subject, prompt, choice.logprobs)
            assert (one["text"], one["reason"]) == (choice.text, choice.finish_reason)
            assert one["text"].startswith(prompt)
            for name in ("tokens", "text_offset"):
                assert one[name] == getattr(choice.logprobs, name)
            assert one["token_logprobs"][1:] == pytest.approx(
                choice.logprobs.token_logprobs[1:], abs=TOLERANCE
            )


@pytest.mark.parametrize("subject", ["demo"], indirect=True)
def test_the_token_that_ends_an_answer_has_its_row(subject: Subject) -> None:
    prompt = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
    end = subject.tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = subject.ids_of(prompt)
    for stop in ({"logit_bias": {end: 100}}, {"extra_body": {"stop_token_ids": [40]}}):
        options = stop if "logit_bias" in stop else stop | {"logit_bias": {40: 100}}
        answer = complete(subject.server, prompt, **options)
        (choice,) = answer.choices
        assert (choice.text, choice.finish_reason) == (prompt, "stop")
        assert answer.usage.completion_tokens == 1
        assert len(choice.logprobs.tokens) == len(ids) + 1
        last = end if "logit_bias" in stop else 40
        assert choice.logprobs.tokens[-1] == subject.tokenizer.decode([last])
        expected = subject.scores(ids)[-1][last].item()
        assert choice.logprobs.token_logprobs[-1] == pytest.approx(expected, abs=TOLERANCE)
    answer = complete(subject.server, prompt, max_tokens=40, stop="e")
    shown = complete(subject.server, prompt, max_tokens=40, logprobs=None, stop="e")
    assert answer.choices[0].text == shown.choices[0].text


def test_an_answer_that_is_all_control_tokens_has_its_rows(subject: Subject) -> None:
    if subject.server.model == "demo_model":
        pytest.skip("the random checkpoints will do")
    control = subject.tokenizer.convert_tokens_to_ids("<|vision_start|>")
    answer = complete(
        subject.server,
        "Go on.",
        max_tokens=5,
        logit_bias={control: 100},
        extra_body={"ignore_eos": True},
    )
    (choice,) = answer.choices
    assert choice.text == "Go on."
    assert choice.logprobs.tokens[-5:] == ["<|vision_start|>"] * 5
    assert choice.logprobs.text_offset[-5:] == [len("Go on.")] * 5


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0, "echo": False}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"max_tokens": 0, "extra_body": {"min_tokens": 1}}, "min_tokens"),
        ({"prompt": [[5] * 1600] * 8, "logprobs": 20, "max_tokens": 0}, "logprobs"),
        ({"prompt": [5] * 1600, "logprobs": 20, "n": 8}, "logprobs"),
    ],
)
def test_what_is_too_much_is_refused_by_name(
    demo: Server, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(demo, fields.pop("prompt", "a"), **fields)
    assert caught.value.param == param


def test_the_limit_of_what_is_told_is_named_with_the_number(demo: Server) -> None:
    with pytest.raises(openai.BadRequestError, match=r"268800 numbers or more.*is 262144"):
        complete(demo, [5] * 1600, logprobs=20, n=8)
    assert len(complete(demo, [5] * 1600, logprobs=20).choices[0].logprobs.tokens) == 1601


def test_a_prompt_alone_may_fill_the_context(demo: Server) -> None:
    answer = complete(demo, [5] * 2048, max_tokens=0, logprobs=0)
    assert len(answer.choices[0].logprobs.tokens) == 2048
    with pytest.raises(openai.BadRequestError, match="2048"):
        complete(demo, [5] * 2048)
