"""Settings of the test process itself."""

import os

# Before anything imports torch: threads that wait for each other suffer most on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
