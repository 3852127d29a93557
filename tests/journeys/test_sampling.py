"""How tokens are chosen, and what is told of it, through the official client."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
import torch
import transformers

from config.settings import DEMO_MODEL
from tests.checkpoints import make_checkpoint
from tests.journeys.server import Server, running
from tests.pictures import draw_shape, image_part, noise, text_part
from tests.workers.language.wishes import make_sequence, make_wish, wished_scores

pytestmark = pytest.mark.slow

TELL = "Tell me a long story about red and blue squares, please."
NUM_TOKENS = 24


@dataclass(frozen=True)
class Subject:
    """A served checkpoint with the library's model and tokenizer of the same."""

    server: Server
    model: Any
    tokenizer: Any

    def prompt_ids(self, text: str) -> list[int]:
        messages = [{"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return list(ids["input_ids"])

    def scores(self, ids: list[int]) -> torch.Tensor:
        """Logits after each of these tokens, [tokens, vocab]."""
        with torch.inference_mode():
            found: torch.Tensor = self.model(input_ids=torch.tensor([ids])).logits[0]
        return found


@dataclass
class Told:
    """One choice put together, from a whole answer or from a stream."""

    text: str = ""
    reason: str = ""
    entries: list[Any] = field(default_factory=list)


def same(one: list[Told], other: list[Told]) -> bool:
    """Whether these are equal, but for the last bits of logprobs, which others in a batch move."""

    return len(one) == len(other) and all(map(_is_same, one, other))


def _is_same(one: Told, other: Told) -> bool:
    values, others = (
        [each.logprob for entry in told.entries for each in (entry, *entry.top_logprobs)]
        for told in (one, other)
    )
    return (
        (one.text, one.reason) == (other.text, other.reason)
        and [entry.bytes for entry in one.entries] == [entry.bytes for entry in other.entries]
        and values == pytest.approx(others, abs=1e-3)
    )


def ask(server: Server, content: Any, **options: Any) -> Any:
    extra = {name: options.pop(name) for name in list(options) if name in EXTENSIONS}
    return server.client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": content}],
        extra_body=extra,
        **options,
    )


EXTENSIONS = {
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
    "ignore_eos",
}


def whole(server: Server, content: Any, **options: Any) -> list[Told]:
    answer = ask(server, content, **options)
    assert [choice.index for choice in answer.choices] == list(range(options.get("n", 1)))
    return [
        Told(
            choice.message.content,
            choice.finish_reason,
            choice.logprobs.content if choice.logprobs else [],
        )
        for choice in answer.choices
    ]


def streamed(server: Server, content: Any, **options: Any) -> list[Told]:
    told = [Told() for _ in range(options.get("n", 1))]
    for chunk in ask(server, content, stream=True, **options):
        for choice in chunk.choices:
            one = told[choice.index]
            assert not one.reason, "something came after the end of a choice"
            one.text += choice.delta.content or ""
            one.reason = choice.finish_reason or ""
            one.entries += choice.logprobs.content if choice.logprobs else []
    return told


@pytest.fixture(scope="module")
def subject(demo: Server) -> Subject:
    model = transformers.AutoModelForImageTextToText.from_pretrained(
        DEMO_MODEL, dtype=torch.float32
    )
    return Subject(demo, model.eval(), transformers.AutoTokenizer.from_pretrained(DEMO_MODEL))


@pytest.fixture(scope="module")
def random_subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """Random weights: any byte follows any other, so characters come broken."""
    path = make_checkpoint(tmp_path_factory.mktemp("checkpoints"), "qwen3_vl")
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    with running(model=path) as server:
        yield Subject(server, model.eval(), tokenizer)


WISHES: list[dict[str, Any]] = [
    {"frequency_penalty": 2.0},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.4},
    {"frequency_penalty": -1.0, "presence_penalty": 0.8, "repetition_penalty": 1.1},
    {"frequency_penalty": 1.9, "presence_penalty": -2.0},
]
# Random weights repeat nothing by themselves; with these likely, they do.
FEW = dict.fromkeys(range(40, 44), 30.0)


def reference(subject: Subject, text: str, **wish: Any) -> str:
    """The greedy answer under a wish, by plain numbers over the library's logits."""
    prompt = subject.prompt_ids(text)
    sequence = make_sequence(prompt, make_wish(**wish))
    for _ in range(NUM_TOKENS):
        scores = wished_scores(subject.scores(sequence.token_ids)[-1].tolist(), sequence)
        sequence.token_ids.append(max(range(len(scores)), key=scores.__getitem__))
    answer: str = subject.tokenizer.decode(
        sequence.token_ids[len(prompt) :], skip_special_tokens=True
    )
    return answer


@pytest.mark.parametrize("wish", WISHES)
def test_wishes_change_a_greedy_answer_as_plain_numbers_say(
    random_subject: Subject, wish: dict[str, Any]
) -> None:
    subject = random_subject
    options = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0}
    (plain,) = whole(subject.server, TELL, logit_bias=FEW, **options)
    (told,) = whole(subject.server, TELL, logit_bias=FEW, **options, **wish)
    assert plain.text == reference(subject, TELL, logit_bias=FEW)
    assert told.text == reference(subject, TELL, logit_bias=FEW, **wish)
    assert told.text != plain.text


@pytest.mark.parametrize("top_logprobs", [0, 4, 20])
def test_logprobs_are_the_librarys_streamed_or_not(subject: Subject, top_logprobs: int) -> None:
    options = {"max_tokens": 12, "logprobs": True, "top_logprobs": top_logprobs, "seed": 3}
    (told,) = whole(subject.server, TELL, temperature=0.9, presence_penalty=1.0, **options)
    (again,) = streamed(subject.server, TELL, temperature=0.9, presence_penalty=1.0, **options)
    assert same([told], [again])
    assert b"".join(bytes(entry.bytes) for entry in told.entries).decode() == told.text
    prompt = subject.prompt_ids(TELL)
    ids = [subject.tokenizer.convert_tokens_to_ids(_letters(entry)) for entry in told.entries]
    rows = subject.scores(prompt + ids).log_softmax(-1)[len(prompt) - 1 : -1]
    for row, token_id, entry in zip(rows, ids, told.entries, strict=True):
        assert entry.logprob == pytest.approx(row[token_id].item(), abs=1e-3)
        assert [each.logprob for each in entry.top_logprobs] == pytest.approx(
            row.topk(top_logprobs).values.tolist(), abs=1e-3
        )


def _letters(entry: Any) -> str:
    from gateway.prompts.letters import LETTERS

    return "".join(LETTERS[byte] for byte in entry.bytes)


def test_bytes_of_broken_characters_are_right(random_subject: Subject) -> None:
    options = {"max_tokens": 80, "ignore_eos": True, "temperature": 2.0, "logprobs": True}
    for seed in range(4):
        (told,) = streamed(random_subject.server, "Go", seed=seed, **options)
        told_bytes = b"".join(bytes(entry.bytes) for entry in told.entries)
        assert told_bytes.decode(errors="replace") == told.text
        assert "\ufffd" in told.text
        assert same([told], whole(random_subject.server, "Go", seed=seed, **options))


@pytest.mark.parametrize("tell", [whole, streamed])
def test_tokens_behind_a_stop_string_are_not_told(subject: Subject, tell: Any) -> None:
    options = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0, "logprobs": True}
    (plain,) = tell(subject.server, TELL, **options)
    middle = len(plain.text) // 2
    stop = plain.text[middle : middle + 3]
    (cut,) = tell(subject.server, TELL, stop=stop, **options)
    assert cut.reason == "stop"
    assert cut.text == plain.text[: plain.text.index(stop)]
    shown = b"".join(bytes(entry.bytes) for entry in cut.entries).decode()
    assert shown.startswith(cut.text)
    assert stop not in shown[: len(cut.text) + len(stop) - 1]
    shown_entries = plain.entries[: len(cut.entries)]
    assert same([cut], [Told(cut.text, "stop", shown_entries)])


def test_without_logprobs_none_are_told(subject: Subject) -> None:
    answer = ask(subject.server, TELL, max_tokens=3)
    assert answer.choices[0].logprobs is None


def test_greedy_choices_are_equal_and_the_prompt_counts_once(demo: Server) -> None:
    parts = [image_part(draw_shape("red", "circle")), text_part("What shape is this?")]
    one, many = ask(demo, parts), ask(demo, parts, n=5)
    assert [choice.message.content for choice in many.choices] == ["circle"] * 5
    assert many.usage.prompt_tokens == one.usage.prompt_tokens
    assert many.usage.completion_tokens == 5 * one.usage.completion_tokens
    assert many.usage.total_tokens == many.usage.prompt_tokens + many.usage.completion_tokens
    details = many.usage.prompt_tokens_details.model_dump()
    assert details["image_tokens"] == one.usage.prompt_tokens_details.model_dump()["image_tokens"]


def test_choices_differ_repeat_and_are_streamed_as_they_are_told_whole(
    random_subject: Subject,
) -> None:
    server = random_subject.server
    content = [image_part(noise(5, (90, 61))), text_part("Go"), image_part(noise(6, (64, 130)))]
    options = {"max_tokens": 10, "temperature": 1.0, "seed": 11, "logprobs": True}
    told = whole(server, content, n=8, **options)
    assert len({one.text for one in told}) == 8
    assert same(streamed(server, content, n=8, **options), told)
    assert same(whole(server, content, n=3, **options), told[:3])
    assert same(whole(server, content, **options), told[:1])


def test_choices_of_a_stream_each_begin_and_end_once(demo: Server) -> None:
    options = {"n": 3, "max_tokens": 6, "temperature": 1.0, "seed": 2, "ignore_eos": True}
    chunks = list(ask(demo, TELL, stream=True, stream_options={"include_usage": True}, **options))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    for index in range(3):
        own = [choice for choice in choices if choice.index == index]
        assert [choice.delta.role for choice in own].count("assistant") == 1
        assert own[0].delta.role == "assistant"
        assert [choice.finish_reason for choice in own if choice.finish_reason] == ["length"]
        assert own[-1].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 18
    order = [choice.index for choice in choices if choice.delta.content]
    assert order != sorted(order), "choices came one after the other"


def test_a_client_that_leaves_ends_all_choices(demo: Server) -> None:
    content = [image_part(noise(9, (70, 90))), text_part("Go on.")]
    stream = ask(demo, content, stream=True, n=4, max_tokens=1900, ignore_eos=True)
    for chunk, _ in zip(stream, range(8), strict=False):
        assert chunk.choices
    demo.wait_for("fovea_worker_running", 4)
    stream.close()
    demo.wait_for("fovea_requests_running", 0)
    demo.wait_for("fovea_worker_running", 0)
    demo.wait_for("fovea_arena_used_bytes", 0)


def test_seeded_answers_repeat_alone_and_among_others(random_subject: Subject) -> None:
    server = random_subject.server
    wishes: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 1.3, "top_p": 0.9},
        {"temperature": 0.8, "top_k": 30, "frequency_penalty": 1.0},
        {"temperature": 1.0, "min_p": 0.05, "presence_penalty": 1.0},
        {"temperature": 1.0, "repetition_penalty": 1.2, "n": 2},
        {"temperature": 1.5, "logit_bias": {50: 4.0}, "logprobs": True, "top_logprobs": 2},
        {"temperature": 1.0, "min_tokens": 10},
        {"temperature": 0.0, "frequency_penalty": 2.0},
    ]

    def one(number: int) -> list[Told]:
        return whole(server, f"Go {number}", seed=number, max_tokens=20, **wishes[number])

    alone = [one(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert all(map(same, pool.map(one, range(8)), alone))
    assert not same(whole(server, "Go 0", seed=100, max_tokens=20, **wishes[0]), alone[0])


def test_the_callers_stop_tokens_end_an_answer(subject: Subject) -> None:
    options = {"max_tokens": NUM_TOKENS, "temperature": 0}
    (plain,) = whole(subject.server, TELL, logprobs=True, ignore_eos=True, **options)
    stop = plain.entries[5]
    token_id = subject.tokenizer.convert_tokens_to_ids(_letters(stop))
    first = next(at for at, entry in enumerate(plain.entries) if entry.bytes == stop.bytes)
    expected = "".join(entry.token for entry in plain.entries[:first])
    for ignore_eos in (False, True):
        answer = ask(
            subject.server, TELL, stop_token_ids=[token_id], ignore_eos=ignore_eos, **options
        )
        assert answer.choices[0].message.content == expected
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == first + 1


def test_min_tokens_puts_every_kind_of_stop_off(subject: Subject) -> None:
    options = {"max_tokens": 12, "temperature": 0}
    end = subject.tokenizer.convert_tokens_to_ids("<|im_end|>")
    for wish in ({"logit_bias": {end: 100}}, {"stop_token_ids": [40], "logit_bias": {40: 100}}):
        for count in (0, 7):
            answer = ask(subject.server, TELL, min_tokens=count, **wish, **options)
            assert answer.choices[0].finish_reason == "stop"
            assert answer.usage.completion_tokens == count + 1
    (letter,) = subject.tokenizer.encode("a")
    wish = {"logit_bias": {letter: 100}, "stop": "aa"}
    assert whole(subject.server, TELL, **wish, **options)[0].text == ""
    assert whole(subject.server, TELL, min_tokens=5, **wish, **options)[0].text == "aaaa"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 9}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5000": 1}}, "logit_bias.5000"),
        ({"logit_bias": {"50": 101}}, "logit_bias.50"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -2.5}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 2}, "min_p"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"stop_token_ids": [5000]}, "stop_token_ids[0]"),
    ],
)
def test_wrong_wishes_are_the_callers_by_name(
    demo: Server, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(demo, "Hello", **fields)
    assert caught.value.param == param
    assert param.split(".")[0].split("[")[0] in str(caught.value)


def test_extreme_wishes_are_answered(demo: Server) -> None:
    extreme: list[dict[str, Any]] = [
        {"repetition_penalty": 100, "frequency_penalty": -2, "temperature": 2},
        {"repetition_penalty": 0.01, "presence_penalty": 2, "temperature": 0.001},
        {"logit_bias": {str(token): -100 for token in range(700)}, "top_p": 0.01},
        {"min_tokens": 6, "stop_token_ids": list(range(64)), "min_p": 1},
        {"n": 8, "logprobs": True, "top_logprobs": 20, "temperature": 2, "seed": -(2**63)},
    ]
    for fields in extreme:
        answer = ask(demo, "Hello", max_tokens=6, **fields)
        for choice in answer.choices:
            assert choice.finish_reason in ("stop", "length")
            told = choice.logprobs.content if choice.logprobs else []
            assert all(math.isfinite(entry.logprob) for entry in told)
