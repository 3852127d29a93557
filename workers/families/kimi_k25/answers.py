"""Kimi's answers: a thought, words, then a section of calls; see `markers` for their form."""

import re
from collections.abc import Iterator
from typing import Literal

from workers.families.answers import (
    AnswerForm,
    Atom,
    CallArguments,
    CallBegun,
    CallEnded,
    CallSyntax,
    Event,
    Functions,
    Speech,
)
from workers.families.kimi_k25 import markers

# What stands before a call's arguments: functions.NAME:INDEX, of which models leave parts out.
_ID = re.compile(r"\s*(?:functions\.)?([A-Za-z_][\w-]*(?:\.[\w-]+)*)(?::(\d+))?\s*", re.ASCII)
_CALL_SYNTAX = CallSyntax(
    opening=(markers.CALLS_BEGIN,),
    head=(markers.CALL_BEGIN, "functions."),
    middle=(":", re.compile("[0-9]{1,3}"), markers.CALL_ARGUMENTS),
    tail=(markers.CALL_END,),
    closing=(markers.CALLS_END,),
)
_CALL_MARKERS = frozenset(
    {
        markers.CALLS_BEGIN,
        markers.CALLS_END,
        markers.CALL_BEGIN,
        markers.CALL_ARGUMENTS,
        markers.CALL_END,
    }
)


def read_answer_form(template: str) -> AnswerForm:
    """The form of the answers that a chat template leads to."""
    return AnswerForm(
        thinks=markers.THINK_END in template,
        thought_begin=markers.THINK_BEGIN,
        thought_end=markers.THINK_END,
        thought_in_lines=False,
        thought_enders=frozenset({markers.CALLS_BEGIN}),
        call_markers=_CALL_MARKERS if markers.CALLS_BEGIN in template else frozenset(),
        call_syntax=_CALL_SYNTAX if markers.CALLS_BEGIN in template else None,
        make_call_reader=SectionReader,
    )


class SectionReader:
    """Reads sections of calls; see `workers.families.answers.CallReader`.

    A call whose head gives no name is words, markers and all. Ids are the model's own, because
    the template writes them again; one that comes twice in an answer gets the next free index.
    """

    def __init__(self, _: Functions) -> None:
        self._speech = Speech()
        self._state: Literal["outside", "head", "broken", "arguments"] = "outside"
        self._head: list[Atom] = []  # from a call's beginning to its arguments
        self._has_arguments = False
        self._ids: set[str] = set()

    def read(self, atom: Atom) -> Iterator[Event]:
        """Take the next atom; give what is certain."""
        if not atom.is_marker:
            yield from self._read_text(atom)
            return
        match atom.text:
            case markers.CALL_ARGUMENTS if self._state == "head":
                yield from self._begin(atom)
            case markers.CALLS_BEGIN | markers.CALLS_END | markers.CALL_BEGIN | markers.CALL_END:
                yield from self._border(atom)
            case _:
                yield from self._read_text(atom)

    def finish(self) -> Iterator[Event]:
        """The answer has ended: give what was held back."""
        self._has_arguments = True  # those of a call that was cut are what they are
        yield from self._leave()
        yield from self._speech.finish()

    def _read_text(self, atom: Atom) -> Iterator[Event]:
        if self._state == "arguments":
            self._has_arguments |= not atom.text.isspace()
            yield CallArguments(atom.text)
        elif self._state == "head":
            self._head.append(atom)
        else:
            yield from self._speech.say(atom.text, atom.start)

    def _border(self, atom: Atom) -> Iterator[Event]:
        """A call ends or begins, or the section does."""
        if atom.text == markers.CALL_END and self._state in ("head", "broken"):
            self._head.append(atom)
        yield from self._leave()
        if atom.text == markers.CALL_BEGIN:
            self._state, self._head = "head", [atom]

    def _begin(self, atom: Atom) -> Iterator[Event]:
        given = "".join(each.text for each in self._head[1:])
        found = _ID.fullmatch(given)
        self._head.append(atom)
        if found is None:
            yield from self._leave()
            self._state = "broken"
            return
        self._head = []
        self._state, self._has_arguments = "arguments", False
        self._speech.call()
        yield CallBegun(found[1], self._new_id(found[1], found[2]))

    def _new_id(self, name: str, index: str | None) -> str:
        new = f"functions.{name}:{index or len(self._ids)}"
        number = len(self._ids)
        while new in self._ids:
            new = f"functions.{name}:{number}"
            number += 1
        self._ids.add(new)
        return new

    def _leave(self) -> Iterator[Event]:
        """End the call that is open, if one is; a mere head is words."""
        if self._state == "arguments":
            if not self._has_arguments:
                yield CallArguments("{}")
            yield CallEnded()
        for atom in self._head:
            yield from self._speech.say(atom.text, atom.start)
        self._state, self._head = "outside", []
