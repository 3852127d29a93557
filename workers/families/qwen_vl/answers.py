"""Qwen's answers: a thought in lines of its own where the model thinks, words, and calls."""

from workers.families.answers import AnswerForm, PlainReader
from workers.families.qwen_vl.json_calls import CALL_BEGIN, CALL_END, CALL_SYNTAX, JsonCallReader

THINK_BEGIN = "<think>"
THINK_END = "</think>"
_XML_CALL = "<function="  # calls in another form between the same markers


def read_answer_form(template: str) -> AnswerForm:
    """The form of the answers that a chat template leads to."""
    has_calls = CALL_BEGIN in template and _XML_CALL not in template
    return AnswerForm(
        thinks=THINK_END in template,
        thought_begin=THINK_BEGIN,
        thought_end=THINK_END,
        thought_in_lines=True,
        thought_enders=frozenset(),
        call_markers=frozenset({CALL_BEGIN, CALL_END} if has_calls else ()),
        call_syntax=CALL_SYNTAX if has_calls else None,
        make_call_reader=JsonCallReader if has_calls else PlainReader,
    )
