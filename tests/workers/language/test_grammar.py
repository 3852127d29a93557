"""What may follow: whatever is chosen of it, the answer has its form; and the loop goes on."""

import json
import time
from pathlib import Path

import jsonschema
import pytest

from config.settings import DEMO_MODEL
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.tiktoken_vocabulary import read_vocabulary
from gateway.structured.json_grammar import OPTIONS, schema_rule
from tests.schemas import SCHEMAS, Schema
from tests.vocabularies import trained_ranks, write_vocabulary
from tests.walks import follow, ids_of, settled, vocabulary_of, walk
from workers.language import grammar
from workers.language.grammar import Fault, Follower, Grammars, Outlook
from workers.messages import Vocabulary

VOCABULARIES = ("tokenizer.json", "tiktoken.model")


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Vocabulary:
    if request.param == "tokenizer.json":
        return load_checkpoint(DEMO_MODEL).vocabulary()
    folder: Path = tmp_path_factory.mktemp("vocabulary")
    write_vocabulary(folder, trained_ranks(600))
    return vocabulary_of(read_vocabulary(folder))


@pytest.fixture(scope="module")
def grammars(vocabulary: Vocabulary) -> Grammars:
    return Grammars(vocabulary, len(vocabulary.spellings) + 13)  # logits beyond the vocabulary


def grammar_of(schema: Schema) -> str:
    return f"{OPTIONS}start: {schema_rule(schema, 'schema').text}\n"


def spelt(vocabulary: Vocabulary, token_ids: list[int]) -> str:
    return b"".join(vocabulary.spellings[token_id] for token_id in token_ids).decode()


def spell(vocabulary: Vocabulary, text: str) -> list[int]:
    """A text in tokens of one byte each."""
    return [vocabulary.spellings.index(bytes([byte])) for byte in text.encode()]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_way_through_a_schema_ends_in_json_of_it(
    grammars: Grammars, vocabulary: Vocabulary, name: str
) -> None:
    for seed in range(6):
        text = spelt(vocabulary, walk(grammars, grammar_of(SCHEMAS[name]), seed))
        jsonschema.validate(json.loads(text), SCHEMAS[name])


def test_tokens_that_are_no_text_never_follow_unless_they_are_named(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    first, second = sorted(vocabulary.control_ids)[:2]
    free = ids_of(follow(grammars, f"{OPTIONS}start: /(?s:.*)/\n", []))
    assert not set(free) & set(vocabulary.control_ids)
    named = follow(grammars, f'{OPTIONS}start: <[{second}]> "a"\n', [])
    assert ids_of(named) == [second]
    others = ids_of(follow(grammars, f"{OPTIONS}start: <[^{second}]>\n", []))
    assert first in others
    assert second not in others


def test_logits_beyond_the_vocabulary_are_never_allowed(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    num_tokens = len(vocabulary.spellings)
    outlook = follow(grammars, grammar_of({"type": "integer"}), spell(vocabulary, "12"))
    assert isinstance(outlook, Outlook)
    assert outlook.may_end
    assert len(outlook.allowed) == -(-(num_tokens + 13) // 8)
    assert max(ids_of(outlook)) < num_tokens


def test_an_answer_is_over_when_nothing_can_follow(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    grammar = grammar_of({"enum": [[], [1]]})
    part = follow(grammars, grammar, spell(vocabulary, "["))
    whole = follow(grammars, grammar, spell(vocabulary, "[1]"))
    assert isinstance(part, Outlook)
    assert isinstance(whole, Outlook)
    assert (part.may_end, part.is_over) == (False, False)
    assert (whole.may_end, whole.is_over) == (True, True)


def test_a_model_that_only_sends_spaces_gets_on(grammars: Grammars, vocabulary: Vocabulary) -> None:
    grammar, text = grammar_of({"type": "array", "items": {"type": "null"}}), "[\n"
    for _ in range(200):
        allowed = ids_of(follow(grammars, grammar, spell(vocabulary, text)))
        blank = [each for each in allowed if not vocabulary.spellings[each].strip()]
        if not blank:
            break
        text += vocabulary.spellings[blank[0]].decode()
    assert len(text) < 60


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "no answer"),
        ({"type": "colour"}, "colour"),
    ],
)
def test_what_cannot_be_followed_is_the_callers_fault_that_says_so(
    grammars: Grammars, schema: Schema, words: str
) -> None:
    fault = follow(grammars, grammar_of(schema), [])
    assert isinstance(fault, Fault)
    assert fault.kind == "bad_input"
    assert words in fault.message
    assert "\n" not in fault.message


def many_properties(count: int) -> Schema:
    """Any of them may come next, which is much to keep in mind."""
    return {"type": "object", "properties": {f"p{index}": {} for index in range(count)}}


def test_what_takes_too_much_work_amid_an_answer_is_a_fault_that_says_so(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    fault = follow(grammars, grammar_of(many_properties(700)), spell(vocabulary, "{"))
    assert isinstance(fault, Fault)
    assert fault.kind == "bad_input"
    assert "too much work" in fault.message


def test_a_token_that_was_not_allowed_is_a_fault(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    follower = grammars.begin(grammar_of({"type": "integer"}))
    settled(grammars, follower)
    follower.advance(spell(vocabulary, "x")[0])
    assert isinstance(settled(grammars, follower), Fault)


def test_answers_of_one_grammar_go_their_own_ways(
    grammars: Grammars, vocabulary: Vocabulary
) -> None:
    grammar = grammar_of({"enum": ["ab", "cd"]})
    one, other = grammars.begin(grammar), grammars.begin(grammar)
    for a, c in zip(spell(vocabulary, '"a'), spell(vocabulary, '"c'), strict=True):
        for follower, token_id in ((one, a), (other, c)):
            settled(grammars, follower)
            follower.advance(token_id)
    assert spell(vocabulary, "b")[0] in ids_of(settled(grammars, one))
    assert spell(vocabulary, "b")[0] not in ids_of(settled(grammars, other))


@pytest.mark.slow
def test_the_loop_goes_on_while_a_grammar_is_compiled_and_followed(vocabulary: Vocabulary) -> None:
    """A thread that held the interpreter's lock meanwhile would let the loop turn once or twice."""
    grammars = Grammars(vocabulary, len(vocabulary.spellings))
    follower = grammars.begin(grammar_of(many_properties(2000)))
    assert _turns(follower) > 5
    follower.advance(spell(vocabulary, "{")[0])
    assert _turns(follower) > 5


def _turns(follower: Follower) -> int:
    """How often a loop turns until the follower is ready."""
    num_turns = 0
    while not follower.is_ready:
        time.sleep(0.0005)
        num_turns += 1
    return num_turns


def test_grammars_that_are_kept_are_bounded_by_their_number_and_their_length(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [grammar_of({"const": f"{number:0>100}"}) for number in range(7)]
    for most, characters in ((3, 1 << 20), (64, 3 * len(texts[0]))):
        monkeypatch.setattr(grammar, "MAX_COMPILED", most)
        monkeypatch.setattr(grammar, "MAX_KEPT_CHARACTERS", characters)
        for text in texts:
            settled(grammars, grammars.begin(text))
        assert list(grammars._compiled) == texts[-3:]
    longest = grammar_of({"const": 5000 * "x"})
    settled(grammars, grammars.begin(longest))
    assert list(grammars._compiled) == [longest]
