"""lm-evaluation-harness: what it makes of the server's likelihoods is what the library says."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from tests.checkpoints import make_checkpoint
from tests.journeys.server import Server, running

completions = pytest.importorskip("lm_eval.models.openai_completions")
instance = pytest.importorskip("lm_eval.api.instance")
utils = pytest.importorskip("lm_eval.utils")

pytestmark = pytest.mark.slow

CONTEXTS = ("A red", "What can you do?", "Once upon a time, Zoë 🦊", "1, 2, 3,")
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Any, Any]]:
    """A server, with the library's model and tokenizer of its random checkpoint."""
    path = make_checkpoint(tmp_path_factory.mktemp("weighed"), "qwen2_5_vl")
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    with running(model=path) as server:
        yield server, model.eval(), transformers.AutoTokenizer.from_pretrained(path)


def harness(server: Server, tokenizer: Any, **options: Any) -> Any:
    return completions.LocalCompletionsAPI(
        base_url=f"{server.url}/v1/completions",
        model=server.model,
        tokenizer=tokenizer.name_or_path,
        tokenizer_backend="huggingface",
        max_length=MAX_TOKENS,
        **options,
    )


def asked(kind: str, *arguments: Any) -> Any:
    return instance.Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


@torch.inference_mode()
def weigh(model: Any, ids: list[int], num_context: int) -> tuple[float, bool]:
    """The likelihood of what comes after the context, and whether each token is the likeliest."""
    rows = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
    rows, ids = rows[num_context - 1 : -1], ids[num_context:]
    total = rows.gather(1, torch.tensor(ids)[:, None]).sum().item()
    return total, rows.argmax(-1).tolist() == ids


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 1},
        {"batch_size": 5},
        {"batch_size": 1, "num_concurrent": 4},
        {"batch_size": 1, "tokenized_requests": False},
    ],
    ids=str,
)
def test_continuations_are_weighed_as_the_library_does(
    served: tuple[Server, Any, Any], options: dict[str, Any]
) -> None:
    server, model, tokenizer = served
    pairs: list[tuple[str, str]] = []
    for context in CONTEXTS:
        ids = tokenizer.encode(context)
        best = model(input_ids=torch.tensor([ids])).logits[0, -1, :700].topk(50).indices.tolist()
        likely = (tokenizer.decode([each]) for each in best)
        pairs.append((context, next(word for word in likely if word.isascii() and word.strip())))
        pairs.append((context, " square and no circle"))
    lm = harness(server, tokenizer, **options)
    found = lm.loglikelihood([asked("loglikelihood", *pair) for pair in pairs])
    for (context, more), (total, is_greedy) in zip(pairs, found, strict=True):
        num_context = len(tokenizer.encode(context))
        ids = tokenizer.encode(context + more)
        expected = weigh(model, ids, num_context)
        assert total == pytest.approx(expected[0], abs=1e-3)
        assert is_greedy == expected[1]


def test_long_texts_are_weighed_in_windows(served: tuple[Server, Any, Any]) -> None:
    server, model, tokenizer = served
    text = "The circle is red, the square is blue. " * 20
    lm = harness(server, tokenizer, batch_size=1, custom_prefix_token_id=762)
    (total,) = lm.loglikelihood_rolling([asked("loglikelihood_rolling", text)])
    rolled = utils.get_rolling_token_windows(
        tokenizer.encode(text), prefix_token=762, max_seq_len=lm.max_length - 1, context_len=1
    )
    windows = list(map(utils.make_disjoint_window, rolled))
    assert len(windows) > 2
    expected = sum(weigh(model, [*first, *more], len(first))[0] for first, more in windows)
    assert total == pytest.approx(expected, abs=1e-2)


def test_answers_are_generated_up_to_where_a_task_stops_them(
    served: tuple[Server, Any, Any],
) -> None:
    server, _, tokenizer = served
    lm = harness(server, tokenizer, batch_size=1)
    wishes = {"until": ["e"], "max_gen_toks": 20}
    found = lm.generate_until([asked("generate_until", each, dict(wishes)) for each in CONTEXTS])
    for context, told in zip(CONTEXTS, found, strict=True):
        answer = server.client.completions.create(
            model=server.model, prompt=context, max_tokens=20, temperature=0, stop=["e"]
        )
        assert told == answer.choices[0].text
