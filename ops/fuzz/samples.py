"""One honest message of every kind that goes over the wires."""

from workers.families.plan import ImagePlan, plain
from workers.messages import (
    Abort,
    Alive,
    DropPool,
    Embeddings,
    Encoded,
    EncodeJob,
    Failed,
    FeaturePool,
    Finished,
    FromWorker,
    GenerateJob,
    JpegBytes,
    Loading,
    MapPool,
    Missing,
    Patches,
    Payload,
    Pixels,
    PoolMapped,
    Ready,
    Region,
    Scored,
    Span,
    Started,
    StartFailed,
    Stats,
    Stop,
    Taken,
    TensorRef,
    Tokens,
    ToWorker,
)
from workers.sampling import Likelihood, Sampling

_LIKELIHOOD = Likelihood(-0.5, ((5, -0.5),))
_REGION = Region(arena=0, offset=64, num_bytes=640)
_PLAN = ImagePlan(
    family="qwen_vl",
    backend="cpu",
    source_size=(56, 84),
    resized_size=(56, 84),
    padded_size=(56, 84),
    grid=(1, 4, 6),
    patch_size=14,
    temporal_patch_size=2,
    merge_size=2,
    patch_order="merged",
    num_tokens=6,
    attention_patches=6608,
    resample="bicubic",
    first_pass="horizontal",
    rescale=1 / 255,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    background=plain((255, 255, 255)),
)
_PAYLOADS: tuple[Payload, ...] = (
    JpegBytes(_REGION, 6),
    Pixels(_REGION, 56, 84, 3, "resized"),
    Patches(_REGION),
    Embeddings(_REGION, "float32", (1, 6, 8)),
)
_SAMPLING = Sampling(
    temperature=0.7, top_p=0.9, top_k=4, seed=5, max_tokens=9, stop_token_ids=(2, 3), grammar="x"
)
_SPAN = Span(
    start=1,
    num_tokens=6,
    grid=(1, 4, 6),
    embeddings=TensorRef(_REGION, "float32", (1, 6, 8)),
    identity=bytes(range(16)),
)

TO_WORKER: tuple[ToWorker, ...] = (
    *(
        EncodeJob(job_id="a", plan=_PLAN, payload=each, target=_REGION, seconds_left=9.0)
        for each in _PAYLOADS
    ),
    GenerateJob(
        job_id="b",
        salt=b"salt",
        token_ids=bytes(32),
        spans=(_SPAN,),
        sampling=_SAMPLING,
        seconds_left=9.0,
    ),
    Abort(job_id="a"),
    MapPool(worker=1, pool=FeaturePool(number=7, num_bytes=4096, handle=b"handle")),
    DropPool(number=7),
    Stop(),
)
FROM_WORKER: tuple[FromWorker, ...] = (
    Loading(done=1, total=4),
    Ready(
        embedding_bytes_per_token=32,
        max_context_tokens=2048,
        kv_cache_tokens=4096,
        load_seconds=0.5,
        feature_pool=FeaturePool(number=7, num_bytes=4096, handle=b"handle"),
    ),
    StartFailed(message="no such device"),
    Alive(turn_seconds=0.25),
    Encoded(
        job_id="a",
        dtype="float32",
        shape=(1, 6, 8),
        feature_digest=bytes(16),
        queue_seconds=0.0,
        decode_seconds=0.0,
        preprocess_seconds=0.1,
        digest_seconds=0.0,
        encode_seconds=0.2,
    ),
    PoolMapped(number=7, failure=""),
    Taken(job_id="b", is_copied=True, transfer_seconds=0.0),
    Started(job_id="b", num_cached_tokens=3),
    Scored(job_id="b", likelihoods=(_LIKELIHOOD, Likelihood(-9.5, ()))),
    Tokens(job_id="b", token_ids=(5, 6), likelihoods=(_LIKELIHOOD,)),
    Finished(
        job_id="b",
        reason="stop",
        num_prompt_tokens=8,
        num_completion_tokens=2,
        stop=(7, _LIKELIHOOD),
    ),
    Failed(job_id="a", kind="bad_input", message="why"),
    Missing(job_id="b", starts=(1,)),
    Stats(
        num_running=1,
        num_waiting=0,
        kv_used_tokens=16,
        kv_cached_tokens=32,
        num_images_waiting=0,
    ),
)
