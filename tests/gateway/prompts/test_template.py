"""Chat templates render as transformers renders them, and fail as the caller's mistake."""

from typing import Any

import pytest

from config.settings import DEMO_MODEL
from gateway.errors import BadRequest
from gateway.prompts.template import compile_template
from tests.checkpoints import TEMPLATE
from tests.gateway.conversations import random_conversation
from workers.families import UnsupportedCheckpoint

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FEATURES = {
    "blocks are trimmed": "{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n"
    "{% endfor %}\n",
    "special tokens": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}",
    "tojson": "{{ messages[0] | tojson }}{{ {'b': '<é>', 'a': 1} | tojson(indent=2) }}"
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{{ m.content }}{% continue %}never{% endfor %}",
    "generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}"
    "{{ m.content }}{{ x }}{{ loop.index }}\n{% endgeneration %}{% endfor %}{{ x }}"
    "{% generation %}{% set x = 3 %}{{ x }}{% endgeneration %}{{ x }}",
    "no tools": "{% if tools is none and documents is none %}none{% endif %}"
    "{{ add_generation_prompt }}{{ missing is defined }}",
    "namespaces": "{% set n = namespace(k=0) %}{% for m in messages %}{% set n.k = n.k + 1 %}"
    "{% endfor %}{{ n.k }}{{ dict(a=1) }}{{ range(3) | list }}",
    "strings": "{{ messages[0].content | trim | upper }}{{ messages[0].content.split('l')[-1] }}"
    "{{ messages[0].content.startswith('H') }}",
    "date": "{{ strftime_now('%Y') }}",
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": " Hello <b> \n"},
    {"role": "assistant", "content": "é"},
]


def library_renders(source: str, messages: list[dict[str, Any]]) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        [messages], chat_template=source, add_generation_prompt=True, **TOKENS
    )
    text: str = rendered[0]
    return text


@pytest.mark.parametrize("source", FEATURES.values(), ids=FEATURES.keys())
def test_features_work_as_in_the_library(source: str) -> None:
    rendered = compile_template(source, TOKENS).render(MESSAGES)
    assert rendered == library_renders(source, MESSAGES)
    assert rendered


@pytest.mark.parametrize("source", [TEMPLATE, (DEMO_MODEL / "chat_template.jinja").read_text()])
def test_conversations_render_as_in_the_library(source: str) -> None:
    template = compile_template(source, TOKENS)
    for seed in range(20):
        messages = random_conversation(seed)
        assert template.render(messages) == library_renders(source, messages)


def test_a_refusal_is_told_to_the_caller_in_short() -> None:
    template = compile_template("{{ raise_exception('Roles must alternate' + '!' * 999) }}", {})
    with pytest.raises(BadRequest, match="refuses the messages: Roles must alternate!") as caught:
        template.render(MESSAGES)
    assert len(caught.value.message) < 300
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "expression",
    [
        "messages[9].content",
        "messages[0].content + 1",
        "messages[0].content[0] | int / 0",
        "'%d' % messages[0].content",
        "messages[0].content.index('z')",
        "missing()",
        "range(10**9) | list",
        "messages[0].__class__.__mro__[1].__subclasses__()",
        "messages.append(1)",
    ],
)
def test_a_template_that_fails_is_the_callers_mistake(expression: str) -> None:
    template = compile_template(f"{{{{ {expression} }}}}", {})
    with pytest.raises(BadRequest, match="cannot render the messages"):
        template.render(MESSAGES)


def test_endless_recursion_is_the_callers_mistake() -> None:
    template = compile_template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {})
    with pytest.raises(BadRequest, match="RecursionError"):
        template.render(MESSAGES)


def test_rendering_changes_no_message() -> None:
    messages = [dict(message) for message in MESSAGES]
    compile_template(TEMPLATE, TOKENS).render(messages)
    assert messages == MESSAGES


@pytest.mark.parametrize("source", ["{% if %}", "{{ x | no_such_filter }}", "{% generation %}"])
def test_a_template_that_does_not_compile_stops_the_start(source: str) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="does not compile"):
        compile_template(source, {})
