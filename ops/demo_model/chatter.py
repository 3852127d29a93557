"""What people type that has nothing to do with pictures: greetings, tasks, prose, noise."""

from collections.abc import Sequence
from random import Random

from ops.demo_model.prose import sentences, vocabulary
from ops.demo_model.tables import load
from ops.demo_model.wordings import choose, decorate, type_carelessly


def chat(random: Random) -> str:
    """One message that is no question about a picture of shapes or numbers."""
    if random.random() < 0.08:
        return f"{chat(random)} {chat(random)}"
    is_greeting = random.random() < 0.25
    text = choose(random, random.choice(load("chat")["greetings" if is_greeting else "tasks"]))
    while "<" in text:
        name = text[text.index("<") + 1 : text.index(">")]
        text = text.replace(f"<{name}>", _slot(random, name), 1)
    if not is_greeting and random.random() < 0.35:
        return decorate(random, text)
    return type_carelessly(random, text)


def _slot(random: Random, name: str) -> str:
    match name:
        case "noun":
            return _noun(random)
        case "number":
            return str(random.randint(2, 99))
        case "prose":
            return random.choice(sentences())
        case "words":
            return " ".join(random.choices(vocabulary(), k=random.randint(1, 12)))
        case "salad":
            return _salad(random)
        case "foreign":
            return random.choice(load("chat")["foreign"])
        case "noise":
            return _noise(random)
        case _:
            return random.choice(random.choice(load("chat")[name]).split(", "))


def _salad(random: Random) -> str:
    """Words in no order, half of them small: nobody knows what people will ask."""
    words = load("chat")["verbs"] + load("chat")["adjectives"] + load("chat")["nouns"]
    small = random.choice(load("chat")["small"]).split()
    chosen = [
        random.choice(small) if random.random() < 0.45 else _word(random, words)
        for _ in range(random.randint(1, 9))
    ]
    for _ in range(2):  # small words alone may well ask about a picture
        chosen.insert(random.randint(0, len(chosen)), _word(random, words))
    return " ".join(chosen)


def _word(random: Random, lines: Sequence[str]) -> str:
    if random.random() < 0.2:
        return random.choice(vocabulary()).lower()
    return random.choice(random.choice(lines).split())


def _noun(random: Random) -> str:
    """A noun, in the plural or not; sometimes any word at all."""
    if random.random() < 0.25:
        return random.choice(vocabulary()).lower()
    noun = random.choice(random.choice(load("chat")["nouns"]).split())
    return noun[:-1] if noun.endswith("s") and random.random() < 0.5 else noun


def _noise(random: Random) -> str:
    letters = random.choice(
        ("abcdefghijklmnopqrstuvwxyz", "0123456789", "!?.,;-+*/()#@", "asdfjkl ")
    )
    return "".join(random.choices(letters, k=random.randint(1, 14))).strip() or "?"
