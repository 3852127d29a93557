import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

CODE = """
import logging
from gateway.start.progress import LoadProgress
logging.basicConfig(level="INFO", format="%(message)s")
progress = LoadProgress(("one", "two"))
for done in range(0, 101, 2):
    progress.update(0, done, 100)
    progress.update(1, done // 2, 100)
progress.finish(0)
progress.finish(1)
"""


def test_elsewhere_than_on_a_terminal_progress_is_a_few_log_lines() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert "one loads the checkpoint: 100 %" in lines
    assert len([line for line in lines if line.startswith("one")]) in range(9, 13)
    assert "two loads the checkpoint: 100 %" not in lines


def test_on_a_terminal_progress_is_a_bar() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with subprocess.Popen([sys.executable, "-c", CODE], stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0
    assert b"one loads: 100%" in shown
    assert "█".encode() in shown
    assert b"loads the checkpoint" not in shown
