"""Stages without a model: real loops, wire and processes around arithmetic anybody can repeat.

A prompt or an image provokes faults: by a token of `PROMPT_FAULTS` anywhere in the prompt, or by
a first pixel of `PIXEL_FAULTS` (send one plain colour as PNG). A checkpoint folder with a name of
`START_FAULTS` provokes them while loading.
"""

import os
import signal
import time
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from workers.arena import Arenas
from workers.messages import (
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Ready,
    Start,
    Stats,
    Taken,
    Tokens,
)

HIDDEN = 8  # float32 values per image token
CONTEXT_TOKENS = 4096
NUM_PRINTABLE = 94  # ids 0 to 93 of the demo model's tokenizer are the printable ASCII characters
# Token id -> what happens; the comment is the character it stands for. Put letters around it.
PROMPT_FAULTS = {
    61: "die",  # ^
    93: "hang",  # ~
    91: "fail",  # |
    63: "raise",  # `
    59: "die later",  # \ : after three tokens
    31: "slow",  # @ : 20 ms for each token
}
PIXEL_FAULTS = {
    (13, 0, 0): "die",
    (13, 1, 0): "hang",
    (13, 2, 0): "fail",
    (13, 3, 0): "raise",
    (13, 4, 0): "slow",  # 200 ms
}
START_FAULTS = ("fail-to-load", "die-while-loading", "hang-while-loading")
TOKENS_BEFORE_DEATH = 3
