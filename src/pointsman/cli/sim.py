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


fit = App(name="fit", help_flags=["--help", "-h"], version_flags=[])
sim.command(fit)


@fit.default
def fit_model(
    runs: Annotated[list[Path], Parameter(negative=())],
    *,
    out: Path | None = None,
    model: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    plot: Path | None = None,
    num_gpu_blocks: int | None = None,
    held_out: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Fit a model of a GPU's steps to recorded runs of vLLM, and print its errors.

    Parameters
    ----------
    runs
        Folders with meta.json, requests.jsonl and, where there are any, steps.csv.gz or vllm.log: runs of one engine.
    out
        Where to write the model, for --latency-model; without it it is printed.
    model
        Fit nothing: print the errors of this model (a file, or the name of a shipped one) on the runs.
    as_json
        Print the errors in percent as JSON: of one run, or by the names of several.
    plot
        Where to write an SVG of the first run, recorded against simulated.
    num_gpu_blocks
        Size of the KV cache in blocks, if it ran full and meta.json does not tell.
    held_out
        Print the errors on what a fit has not seen: each run left out in turn, or the later half of a single one.

    """
    from pointsman.sim.fit import command

    asked = command.Asked(
        runs, out=out, model=model, as_json=as_json, plot=plot, blocks=num_gpu_blocks, held_out=held_out
    )
    sys.stdout.write(command.run(asked))
    return 0


record = App(name="record", help_flags=["--help", "-h"], version_flags=[])
sim.command(record)


@record.default
def record_run(
    url: str,
    *,
    out: Path,
    rate: float = 10.0,
    seconds: float = 60.0,
    prompt_tokens: int = 250,
    output_tokens: int = 200,
    longest: int = 4096,
    seed: int = 1,
    setting: Annotated[list[str] | None, Parameter(negative=())] = None,
    log: Path | None = None,
) -> int:
    """Record a running vLLM: send it a load, and write when each request got its tokens, for `pointsman sim fit`.

    Parameters
    ----------
    url
        Where it serves, such as http://127.0.0.1:8000.
    out
        Folder of the recording.
    rate
        Requests per second.
    seconds
        How long.
    prompt_tokens
        Mean size of prompts.
    output_tokens
        Mean size of answers.
    longest
        A prompt and its answer together have at most so many tokens: the engine's --max-model-len, or less.
    seed
        Of the load: the same seed sends the same one.
    setting
        A setting of the engine that its own pages do not tell, as NAME=VALUE: max_num_seqs=256. May be repeated.
    log
        The file that vLLM, started with --enable-logging-iteration-details, writes its log to: what each step held.

    """
    import asyncio

    from pointsman.sim.fit import record as recording
    from pointsman.sim.fit.enginelog import EngineLog

    load = recording.Load(
        rate=rate, seconds=seconds, prompt_tokens=prompt_tokens, output_tokens=output_tokens, longest=longest, seed=seed
    )
    settings = recording.read_settings(setting or [])
    steps = None if log is None else EngineLog(log)
    sys.stdout.write(recording.write(out, asyncio.run(recording.record(url, load, settings=settings, log=steps))))
    return 0
