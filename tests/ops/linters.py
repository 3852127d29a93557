"""Command-line linters, found beside the interpreter or on the path."""

import os
import subprocess
import sys
from pathlib import Path


def lint(*command: str | Path) -> str:
    """Run one; what it printed. It fails the test if the tool finds something."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run(
        [str(each) for each in command],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
