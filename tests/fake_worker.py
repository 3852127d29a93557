"""Main of a worker process without a model; see `tests.fakes`."""

import sys

from tests.fakes import build_fakes
from workers.entry import main

if __name__ == "__main__":
    main(sys.argv[1:], build_fakes)
