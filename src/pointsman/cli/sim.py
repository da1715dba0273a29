"""`pointsman sim`: run simulators. Flags are llm-d-inference-sim's, so they are read by the simulator's own table.

The command is registered without cyclopts' own help and flags: a vLLM command line must reach us as it is.
"""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

sim = App(
    name="sim",
    help="Simulate vLLM: no GPU, the same API. `pointsman sim --help` lists the flags.",
    help_flags=[],
    version_flags=[],
)


@sim.default
def serve(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Serve one or many simulated vLLM pods until SIGTERM."""
    from pointsman.core import loop
    from pointsman.core.logs import configure_logs, get_logger
    from pointsman.sim import options

    if "--help" in words or "-h" in words:
        sys.stdout.write(options.help_text())
        return 0
    read = options.read(words, environ=os.environ, seed=time.time_ns() & 0x7FFFFFFFFFFFFFFF)
    configure_logs(verbosity=read.verbosity)
    if read.ignored:
        names = ", ".join(f"--{name}" for name in read.ignored)
        get_logger(__name__).warning("flags of vLLM that mean nothing to a simulator are ignored", flags=names)
    from pointsman.sim.server import run

    loop.serve(run(read.settings))
    return 0


@sim.command
def fit(
    run: Path,
    *,
    out: Path | None = None,
    model: Path | None = None,
    num_gpu_blocks: int | None = None,
    held_out: bool = False,
) -> int:
    """Fit a step model to a recorded run of vLLM, and print its errors.

    Parameters
    ----------
    run
        Folder with meta.json and requests.jsonl.
    out
        Where to write the coefficients, for --step-model; without it they are printed.
    model
        Fit nothing: print the errors of these coefficients on the run.
    num_gpu_blocks
        Size of the KV cache in blocks of 16 tokens, if it ran full and meta.json does not tell.
    held_out
        Fit nothing: print the errors on requests that the fit has not seen, a third of them at a time.

    """
    from pointsman.core.documents import read_yaml
    from pointsman.sim.engine.latency import step_model
    from pointsman.sim.fit import fit as fitting
    from pointsman.sim.fit import recordings

    recording = recordings.load(run, blocks=num_gpu_blocks)
    if held_out:
        sys.stdout.write(fitting.show(fitting.held_out(recording)))
        return 0
    found = step_model(read_yaml(model), name=str(model)) if model else fitting.fit(recording)
    sys.stdout.write(fitting.show(fitting.table(recording, found)))
    if model is None:
        text = fitting.document(recording, found)
        if out is None:
            sys.stdout.write("\n" + text)
        else:
            out.write_text(text)
    return 0
