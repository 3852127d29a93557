"""Log set-up, called once by each process."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]


class JsonLines(logging.Formatter):
    """Each record as one JSON object on one line.

    Beside the message it has what the record was given as `extra={"fields": {...}}`.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The object's keys are the same for all records; fields and exceptions come after."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logs(level: str, process: str, form: LogFormat = "text") -> None:
    """Write log lines of `level` and above to standard error, marked with the process's name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process) if form == "json" else _text_lines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for library in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # It remarks on files that callers send; whoever sent one learns of it by the answer.
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def _text_lines(process: str) -> logging.Formatter:
    return logging.Formatter(f"%(asctime)s %(levelname)s {process} %(name)s: %(message)s")
