"""What workers compute at once, and what they keep."""

from typing import Literal

from pydantic import Field

from config.section import Section


class VisionSettings(Section):
    max_vision_batch_patches: int = Field(
        0,
        ge=0,
        description=(
            "Patches that one pass of the vision tower takes; a larger image goes alone. "
            "0: 16384 on a GPU, 2048 on a CPU."
        ),
    )
    embedding_cache_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description=(
            "Share of the memory for embeddings (the worker's shared memory, or with cuda_ipc its "
            "pool) that keeps them for requests to come; 0 keeps none."
        ),
    )


class EngineSettings(Section):
    kv_cache_tokens: int = Field(
        0, ge=0, description="Tokens that the KV cache holds; 0: from the device's free memory."
    )
    kv_block_tokens: int = Field(16, ge=1, le=1024, description="Tokens in one KV block.")
    max_step_tokens: int = Field(
        0,
        ge=0,
        description=(
            "Tokens that one engine step computes; longer prompts take several steps. "
            "0: 2048 on a GPU, 128 on a CPU, where a step of more keeps others waiting."
        ),
    )
    max_step_sequences: int = Field(128, ge=1, description="Sequences that one engine step takes.")
    attention: Literal["auto", "torch", "flashinfer", "native"] = Field(
        "auto",
        description=(
            "Attention of the language model: torch's own, or one that reads KV blocks in place: "
            "FlashInfer's on a GPU, or native, ours in C, on a CPU in bfloat16; auto: the one of "
            "the device where it is installed and fits the model."
        ),
    )
    cuda_graphs: bool = Field(
        False,
        description="Record steps that only decode as CUDA graphs, once for each size, on a GPU.",
    )
    prefix_cache: bool = Field(
        True,
        description="Keep what was computed of prompts and answers for prompts that begin alike.",
    )
