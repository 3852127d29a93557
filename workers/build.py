"""What a worker consists of: its `Start` in, loaded stages and their facts out; imports torch."""

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.arena import Arenas
from workers.families import family_of, load_layout
from workers.messages import Ready, Start

if TYPE_CHECKING:
    from workers.features import Home, Pools
    from workers.language.engine import Engine
    from workers.language.graphs import Recorder
    from workers.vision.owner import Owner


class CannotStart(Exception):
    """The model libraries or the device are of no use; the message says what to do."""


def cuda_pools(device: str) -> "Pools | None":
    """How memory of a device is shared between processes; None where it is not."""
    if device == "cpu":
        return None
    import torch

    from workers.cuda_pool import CudaPools

    return CudaPools(torch.device(device))


def build_stages(
    start: Start,
    arenas: Arenas,
    progress: Callable[[int, int], None],
    pools_of: "Callable[[str], Pools | None]" = cuda_pools,
) -> "tuple[Owner | None, Engine | None, Ready]":
    """Load the checkpoint and make a stage for each role.

    Args:
        start: what the worker is.
        arenas: those of all workers.
        progress: called as weights arrive.
        pools_of: how memory of the worker's device is shared.

    Raises:
        CannotStart: a library cannot be imported, there is no such device, or no room on it, or
            it cannot share its memory.
        UnsupportedCheckpoint: see the families.
    """
    began_at = time.monotonic()
    model = Path(start.model)
    family = family_of(model)
    _set_up_libraries(start)
    load = importlib.import_module(f"workers.families.{family}.load")
    models = load.load_models(model, start.roles, start.device, start.dtype, progress)
    home = _home(start, pools_of)  # before the KV cache takes what is free
    owner = _owner(start, models, arenas, home) if "vision" in start.roles else None
    engine = _engine(start, models, arenas, home) if "language" in start.roles else None
    ready = Ready(
        embedding_bytes_per_token=models.vision.embedding_bytes_per_token if owner else 0,
        max_context_tokens=engine.max_context_tokens if engine else 0,
        kv_cache_tokens=engine.kv_cache_tokens if engine else 0,
        load_seconds=time.monotonic() - began_at,
        feature_pool=home.pool.describe() if home.pool else None,
    )
    return owner, engine, ready


def _set_up_libraries(start: Start) -> None:
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torchvision")
        importlib.import_module("transformers")
    except FileNotFoundError as error:
        raise CannotStart(
            f"torch wants a folder for temporary files: {error}. Where the file system is "
            "read-only, mount one at /tmp or name one in TMPDIR"
        ) from error
    except (ImportError, OSError, RuntimeError) as error:
        raise CannotStart(
            f"torch, torchvision and transformers do not work together: {error}. Install them "
            "again in one go, from one package index: pip install --force-reinstall "
            "torch torchvision transformers"
        ) from error
    num_gpus = torch.cuda.device_count()
    if start.device != "cpu" and (torch.device(start.device).index or 0) >= num_gpus:
        raise CannotStart(
            f"there is no device {start.device}: torch {torch.__version__} finds {num_gpus} CUDA "
            "devices; FOVEA_WORKERS names the devices to use"
        )
    from workers.families.crew import use_threads

    use_threads(start.num_threads)


def _home(start: Start, pools_of: "Callable[[str], Pools | None]") -> "Home":
    from workers.features import Home, PoolError, make_pool

    try:
        pools = pools_of(start.device)
        if pools is None or not start.feature_pool_bytes:
            return Home(start.index, None, pools)
        pool = make_pool(pools, start.feature_pool_bytes, start.shares_feature_pool)
    except PoolError as error:
        raise CannotStart(
            f"{start.device} cannot share embeddings: {error}. FOVEA_FEATURE_TRANSPORT=cpu does "
            f"without; FOVEA_FEATURE_POOL_BYTES={start.feature_pool_bytes} sets what it takes"
        ) from error
    return Home(start.index, pool, pools)


def _owner(start: Start, models: Any, arenas: Arenas, home: "Home") -> "Owner":
    from workers.vision.batch import max_patches_on, passes_at_once
    from workers.vision.owner import Owner

    # One thread on a CPU has nothing to share: ahead took 1.04 to 1.11 of the time of in line, two
    # threads 0.88 to 0.96 (images of 1536 x 1024, a tower of 9.5 million parameters, 2 cores).
    looks_ahead = start.device != "cpu" or start.num_threads > 1
    return Owner(
        models.vision,
        arenas,
        max_patches=start.max_vision_batch_patches or max_patches_on(start.device),
        digest_key=start.digest_key,
        looks_ahead=looks_ahead,
        num_passes=passes_at_once(start.device, start.num_threads),
        pool=home.pool,
    )


def _engine(start: Start, models: Any, arenas: Arenas, home: "Home") -> "Engine":
    from torch import OutOfMemoryError

    from workers.language.engine import Engine
    from workers.language.grammar import Grammars
    from workers.language.paths import NoSuchPath, choose_path
    from workers.language.runner import max_step_tokens_on

    recorder = _recorder(start, models.text) if start.cuda_graphs else None
    try:
        attend = choose_path(start.attention, models.text)
        return Engine(
            models.text,
            load_layout(Path(start.model)),
            arenas,
            kv_cache_tokens=start.kv_cache_tokens,
            kv_block_tokens=start.kv_block_tokens,
            max_step_tokens=start.max_step_tokens or max_step_tokens_on(start.device),
            max_step_sequences=start.max_step_sequences,
            max_context_tokens=start.max_context_tokens,
            home=home,
            attend=attend,
            recorder=recorder,
            prefix_cache=start.prefix_cache,
            digest_key=start.digest_key,
            grammars=Grammars(start.vocabulary, models.text.vocab_size),
        )
    except NoSuchPath as error:
        raise CannotStart(f"FOVEA_ATTENTION={start.attention}: {error}") from error
    except (MemoryError, OutOfMemoryError) as error:
        raise CannotStart(
            f"{start.device} has no room for the KV cache; FOVEA_KV_CACHE_TOKENS="
            f"{start.kv_cache_tokens} sets its size"
        ) from error


def _recorder(start: Start, decoder: Any) -> "Recorder":
    from workers.language.graphs import CudaRecorder

    if decoder.device.type != "cuda" or not decoder.is_recordable:
        raise CannotStart(
            f"FOVEA_CUDA_GRAPHS=1: the decoder of {Path(start.model).name} on {start.device} "
            "cannot be recorded; leave the setting out"
        )
    return CudaRecorder(decoder.device)
