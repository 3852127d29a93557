"""Whether a fault means that memory was short, and giving back what the libraries keep of it."""

import torch


def is_short(fault: BaseException) -> bool:
    """Whether there was no room for what a computation wanted to allocate."""
    # torch has a class for its devices alone; on the CPU the words are all there is.
    words = "DefaultCPUAllocator: " in str(fault)
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or words


def give_back() -> None:
    """Let go of memory that torch keeps for its next allocations."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # the library types it not
        torch.cuda.empty_cache()
