"""Log lines for machines: one object on one line, whatever is in them."""

import json
import logging
import sys

from config.logs import JsonLines


def record(message: str, *values: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("gateway.part")
    return logger.makeRecord(
        logger.name, logging.WARNING, "part.py", 1, message, values, None, extra=extra
    )


def test_a_line_has_its_fields_beside_the_message() -> None:
    line = JsonLines("gateway").format(record("took %d s", 3, fields={"request_id": "r", "n": 3}))
    read = json.loads(line)
    assert read.pop("time").endswith("+00:00")
    assert read == {
        "level": "warning",
        "process": "gateway",
        "logger": "gateway.part",
        "message": "took 3 s",
        "request_id": "r",
        "n": 3,
    }


def test_what_looks_like_another_line_stays_within_its_own() -> None:
    line = JsonLines("g").format(record("%s", 'a\n{"level": "error"}\u2028"'))
    assert line.splitlines() == [line]
    assert json.loads(line)["level"] == "warning"


def test_an_exception_comes_with_its_traceback_on_the_same_line() -> None:
    one = record("failed")
    try:
        raise KeyError("lost")
    except KeyError:
        one.exc_info = sys.exc_info()
    line = JsonLines("g").format(one)
    assert "\n" not in line
    assert "KeyError" in json.loads(line)["exception"]
