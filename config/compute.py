"""What workers compute at once, and what they keep."""

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
        2048,
        ge=1,
        description="Tokens that one engine step computes; longer prompts take several steps.",
    )
    max_step_sequences: int = Field(128, ge=1, description="Sequences that one engine step takes.")
    prefix_cache: bool = Field(
        True,
        description="Keep what was computed of prompts and answers for prompts that begin alike.",
    )
