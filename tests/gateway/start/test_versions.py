"""A torch and torchvision that cannot work together are named before anything is imported."""

import importlib.metadata

import pytest

from gateway.start.versions import VersionError, check_torch_pair


def check(torch: str, torchvision: str) -> None:
    check_torch_pair({"torch": torch, "torchvision": torchvision}.__getitem__)


def test_installed_pair_is_accepted() -> None:
    check_torch_pair()


@pytest.mark.parametrize(
    ("torch", "torchvision"),
    [
        ("2.14.1", "0.29.1"),
        ("2.14.1+cpu", "0.29.1+cpu"),
        ("2.14.1", "0.29.1+cu130"),
        ("2.15.0", "0.30.0"),
        ("2.14.0a0+git1234", "0.27.0a0+5678"),
        ("built by hand", "0.1.2"),
    ],
)
def test_pair_is_accepted(torch: str, torchvision: str) -> None:
    check(torch, torchvision)


@pytest.mark.parametrize(
    ("torch", "torchvision"),
    [
        ("2.14.1", "0.28.1"),
        ("2.14.1", "0.29.0"),
        ("2.13.1", "0.29.1"),
        ("2.14.1+cpu", "0.29.1"),
        ("2.14.1", "0.29.1+cpu"),
    ],
)
def test_mismatch_names_both_versions_and_the_way_out(torch: str, torchvision: str) -> None:
    with pytest.raises(VersionError) as failure:
        check(torch, torchvision)
    minor = 13 if "13" in torch else 14
    for text in (torch, torchvision, f"torch==2.{minor}.1 torchvision==0.{minor + 15}.1"):
        assert text in str(failure.value)


def test_missing_package_is_named() -> None:
    def version_of(package: str) -> str:
        if package == "torchvision":
            raise importlib.metadata.PackageNotFoundError(package)
        return "2.14.1"

    with pytest.raises(VersionError, match="torchvision is not installed"):
        check_torch_pair(version_of)
