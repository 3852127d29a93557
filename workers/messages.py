"""Every message between the gateway and its workers, as typed msgpack frames.

The gateway alone allots the bytes of arenas and feature pools: a job names the region where its
pixels lie and the region where its embeddings belong, so nothing has to be released when a worker
dies. Only `Abort` travels against the stream. Jobs end in exactly one `LastEvent`.
"""

from typing import Literal

import msgspec

from workers.fail_kind import FailKind
from workers.families.plan import ImagePlan
from workers.sampling import Likelihood, Sampling


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages; the class name is the tag on the wire."""


class Region(msgspec.Struct, frozen=True):
    """A range of bytes in the arena of one worker link, or in that worker's own feature pool."""

    arena: int  # index of the worker whose link owns the arena
    offset: int
    num_bytes: int
    pool: int = 0  # 0: the arena; else the `FeaturePool.number` of the pool


class TensorRef(msgspec.Struct, frozen=True):
    """A contiguous tensor inside a region, row-major, starting at the region's first byte."""

    region: Region
    dtype: str  # torch's name, for example "float32"
    shape: tuple[int, ...]


class FeaturePool(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of an owner's device that holds embeddings; it ends with the owner's process."""

    number: int  # drawn when it was made, above 0: no two pools have the same
    num_bytes: int
    handle: bytes  # by which another process maps it; empty where none needs it


class JpegBytes(msgspec.Struct, frozen=True, tag=True):
    """Payload: a JPEG file as it came, for an owner that decodes it on its device."""

    region: Region  # exactly the file
    orientation: int  # EXIF's, 1 to 8; the owner turns the picture


class Pixels(msgspec.Struct, frozen=True, tag=True):
    """Payload: uint8 [height, width, channels], upright; RGB, or RGBA where that matters.

    Resized pixels are RGB in the plan's resized size, laid on its background.
    """

    region: Region
    height: int
    width: int
    channels: Literal[3, 4]
    stage: Literal["source", "resized"]


class Patches(msgspec.Struct, frozen=True, tag=True):
    """Payload: float32 [plan.num_patches, 3 * frames * patch_size ** 2], as the tower takes it."""

    region: Region


class Embeddings(msgspec.Struct, frozen=True, tag=True):
    """Payload: what the tower would give, [1 + deepstack levels, plan.num_tokens, hidden]."""

    region: Region
    dtype: str  # torch's name
    shape: tuple[int, int, int]


Payload = JpegBytes | Pixels | Patches | Embeddings


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive prompt tokens that are replaced by one image's embeddings."""

    start: int  # index of the first token in the prompt
    num_tokens: int
    grid: tuple[int, int, int]  # as in the plan, before merging
    # [1 + deepstack levels, num_tokens, hidden]; None: the engine may know the image without
    embeddings: TensorRef | None
    identity: bytes  # the image's feature digest: equal for equal input of the tower only


class Vocabulary(msgspec.Struct, frozen=True):
    """How tokens are spelt, for an engine that keeps answers to a grammar."""

    spellings: tuple[bytes, ...]  # by token id; need not be whole characters
    control_ids: tuple[int, ...]  # those that are no text, though they are spelt like some


# ---- gateway to worker


class Start(Frame, frozen=True, kw_only=True):
    """First frame on a link: what the worker is and what it shall load."""

    index: int  # of the worker, and of its arena
    name: str
    device: str
    roles: tuple[str, ...]
    model: str  # checkpoint folder
    dtype: str  # float32, bfloat16, float16 or auto
    num_threads: int
    log_level: str
    log_format: Literal["text", "json"]
    max_context_tokens: int  # 0: what the checkpoint allows
    max_vision_batch_patches: int  # 0: what suits the device
    feature_pool_bytes: int  # of the pool that an owner makes on its device; 0: none
    shares_feature_pool: bool  # whether the engine of another worker will map it
    kv_cache_tokens: int  # 0: from free memory
    kv_block_tokens: int
    max_step_tokens: int  # 0: what suits the device
    max_step_sequences: int
    attention: Literal["auto", "torch", "flashinfer", "native"]
    cuda_graphs: bool  # record steps that only decode
    prefix_cache: bool  # keep keys and values for prompts that begin alike
    digest_key: bytes  # secret of this gateway process, 32 bytes; equal in all workers
    vocabulary: Vocabulary  # empty for a worker without the role language


class EncodeJob(Frame, frozen=True, kw_only=True):
    """Encode one image; the owner writes its embeddings to `target`."""

    job_id: str
    plan: ImagePlan
    payload: Payload
    target: Region
    seconds_left: float


class GenerateJob(Frame, frozen=True, kw_only=True):
    """Answer one prompt."""

    job_id: str
    salt: bytes  # whose prompt it is; prompts of different salts share no keys and values
    token_ids: bytes  # int32, little endian
    spans: tuple[Span, ...]  # in prompt order, not overlapping
    sampling: Sampling
    seconds_left: float


class Abort(Frame, frozen=True, kw_only=True):
    """Stop a job of either kind; may arrive late or twice, then it does nothing."""

    job_id: str


class MapPool(Frame, frozen=True, kw_only=True):
    """To an engine, before any job that needs it: map a pool of another worker."""

    worker: int  # that worker's index
    pool: FeaturePool


class DropPool(Frame, frozen=True, kw_only=True):
    """To an engine: that pool's owner is gone, and no job will name it any more."""

    number: int


class Stop(Frame, frozen=True, kw_only=True):
    """Leave the loop and exit with status 0."""


# ---- worker to gateway


class Loading(Frame, frozen=True, kw_only=True):
    """Progress of loading the checkpoint."""

    done: int
    total: int


class Ready(Frame, frozen=True, kw_only=True):
    """The worker takes jobs from now on. Facts it learnt while loading; 0 for a role it lacks."""

    embedding_bytes_per_token: int  # all deepstack levels together
    max_context_tokens: int
    kv_cache_tokens: int
    load_seconds: float
    feature_pool: FeaturePool | None = None  # of this owner's embeddings, unless arenas hold them


class StartFailed(Frame, frozen=True, kw_only=True):
    """The worker cannot start and exits; `message` is for the operator."""

    message: str


class Alive(Frame, frozen=True, kw_only=True):
    """A sign of life, and for how long the worker has been at one thing; 0 while it waits."""

    turn_seconds: float


class Encoded(Frame, frozen=True, kw_only=True):
    """The embeddings of one image lie in the job's target region."""

    job_id: str
    dtype: str
    shape: tuple[int, ...]  # [1 + deepstack levels, tokens, hidden]
    feature_digest: bytes  # keyed, 16 bytes, over what the tower saw, with shape and dtype
    queue_seconds: float
    decode_seconds: float  # 0 when pixels came
    preprocess_seconds: float
    digest_seconds: float
    encode_seconds: float


class PoolMapped(Frame, frozen=True, kw_only=True):
    """The answer to `MapPool`."""

    number: int
    failure: str  # why the pool cannot be mapped, for the operator; empty: it is


class Taken(Frame, frozen=True, kw_only=True):
    """The engine has the job's embeddings: copied, or read in place until the job's last event."""

    job_id: str
    is_copied: bool  # then their regions may be used again
    transfer_seconds: float  # time to copy them


class Started(Frame, frozen=True, kw_only=True):
    """The answer begins; sent once, before the first of its `Tokens`."""

    job_id: str
    num_cached_tokens: int  # of the prompt; not computed, an earlier prompt began alike


class Scored(Frame, frozen=True, kw_only=True):
    """How likely the prompt's next tokens were, but for its first; all come before `Started`."""

    job_id: str
    likelihoods: tuple[Likelihood, ...]


class Tokens(Frame, frozen=True, kw_only=True, omit_defaults=True):
    """The next tokens of an answer, in order; the token that stops it is not among them."""

    job_id: str
    token_ids: tuple[int, ...]
    likelihoods: tuple[Likelihood, ...] = ()  # one for each token if logprobs were asked for


class Finished(Frame, frozen=True, kw_only=True, omit_defaults=True):
    """Last event of a generate job that went well or was aborted."""

    job_id: str
    reason: Literal["stop", "length", "abort"]
    num_prompt_tokens: int
    num_completion_tokens: int  # an end-of-sequence token counts, as in the OpenAI API
    stop: tuple[int, Likelihood] | None = None  # the token that did, if logprobs were asked for


class Failed(Frame, frozen=True, kw_only=True):
    """Last event of a job of either kind that did not go well."""

    job_id: str
    kind: FailKind
    message: str


class Missing(Frame, frozen=True, kw_only=True):
    """Last event of a generate job that needs images which came without embeddings.

    Nothing of the job is kept; it may be sent again, by the same id, with these embeddings.
    """

    job_id: str
    starts: tuple[int, ...]  # of their spans, one or more; the other images are known


class Stats(Frame, frozen=True, kw_only=True):
    """Load of a worker: when it gets busy or falls idle, between these at most once a second."""

    num_running: int
    num_waiting: int
    kv_used_tokens: int  # in blocks that jobs hold
    kv_cached_tokens: int  # in blocks that only wait for a prompt that begins with them
    num_images_waiting: int


ToWorker = Start | EncodeJob | GenerateJob | Abort | MapPool | DropPool | Stop
LastEvent = Encoded | Finished | Failed | Missing  # of a job
JobEvent = Taken | Scored | Started | Tokens | LastEvent
FromWorker = Loading | Ready | StartFailed | Alive | PoolMapped | JobEvent | Stats
