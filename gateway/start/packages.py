"""Installed packages in, what they allow out: versions, extras, and what was compiled."""

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator

from config.settings import Settings
from config.workers import WorkerSpec
from gateway.start.findings import Finding, Level
from gateway.start.versions import VersionError, check_torch_pair
from workers.native import library

VersionOf = Callable[[str], str]

_PACKAGES = ("torch", "torchvision", "transformers", "pillow", "safetensors", "tokenizers")
_EXTRA = re.compile(r"(?P<package>[\w.-]+).*extra\s*==\s*['\"](?P<extra>\w+)['\"]")


def check_versions(version_of: VersionOf) -> Iterator[Finding]:
    """The packages that have to be there, and whether torch and torchvision go together."""
    try:
        check_torch_pair(version_of)
        found = ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES)
    except VersionError as error:
        yield Finding("failure", "versions", str(error))
        return
    except importlib.metadata.PackageNotFoundError as error:
        yield Finding("failure", "versions", f"{error.name} is not installed; pip install it")
        return
    yield Finding("ok", "versions", found)


def check_extras(version_of: VersionOf) -> Iterator[Finding]:
    """The optional packages that the installed project names, but for those of developers."""
    try:
        requirements = importlib.metadata.requires("fovea") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        match = _EXTRA.match(requirement)
        if match is None or match["extra"] == "dev":
            continue
        package, extra = match["package"], match["extra"]
        try:
            yield Finding("ok", "optional", f"{package} {version_of(package)}")
        except importlib.metadata.PackageNotFoundError:
            advice = f"{package} is absent; if you want it: pip install 'fovea[{extra}]'"
            yield Finding("ok", "optional", advice)


def check_compiled(settings: Settings, specs: Iterable[WorkerSpec]) -> Iterator[Finding]:
    """Attention in C, which workers take that compute bfloat16 on a CPU."""
    if all(spec.device != "cpu" for spec in specs):
        return
    is_used = settings.model.dtype == "bfloat16"
    try:
        library.load()
    except library.NoKernel as error:
        if is_used:
            level: Level = "failure" if settings.engine.attention == "native" else "warning"
            advice = "install a C compiler and then Fovea again, or go on at half the speed or less"
            yield Finding(level, "compiled", f"no attention in C: {error}; {advice}")
        return
    advice = "" if is_used else "; FOVEA_DTYPE=bfloat16 would use it, faster and less exact"
    yield Finding("ok", "compiled", f"attention in C, for bfloat16 on the CPU{advice}")


def is_for_cpu(version_of: VersionOf) -> bool:
    """Whether the installed torch knows no GPU."""
    try:
        return version_of("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False  # told among the versions
