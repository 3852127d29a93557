"""What a look at the environment and the machine finds."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; what is no `ok` says in its text what to do."""

    level: Level
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<8} {self.topic:<11} {self.text}"
