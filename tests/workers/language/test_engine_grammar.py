"""Answers that follow grammars, through a whole engine: what they are, and that nobody waits."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from config.settings import DEMO_MODEL
from gateway.prompts.checkpoint import load_checkpoint
from gateway.structured.json_grammar import OPTIONS, schema_rule
from tests.schemas import SCHEMAS, Schema
from tests.workers.language.engines import answers, drain, last_events, make_engine, run
from tests.workers.language.models import LentArenas, Model, make_job, make_request
from tests.workers.language.wishes import make_wish
from workers.language.engine import Engine
from workers.language.grammar import Follower, Grammars
from workers.messages import Failed, Finished, FromWorker, GenerateJob, Tokens, Vocabulary

END = 762
NAMES = ("record", "list of records", "any of", "pattern", "reference", "enum")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """The demo model's, which all of these models share."""
    return load_checkpoint(Path(DEMO_MODEL)).vocabulary()


def grammar_of(schema: Schema) -> str:
    return f"{OPTIONS}start: {schema_rule(schema, 'schema').text}\n"


def guided(
    model: Model, arenas: LentArenas, number: int, schema: Schema, **wish: Any
) -> GenerateJob:
    fields: dict[str, Any] = {
        "max_tokens": 400,
        "stop_token_ids": (END,),
        "grammar": grammar_of(schema),
        "temperature": 1.0,
        "seed": number,
    }
    return make_job(
        arenas,
        make_request(model, 90 + number, number % 2),
        f"g{number}",
        make_wish(**fields | wish),
    )


def free(model: Model, arenas: LentArenas, number: int, max_tokens: int = 40) -> GenerateJob:
    request = replace(make_request(model, 60 + number, number % 2), max_tokens=max_tokens)
    return make_job(arenas, request, f"f{number}")


def spelt(vocabulary: Vocabulary, token_ids: list[int]) -> str:
    return b"".join(vocabulary.spellings[token_id] for token_id in token_ids).decode()


SLOW: Schema = {"const": "slow"}


class GatedGrammars(Grammars):
    """The schema SLOW, and all looks of answers while `is_slow`, wait until a gate opens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, 768)
        self.gate = threading.Event()
        self.is_slow = False

    def submit(self, work: Any, argument: Any) -> Any:
        if not self.is_slow:
            return super().submit(work, argument)
        return super().submit(lambda given: self.gate.wait(30) and work(given), argument)

    def _compile(self, text: str) -> Any:
        if text == grammar_of(SLOW):
            self.gate.wait(30)
        return super()._compile(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_vl", "kimi_k25"])
def test_answers_follow_their_schema_and_others_stay_what_they_are(
    model_of: Callable[[str], Model], arenas: LentArenas, vocabulary: Vocabulary, name: str
) -> None:
    model = model_of(name)
    alone = [
        answers(run(make_engine(model, arenas), [free(model, arenas, number)], 1))
        for number in range(6)
    ]
    jobs = [
        job
        for number, each in enumerate(NAMES)
        for job in (guided(model, arenas, number, SCHEMAS[each]), free(model, arenas, number))
    ]
    engine = make_engine(model, arenas, grammars=Grammars(vocabulary, 768))
    events = run(engine, jobs, 16)
    found, ends = answers(events), last_events(events)
    for number, each in enumerate(NAMES):
        text = spelt(vocabulary, found[f"g{number}"])
        jsonschema.validate(json.loads(text), SCHEMAS[each])
        end = ends[f"g{number}"]
        assert isinstance(end, Finished)
        assert end.reason == "stop"
        assert found[f"f{number}"] == alone[number][f"f{number}"]


@pytest.mark.slow
def test_answers_do_not_depend_on_room_nor_on_when_their_grammars_tell(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    def found(grammars: Grammars, **limits: int) -> dict[str, list[int]]:
        jobs = [
            guided(deep_model, arenas, number, SCHEMAS[each], max_tokens=60)
            for number, each in enumerate(NAMES)
        ]
        engine = make_engine(deep_model, arenas, grammars=grammars, **limits)
        return answers(run(engine, jobs, len(jobs)))

    expected = found(Grammars(vocabulary, 768))
    assert found(Grammars(vocabulary, 768), kv_cache_tokens=160, kv_block_tokens=4) == expected
    assert found(Grammars(vocabulary, 768), max_step_tokens=7) == expected
    assert found(LateGrammars(vocabulary)) == expected


class LateGrammars(Grammars):
    """Every second look takes longer than a step waits for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, 768)
        self._num_looks = 0

    def look(self, matcher: Any) -> Any:
        self._num_looks += 1
        if self._num_looks % 2:
            threading.Event().wait(0.004)
        return super().look(matcher)


def test_nobody_waits_for_a_grammar_that_tells_nothing(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    grammars = GatedGrammars(vocabulary)
    engine = make_engine(deep_model, arenas, grammars=grammars)
    engine.put(guided(deep_model, arenas, 0, SLOW))
    engine.put(free(deep_model, arenas, 0, 12))
    engine.put(guided(deep_model, arenas, 1, SCHEMAS["enum"]))
    events: list[FromWorker] = []
    for index in range(1, 13):
        events += engine.step()
        assert count(events, "f0") == index
    while "g1" not in last_events(events):
        events += engine.step()
    assert not count(events, "g0")
    engine.check()
    grammars.gate.set()
    assert count(events + drain(engine), "g0")


def test_a_slow_grammar_amid_an_answer_costs_others_no_step(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    grammars = GatedGrammars(vocabulary)
    engine = make_engine(deep_model, arenas, grammars=grammars)
    engine.put(guided(deep_model, arenas, 0, SCHEMAS["record"]))
    engine.put(free(deep_model, arenas, 0, 60))
    events: list[FromWorker] = []
    while not count(events, "g0"):
        events += engine.step()
    grammars.is_slow = True  # one look may be under way, and one token chosen by it
    events += [event for _ in range(2) for event in engine.step()]
    told = count(events, "g0")
    steps = [engine.step() for _ in range(20)]
    assert [count(step, "f0") for step in steps] == [1] * 20
    assert sum(count(step, "g0") for step in steps) <= 1
    assert told
    engine.check()
    grammars.gate.set()
    assert isinstance(last_events(drain(engine))["g0"], Finished)


def count(events: list[FromWorker], job_id: str) -> int:
    return sum(isinstance(event, Tokens) and event.job_id == job_id for event in events)


def test_a_job_can_be_aborted_while_its_grammar_is_compiled(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    grammars = GatedGrammars(vocabulary)
    engine = make_engine(deep_model, arenas, grammars=grammars)
    engine.put(guided(deep_model, arenas, 0, SLOW))
    engine.step()
    engine.abort("g0")
    end = last_events(drain(engine))["g0"]
    assert isinstance(end, Finished)
    assert end.reason == "abort"
    grammars.gate.set()
    engine.check()


def test_a_grammar_that_is_too_much_ends_its_own_answer_alone(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    endless: Schema = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    engine = make_engine(deep_model, arenas, grammars=Grammars(vocabulary, 768))
    jobs = [guided(deep_model, arenas, 0, endless), guided(deep_model, arenas, 1, SCHEMAS["enum"])]
    ends = last_events(run(engine, jobs, 2))
    fault, other = ends["g0"], ends["g1"]
    assert isinstance(fault, Failed)
    assert fault.kind == "bad_input"
    assert isinstance(other, Finished)


def ended(
    model: Model, arenas: LentArenas, vocabulary: Vocabulary, schema: Schema, **wish: Any
) -> tuple[str, str, int]:
    """Text of one answer, why it ended, and how many tokens it counts."""
    engine = make_engine(model, arenas, grammars=Grammars(vocabulary, 768))
    events = run(engine, [guided(model, arenas, 0, schema, **wish)], 1)
    end = last_events(events)["g0"]
    assert isinstance(end, Finished), end
    found = answers(events).get("g0", [])
    return spelt(vocabulary, found), end.reason, end.num_completion_tokens


LONG: Schema = {"type": "integer"}  # digits may always follow


def test_a_whole_answer_ends_also_without_a_token_for_it_and_before_min_tokens(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    schema: Schema = {"const": [1, 2]}
    plain = ended(deep_model, arenas, vocabulary, schema, stop_token_ids=())
    text, reason, num_tokens = plain
    assert (json.loads(text), reason) == ([1, 2], "stop")
    assert ended(deep_model, arenas, vocabulary, schema, min_tokens=300)[:2] == (text, "stop")
    assert num_tokens < 300


def test_min_tokens_makes_an_answer_go_on_that_could_end(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    wish = {"logit_bias": {END: 100.0}}
    short = ended(deep_model, arenas, vocabulary, LONG, **wish)
    long = ended(deep_model, arenas, vocabulary, LONG, min_tokens=30, **wish)
    assert short[1] == long[1] == "stop"
    assert short[2] < 5
    assert long[2] == 31


def test_an_end_is_chosen_only_where_the_answer_is_whole(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    wish = {"logit_bias": {END: 100.0}, "temperature": 0.0}
    text, reason, _ = ended(deep_model, arenas, vocabulary, SCHEMAS["record"], **wish)
    jsonschema.validate(json.loads(text), SCHEMAS["record"])
    assert reason == "stop"


def test_max_tokens_cuts_an_answer_that_follows_a_grammar(
    deep_model: Model, arenas: LentArenas, vocabulary: Vocabulary
) -> None:
    text, reason, num_tokens = ended(
        deep_model, arenas, vocabulary, LONG, max_tokens=7, stop_token_ids=()
    )
    assert (reason, num_tokens) == ("length", 7)
    assert text.lstrip("-").isdigit()


def test_an_engine_without_a_vocabulary_refuses_nobody_else(
    deep_model: Model, arenas: LentArenas
) -> None:
    engine: Engine = make_engine(deep_model, arenas)
    ends = last_events(
        run(engine, [guided(deep_model, arenas, 0, LONG), free(deep_model, arenas, 0)], 2)
    )
    assert isinstance(ends["g0"], Failed)
    assert isinstance(ends["f0"], Finished)


def test_a_follower_is_asked_only_when_it_is_ready() -> None:
    follower = Follower(Grammars(Vocabulary((), ()), 8))
    assert not follower.is_ready
    assert not follower.may_choose
    with pytest.raises(AssertionError):
        _ = follower.outlook
