"""The log of an engine's steps: what each held, and when the host and the GPU were done with it.

`steps.csv.gz` (or `steps.csv`) has a line per step, in order: `t_sched`, `t_exec_end`, `t_out`, `t_out_end` (seconds,
one clock: the host begins, has launched the step, takes its output, is done with that), `prefill_tokens`,
`prefill_context`, `prefill_chunks`, `decode_seqs`, `context_tokens`, `running`, and what the GPU measured: `gpu_ms` and
`gpu_gap_ms`, the pause before it. `t_exec`, when the launch begins, may be left out, and `data_parallel_rank` where
there is one engine; other columns are ignored.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pointsman.core.errors import UserError
from pointsman.core.numbers import real, whole
from pointsman.sim.engine.latency import Batch

_MOST = 2_000_000  # steps
MOST_RANKS = 1023
LONGEST = 1 << 20  # characters of a line
_TIMES = ("t_sched", "t_exec_end", "t_out", "t_out_end", "gpu_ms", "gpu_gap_ms")
_COUNTS = ("prefill_tokens", "prefill_context", "decode_seqs", "context_tokens", "running", "prefill_chunks")
WAITED = 3e-4  # an output later than the next launch by that much was waited for: the GPU ended then


class LoggedStep(NamedTuple):
    """One step: seconds on the engine's clock."""

    batch: Batch
    formed: float  # the host begins with it
    launched: float  # … and is done
    output: float  # its tokens are taken
    host: float | None  # the host's work on it in all, where the log tells
    gpu: float  # the GPU's, with what it waited for the host in between
    gpu_free: float | None  # when the GPU was done with the step before, where the log tells
    gpu_done: float | None


Steps = dict[int | None, list[LoggedStep]]
"""Steps by rank; None where the log does not tell it."""


def read(folder: Path) -> Steps:
    """Return the steps in a folder of a recording; none where there is no log.

    Raises UserError naming the file and what is wrong with it.
    """
    for name in ("steps.csv.gz", "steps.csv"):
        path = folder / name
        if path.exists():
            return {rank: list(_timed(rows)) for rank, rows in _rows(path).items()}
    return {}


def lines(path: Path) -> Iterator[str]:
    """Return the lines of a text, packed or not; those that are too long in pieces.

    Raises UserError when it cannot be read.
    """
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            yield from iter(partial(file.readline, LONGEST), "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _rows(path: Path) -> dict[int | None, list[dict[str, float]]]:
    found: dict[int | None, list[dict[str, float]]] = {}
    try:
        for number, row in zip(range(2, _MOST), csv.DictReader(lines(path)), strict=False):
            rank = whole(row.get("data_parallel_rank") or "", most=MOST_RANKS)
            found.setdefault(rank, []).append(_row(path, number, row))
    except csv.Error as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return found


def _row(path: Path, line: int, row: dict[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in (*_TIMES, *_COUNTS):
        value = real(row.get(name) or "")
        if value is None:
            raise UserError(f"{path} line {line}: {name} is missing or no number")
        found[name] = value
    found["t_exec"] = real(row.get("t_exec") or "") or found["t_sched"]
    return found


def _timed(rows: Sequence[dict[str, float]]) -> Iterator[LoggedStep]:
    """Put the GPU's times on the host's clock: wherever an output was waited for, the GPU ended just then."""
    done: float | None = None
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        free = done
        gpu = row["gpu_ms"] * 1e-3
        if done is not None:
            done += row["gpu_gap_ms"] * 1e-3 + gpu
        if after is not None and after["t_exec"] < row["t_out"] and row["t_out"] > after["t_exec_end"] + WAITED:
            done = row["t_out"]
        prefill, inside, decoding, context, running, prompts = (int(row[name]) for name in _COUNTS)
        batch = Batch(prefill, inside, decoding, context, running, prompts)
        host = row["t_exec_end"] - row["t_sched"] + row["t_out_end"] - row["t_out"]
        yield LoggedStep(batch, row["t_sched"], row["t_exec_end"], row["t_out"], host, gpu, free, done)
