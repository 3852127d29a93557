"""The wordings that training uses: patterns such as "[What|Which] color is the <thing>?".

A bracket is a choice, `<name>` is a slot. Each pattern stands for many sentences; decorations and
careless typing are added on top. The patterns are in `words/training.txt`; `words/watched.txt` and
`words/final.txt` hold the wordings kept for evaluation.
"""

import re
from collections.abc import Mapping
from random import Random

from ops.demo_model.prose import sentences, vocabulary
from ops.demo_model.tables import load

_SLOT = re.compile(r"<([^<>]+)>")


def write(random: Random, ask: str, slots: Mapping[str, str]) -> str:
    """One training wording of a question, decorated and typed as people type."""
    text = choose(random, random.choice(load("training")[ask]))
    if random.random() < 0.25:
        text = _reword(random, text)
    text = decorate(random, fill(text, _rename_image(random, slots)))
    if random.random() < 0.04:
        text = f"{random.choice(sentences())} {text}"
    return text


def _rename_image(random: Random, slots: Mapping[str, str]) -> Mapping[str, str]:
    """Sometimes call the first image "the former" or "the one on the left"; the exam never does."""
    name = slots.get("nth image")
    if name is None or random.random() > 0.3:
        return slots
    section = "first image" if "first" in name or "1" in name else "second image"
    return {**slots, "nth image": random.choice(load("around")[section])}


def _reword(random: Random, text: str) -> str:
    """Lose a small word, or gain words of no importance, as people's own phrasings would."""
    words = text.split(" ")
    small = [index for index, word in enumerate(words) if word.lower() in SMALL_WORDS]
    if small and random.random() < 0.5:
        del words[random.choice(small)]
    else:
        source = FILLERS if random.random() < 0.5 else vocabulary()
        for _ in range(random.randint(1, 2)):
            words.insert(random.choice(_gaps(words)), random.choice(source).lower())
    return " ".join(words)


def _gaps(words: list[str]) -> list[int]:
    """Where a word may be put: never inside a slot, whose name may hold a space."""
    return [
        index
        for index in range(len(words))
        if index == 0 or words[index - 1].count("<") == words[index - 1].count(">")
    ]


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Replace `<name>`; a capitalised name takes the capitalised value."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return slots[name] if name in slots else capitalised(slots[name.lower()])

    return _SLOT.sub(value, text)


def capitalised(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


SMALL_WORDS = frozenset(
    ("the", "is", "a", "of", "you", "do", "me", "this", "that", "are", "it", "to", "can", "does")
)
FILLERS = (
    *("actually", "now", "just", "maybe", "exactly", "then", "well", "really", "again", "perhaps"),
    *("please", "kindly", "over", "very", "here", "simply", "clearly", "also", "still", "right"),
    *("my dear", "for us", "if possible", "at all", "I guess", "you know", "to me", "with this"),
)
_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def choose(random: Random, pattern: str) -> str:
    """One sentence of the pattern, innermost brackets first."""
    while (match := _CHOICE.search(pattern)) is not None:
        option = random.choice(match.group(1).split("|"))
        pattern = pattern[: match.start()] + option + pattern[match.end() :]
    return pattern


def decorate(random: Random, text: str) -> str:
    """Add a lead-in or a closing word, vary case and punctuation."""
    text = capitalised(text)
    if text.endswith(".") and random.random() < 0.2:
        text = text[:-1] + random.choice(("?", "!", "", ","))
    around = load("around")
    if random.random() < 0.56:
        before = random.choice(around["before"])
        if before[-1] in ",:d" and random.random() < 0.7:
            text = text[:1].lower() + text[1:]
        text = f"{before} {text}"
    if random.random() < 0.46:
        text = f"{text} {random.choice(around['after'])}"
    return type_carelessly(random, text)


def type_carelessly(random: Random, text: str) -> str:
    """Lower or upper case, lost punctuation, doubled marks, a slip of the finger."""
    chance = random.random()
    if chance < 0.14:
        text = text.lower()
    elif chance < 0.155:
        text = text.upper()
    if random.random() < 0.12:
        text = text.rstrip("?.!")
    elif random.random() < 0.04:
        text += random.choice(("?", "!", " ", "??", "\n", "..."))
    if random.random() < 0.03 and len(text) > 8:
        return _swap_two_letters(random.randrange(1, len(text) - 2), text)
    return text


def _swap_two_letters(index: int, text: str) -> str:
    pair = text[index : index + 2]
    if not pair.isalpha():  # digits may be what is asked for
        return text
    return text[:index] + pair[::-1] + text[index + 2 :]
