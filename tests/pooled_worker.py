"""Main of a real worker on the CPU whose embeddings lie in pools, as if it had a device.

The first argument is a name of `KINDS`.
"""

import sys
from functools import partial

from tests.shared_pools import NoExport, NoOpen, SharedPools
from workers.build import build_stages
from workers.entry import main

KINDS = {"whole": SharedPools, "no-export": NoExport, "no-open": NoOpen}


def pooled_command(kind: str) -> tuple[str, ...]:
    """For the pool of workers."""
    return (sys.executable, "-m", "tests.pooled_worker", kind)


if __name__ == "__main__":
    pools = KINDS[sys.argv[1]]()
    main(sys.argv[2:], partial(build_stages, pools_of=lambda _: pools))
