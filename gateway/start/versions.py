"""Whether the installed torch and torchvision are a pair, read from their package data alone."""

import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)([^+]*)(?:\+(.*))?")
_MINOR_DISTANCE = 15  # torch 2.N goes with torchvision 0.(N + 15)


class VersionError(Exception):
    """torch and torchvision cannot work together; the message says how to get a pair."""


@dataclass(frozen=True, slots=True)
class _Version:
    text: str
    minor: int
    patch: int
    is_release: bool
    is_for_cpu: bool


def check_torch_pair(version_of: Callable[[str], str] = importlib.metadata.version) -> None:
    """Refuse a torchvision that was not built for the installed torch.

    Such a pair fails on import with words that explain nothing. Versions that are not of the
    form of a release are left alone: whoever built them knows what they are.

    Raises:
        VersionError: one of the two is absent, or they do not match.
    """
    torch, torchvision = _read("torch", version_of), _read("torchvision", version_of)
    if torch is None or torchvision is None or not (torch.is_release and torchvision.is_release):
        return
    wanted = f"0.{torch.minor + _MINOR_DISTANCE}.{torch.patch}"
    advice = (
        f"install the pair in one go, from one package index: pip install --force-reinstall "
        f"torch==2.{torch.minor}.{torch.patch} torchvision=={wanted}"
    )
    found = f"torchvision {torchvision.text} does not go with torch {torch.text}"
    if (torchvision.minor, torchvision.patch) != (torch.minor + _MINOR_DISTANCE, torch.patch):
        raise VersionError(f"{found}, which needs {wanted}; {advice}")
    if torch.is_for_cpu != torchvision.is_for_cpu:
        raise VersionError(f"{found}: one of them is built for CPUs only; {advice}")


def _read(package: str, version_of: Callable[[str], str]) -> _Version | None:
    try:
        text = version_of(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise VersionError(
            f"{package} is not installed; pip install torch torchvision brings a pair"
        ) from error
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    _, minor, patch, suffix, tag = match.groups()
    return _Version(text, int(minor), int(patch), is_release=not suffix, is_for_cpu=tag == "cpu")
