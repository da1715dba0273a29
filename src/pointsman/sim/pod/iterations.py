"""A line for each step, as vLLM's `--enable-logging-iteration-details` writes it: for whoever reads such logs.

`pointsman sim fit` does, and so do others. What vLLM calls elapsed is how long an output was waited for once the host
had nothing else to do.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TextIO

from pointsman.sim.engine.engine import Step


def logger(file: TextIO, *, rank: int, wall: Callable[[], float]) -> Callable[[Step], None]:
    """Return what writes a step's line; `rank` is the engine's among several. A reader that went away is no error."""
    numbers: Iterator[int] = count()
    head = f"(EngineCore_DP{max(rank, 0)} pid={os.getpid()}) INFO"

    def log(step: Step) -> None:
        decoding = len(step.emitted) - len(step.joined)
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(wall()))
        line = (
            f"{head} {at} [core.py] Iteration({next(numbers)}): {step.prompts} context requests, "
            f"{step.batch_tokens - decoding} context tokens, {decoding} generation requests, {decoding} generation "
            f"tokens, iteration elapsed time: {step.waited * 1e3:.2f} ms\n"
        )
        with contextlib.suppress(OSError, ValueError):
            file.write(line)
            file.flush()

    return log
