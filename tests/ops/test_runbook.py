"""The runbook keeps in step with the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from config.settings import fields, variable
from gateway import errors
from gateway.start.doctor import Machine, examine

ROOT = Path(__file__).parent.parent.parent
RUNBOOK = (ROOT / "ops" / "README.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([\w.]+)`", RUNBOOK))


def codes_of(kind: type[errors.ServeError]) -> Iterator[str]:
    yield kind.code
    for below in kind.__subclasses__():
        yield from codes_of(below)


def codes_given() -> Iterator[object]:
    """Codes that the gateway gives at some places: words passed as `code`."""
    for path in (ROOT / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "code":
                value = node.value
                branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                yield from (each.value for each in branches if isinstance(each, ast.Constant))


def test_every_code_of_the_tree_is_explained() -> None:
    assert set(codes_of(errors.ServeError)) - WORDS == set()


def test_every_code_that_is_given_somewhere_is_explained() -> None:
    given = set(codes_given())
    assert "fetch_failed" in given
    assert given - WORDS == set()


def test_settings_that_are_named_exist() -> None:
    known = {variable(name) for _, name, _ in fields()}
    for path in (ROOT / "ops" / "README.md", ROOT / "ops" / "deploy" / "README.md"):
        named = set(re.findall(r"FOVEA_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert named - known == set(), path


def test_metrics_that_are_named_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "gateway").rglob("*.py"))
    for name in re.findall(r"fovea_[a-z_]+", RUNBOOK):
        assert f'"{name.removesuffix("_total")}"' in source, name


def test_every_topic_of_the_doctor_is_explained() -> None:
    topics = {each.topic for each in examine({"FOVEA_PORT": "0", "FOVEA_HOST": "0.0.0.0"})}
    topics |= {each.topic for each in examine({}, Machine(version_of=lambda name: "1"))}
    assert topics - WORDS == set()
