"""Prompts that no template touches: one text, or token ids."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import FailFast, Field, Strict
from tokenizers import Tokenizer
from typing_extensions import TypeAliasType

from gateway.errors import BadRequest
from gateway.prompts.prompt import Prompt, Raw
from gateway.prompts.sampling import make_sampling
from gateway.prompts.tool_use import NO_TOOLS
from gateway.schemas.sampling_schema import SamplingFields
from gateway.structured.grammar import Grammar
from gateway.talk import Desk

_MAX_ID = 2**31 - 1  # larger numbers are no int32

# A named type, because what is in a union must be hashable and `FailFast` is not.
TokenIds = TypeAliasType(
    "TokenIds",
    Annotated[
        tuple[Annotated[int, Field(ge=0)], ...], Strict(False), FailFast(), Field(min_length=1)
    ],
)


def check_tokens(token_ids: Sequence[int], param: str, tokenizer: Tokenizer) -> None:
    """Raise `BadRequest` for the first id of no token."""
    for index, token_id in enumerate(token_ids):
        if token_id > _MAX_ID or tokenizer.id_to_token(token_id) is None:
            name = f"{param}[{index}]"
            raise BadRequest(f"{name}: the model has no token {token_id}", param=name)


def make_raw_prompt(
    raw: Raw,
    wishes: SamplingFields,
    desk: Desk,
    job_id: str = "",
    grammar: Grammar | None = None,
    prompt_logprobs: bool = False,
) -> Prompt:
    """A prompt of no turns and images; `job_id` tells it from others of the same body.

    With `prompt_logprobs` the likelihoods of its own tokens are told beside the answer's.

    Raises:
        BadRequest: a token id is unknown.
    """
    services = desk.services
    checkpoint = services.checkpoint
    sampling = make_sampling(wishes, checkpoint.sampling_defaults, checkpoint.tokenizer)
    return Prompt(
        request_id=job_id or desk.job_id,
        tenant=b"",  # the journey knows
        model=services.served_model_name,
        turns=(),
        images=(),
        tool_use=NO_TOOLS,
        grammar=grammar,
        num_choices=wishes.n,
        sampling=msgspec.structs.replace(sampling, prompt_logprobs=prompt_logprobs),
        stop=wishes.stop,
        streamed=False,
        include_usage=False,
        deadline=desk.begun + services.settings.server.request_seconds,
        raw=raw,
    )
