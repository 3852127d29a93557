"""A checked `ChatRequest` and the checkpoint in, what the model may call out."""

from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import BadRequest
from gateway.prompts.checkpoint import Checkpoint
from gateway.schemas.schema import ChatRequest
from gateway.schemas.tools_schema import NamedChoice
from workers.families.answers import Functions


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Functions that the model is shown, and whether it must call one."""

    tools: tuple[dict[str, Any], ...]  # as the caller gave them
    choice: Literal["none", "auto", "required"]
    named: str | None  # the one that must be called
    parallel: bool

    @property
    def may_call(self) -> bool:
        """Whether calls are looked for in the answer."""
        return bool(self.tools)

    @property
    def functions(self) -> Functions | None:
        """The schemas of what may be called; none where no calls are looked for."""
        if not self.may_call:
            return None
        given = (tool["function"] for tool in self.tools)
        return {each["name"]: each.get("parameters") or {} for each in given}

    @property
    def max_calls(self) -> int | None:
        """The calls after which an answer ends; None for as many as it likes."""
        return None if self.parallel else 1


NO_TOOLS = ToolUse((), "none", None, parallel=True)


def make_tool_use(request: ChatRequest, checkpoint: Checkpoint) -> ToolUse:
    """What the request's tools come to.

    Where none may be called none are shown, and nothing in the answer is taken for a call.

    Raises:
        BadRequest: a call is asked for of a function that is not there, or the checkpoint knows no
            tools.
    """
    choice = request.tool_choice
    named = choice.function.name if isinstance(choice, NamedChoice) else None
    word: Literal["none", "auto", "required"] = (
        "required" if isinstance(choice, NamedChoice) else choice
    )
    _check_choice(request, word, named)
    if not request.tools or word == "none":
        return NO_TOOLS
    if not (checkpoint.template.takes_tools and checkpoint.answer_form.call_markers):
        raise BadRequest(
            "the model's chat template has no tools; leave them out, or give the checkpoint's "
            "folder a chat_template.jinja that has",
            param="tools",
            code="unsupported_parameter",
        )
    return ToolUse(
        tools=tuple(tool.given for tool in request.tools),
        choice=word,
        named=named,
        parallel=request.parallel_tool_calls,
    )


def _check_choice(request: ChatRequest, choice: str, named: str | None) -> None:
    if choice != "required":
        return
    names = {tool.function.name for tool in request.tools}
    if not names or (named is not None and named not in names):
        missing = "tools are given" if named is None else f"function of tools is called {named}"
        raise BadRequest(f"tool_choice: no {missing}", param="tool_choice")
