"""English prose and words from the documentation inside Python: nothing is fetched."""

import pydoc_data.topics
import re
from functools import lru_cache

SUBJECTS = frozenset(  # words that would make chat a fair question about a picture
    """red green blue yellow orange purple black white circle square triangle star circles squares
    object objects shape shapes number numbers digit digits image images picture thing things figure
    color text form value drawing""".split()  # noqa: SIM905 - a word list reads best as words
)


@lru_cache(maxsize=1)
def sentences() -> tuple[str, ...]:
    """Sentences of 20 to 160 characters."""
    text = " ".join(pydoc_data.topics.topics.values())
    parts = re.split(r"(?<=[.:?!])\s+", re.sub(r"[*`|\\=~^_\"<>\[\]]+", "", text))
    flat = (re.sub(r"\s+", " ", part).strip() for part in parts)
    return tuple(sorted({part for part in flat if 20 <= len(part) <= 160}))


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Every word of the sentences, without the subjects of our pictures."""
    found = {word for line in sentences() for word in re.findall(r"[A-Za-z]{2,}", line)}
    return tuple(sorted(word for word in found if word.lower() not in SUBJECTS))
