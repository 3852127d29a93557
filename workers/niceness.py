"""Which threads of a worker come first where there are not cores for all."""

import os
import sys
import threading

BEHIND = 10  # of 19; such a thread gets a tenth of a core that another wants as well
LAST = 19  # a seventieth


def give_way(niceness: int = BEHIND) -> None:
    """Let the calling thread, and those that it starts, take what others leave of the cores.

    Meant for passes of a vision tower on a CPU.
    A pass takes as long as many steps of an engine and as thousands of the gateway's. Where all
    had the same right, a flood of images made a short text's first token wait 14 times as long.
    """
    if sys.platform == "linux":  # elsewhere it is the whole process that has a priority
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(niceness, own))
