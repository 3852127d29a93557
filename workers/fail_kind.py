"""The ways in which a job can fail."""

from typing import Literal

# bad_input      the caller's mistake
# not_finite     the model gave no finite scores: the caller's mistake where embeddings came from
#                callers, else a fault
# undecoded      the owner could not read a JPEG file, and pixels should be sent instead
# deadline       seconds_left ran out
# out_of_memory  there was no room to compute it
# internal       a fault of the worker, which goes on
# lost           the worker that held the job died (the pool says so)
# killed         the same, by a SIGKILL that the pool did not send
# gone           a worker died, and the job has nothing to do with it: it was not begun, or was not
#                what the worker died of, or the owner of its embeddings died
FailKind = Literal[
    "bad_input",
    "not_finite",
    "undecoded",
    "deadline",
    "out_of_memory",
    "internal",
    "lost",
    "killed",
    "gone",
]
