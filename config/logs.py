"""Log set-up, called once by each process."""

import logging
import sys


def set_up_logs(level: str, process: str) -> None:
    """Write log lines of `level` and above to standard error, marked with the process's name."""
    handler = logging.StreamHandler(sys.stderr)
    form = f"%(asctime)s %(levelname)s {process} %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(form))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for library in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # It remarks on files that callers send; whoever sent one learns of it by the answer.
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
