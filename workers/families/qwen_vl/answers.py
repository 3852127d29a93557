"""Qwen's answers: a thought in lines of its own where the model thinks, words, and calls."""

from workers.families.answers import AnswerForm, CallReader, Functions, PlainReader
from workers.families.qwen_vl import json_calls, xml_calls
from workers.families.qwen_vl.call_blocks import CALL_BEGIN, CALL_END

THINK_BEGIN = "<think>"
THINK_END = "</think>"
_XML_CALL = "<function="  # between the same markers


def read_answer_form(template: str) -> AnswerForm:
    """The form of the answers that a chat template leads to."""
    has_calls = CALL_BEGIN in template
    is_xml = _XML_CALL in template
    syntax = xml_calls.CALL_SYNTAX if is_xml else json_calls.CALL_SYNTAX
    make_reader = xml_calls.xml_call_reader if is_xml else json_calls.json_call_reader
    return AnswerForm(
        thinks=THINK_END in template,
        thought_begin=THINK_BEGIN,
        thought_end=THINK_END,
        thought_in_lines=True,
        thought_enders=frozenset(),
        call_markers=frozenset({CALL_BEGIN, CALL_END} if has_calls else ()),
        call_syntax=syntax if has_calls else None,
        make_call_reader=make_reader if has_calls else _plain_reader,
    )


def _plain_reader(_: Functions) -> CallReader:
    return PlainReader()
