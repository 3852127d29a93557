"""The library in C, which is compiled when the package is installed: found and loaded.

Where no compiler was there, or the processor lacks the instructions, there is none, and callers
take torch's operations.
"""

import ctypes
import importlib.machinery
from pathlib import Path
from typing import Any

NAME = "_kernels"


class NoKernel(Exception):
    """The library cannot be had here; the message says why."""


def load() -> ctypes.CDLL:
    """Load it; its calls let go of the interpreter's lock.

    Raises:
        NoKernel: it was not built, or does not run on this processor.
    """
    folder = Path(__file__).parent
    paths = (folder / (NAME + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise NoKernel("it was not built when the package was installed (no C compiler?)")
    library = ctypes.CDLL(str(path))
    if not library.fovea_runs_here():
        raise NoKernel("this processor has no AVX-512 with bfloat16 products")
    return library


def function(library: ctypes.CDLL, name: str, num_arguments: int = 1) -> Any:
    """A function of the library that takes so many addresses and gives nothing back."""
    found = getattr(library, name)
    found.argtypes = (ctypes.c_void_p,) * num_arguments
    found.restype = None
    return found
