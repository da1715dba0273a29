"""A recorded run of a real vLLM.

A recording is a folder: `meta.json` (the engine's settings), `requests.jsonl` (per request its sizes and the times at
which it arrived, was queued, scheduled, and gave its first and last token), and where there is one a log of the steps:
`steps.csv.gz`, or `vllm.log` with vLLM's own lines about them. With data parallelism each rank is an engine of its own,
with its requests and steps; a run is as many recordings as it had ranks, which go together wherever it is judged.
Arrivals are on another clock than the rest; both are put on the engine's by letting the quickest hand-over take no
time. Settings that our engine does not have are refused rather than left out: a fit would put their effect elsewhere.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from pointsman.core.errors import UserError
from pointsman.core.lines import cut
from pointsman.core.numbers import bounded_int, is_count
from pointsman.sim.engine.engine import EngineConfig
from pointsman.sim.fit import steplog
from pointsman.sim.fit.iterations import Iteration, parse, steps
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.steplog import LoggedStep

_Logs = tuple[steplog.Steps, dict[int, list[Iteration]]]


@dataclass(frozen=True, slots=True)
class Recording:
    """A run on one engine: its settings and its requests, in the order of arrival."""

    name: str  # of the run: ranks share it
    model: str
    engine: EngineConfig
    requests: Sequence[Recorded]
    steps: Sequence[LoggedStep] = ()
    start: float = 0.0  # of the requests' times, on the clock of the steps
    graph_tokens: int = 0  # the largest batch that was captured as a CUDA graph; 0: not told


def load(folder: Path, *, blocks: int | None = None, name: str = "") -> list[Recording]:
    """Read a recording, by rank; `blocks` is the size of its KV cache where it ran full and the recording is silent.

    Raises UserError naming the file and what is wrong with it.
    """
    meta = _json(folder / "meta.json", _read(folder / "meta.json"))
    lines = _read(folder / "requests.jsonl").splitlines()
    rows = [_json(folder / "requests.jsonl", line) for line in lines if line.strip()]
    if not rows:
        raise UserError(f"{folder / 'requests.jsonl'} holds no requests")
    settings = _settings(folder, meta)
    engine = EngineConfig(
        max_num_seqs=_count(folder, settings, "max_num_seqs", 256),
        max_num_batched_tokens=_count(folder, settings, "max_num_batched_tokens", 2048),
        blocks=blocks or _blocks(meta, settings),
        block_size=_count(folder, {**meta, **settings}, "block_size", 16),
        whole_prompts=settings.get("scheduler_reserve_full_isl") is not False,
        pipelined=settings.get("async_scheduling") is not False,
    )
    largest = 0 if settings.get("enforce_eager") else _largest_graph(folder, meta)
    ranks = _by_rank(folder, rows, size=_count(folder, settings, "data_parallel_size", 1))
    logs = steplog.read(folder), _iterations(folder)
    found = []
    for rank, some in sorted(ranks.items()):
        requests, start = _requests(folder, some)
        _check_room(folder, requests, engine)
        known = _steps_of(folder, logs, rank, requests, start=start, graphs=largest, alone=len(ranks) == 1)
        found.append(
            Recording(name or folder.name, str(meta.get("model", "")), engine, requests, known, start, largest)
        )
    return found


def _largest_graph(folder: Path, meta: dict[str, Any]) -> int:
    sizes = meta.get("cudagraph_capture_sizes") or []
    if not isinstance(sizes, list) or not all(is_count(size) for size in sizes):
        raise UserError(f"{folder / 'meta.json'}: cudagraph_capture_sizes must be a list of whole numbers")
    return max(sizes, default=0)


def _check_room(folder: Path, requests: Sequence[Recorded], engine: EngineConfig) -> None:
    """Raise UserError if a request could not have run in the KV cache that the recording tells."""
    largest = max(each.prompt_tokens + each.output_tokens for each in requests)
    needed = -(-largest // engine.block_size)
    if engine.blocks is not None and needed > engine.blocks:
        raise UserError(
            f"{folder}: a request of {largest} tokens needs {needed} KV blocks of {engine.block_size} tokens, and "
            f"there were {engine.blocks}: correct num_gpu_blocks in meta.json, or give --num-gpu-blocks"
        )


def _by_rank(folder: Path, rows: Sequence[dict[str, Any]], *, size: int) -> dict[int, list[dict[str, Any]]]:
    """Return the requests of each engine.

    Raises UserError when there were several and a request does not tell its own.
    """
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        rank = row.get("data_parallel_rank", row.get("dp_rank", 0 if size == 1 else None))
        if not is_count(rank, most=steplog.MOST_RANKS):
            raise UserError(
                f"{folder} was recorded on several engines (data_parallel_size {size}) and a request does not tell "
                "which one it went to: write data_parallel_rank into every line of requests.jsonl"
            )
        found.setdefault(rank, []).append(row)
    return found


def _steps_of(
    folder: Path, logs: _Logs, rank: int, requests: Sequence[Recorded], *, start: float, graphs: int, alone: bool
) -> list[LoggedStep]:
    """Return what is known of one engine's steps: what was measured, otherwise what vLLM's log and requests tell."""
    measured, iterations = logs
    if None in measured and not alone:
        raise UserError(f"{folder} has steps of several engines: write data_parallel_rank into every line of the steps")
    if measured or rank not in iterations:
        return measured.get(rank) or measured.get(None, [])
    try:
        return steps(iterations[rank], requests, start=start, graph_tokens=graphs)
    except UserError as error:
        raise UserError(f"{folder}: {error}; without vllm.log a fit takes the requests alone") from None


def _iterations(folder: Path) -> dict[int, list[Iteration]]:
    """Return what vLLM's own log tells of its steps, by rank."""
    found: dict[int, list[Iteration]] = {}
    for path in (folder / "vllm.log.gz", folder / "vllm.log"):
        if path.exists():
            for each in parse(steplog.lines(path)):
                found.setdefault(each.rank, []).append(each)
            return found
    return found


_UNKNOWN = {
    "speculative_config": "speculative decoding gives several tokens a step",
    "speculative_model": "speculative decoding gives several tokens a step",
    "kv_transfer_config": "blocks that come from other engines are not in the recording",
    "enable_lora": "adapters have costs of their own",
    "cpu_offload_gb": "weights that come over the bus in every step are another floor",
    "kv_offloading_size": "blocks that come back from the host's memory are not in the recording",
    "long_prefill_token_threshold": "long prompts are cut into smaller chunks than ours",
    "enable_dbo": "steps are split in two that overlap",
}
_ONE = {
    "pipeline_parallel_size": "record one stage",
    "max_num_partial_prefills": "our engine cuts one prompt at a time",
    "decode_context_parallel_size": "one GPU holds all that a sequence looks back on",
    "prefill_context_parallel_size": "one GPU computes a whole prompt",
}


def _settings(folder: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's settings.

    Raises UserError naming one that our engine does not have.
    """
    settings = meta.get("engine_kwargs") or {}
    if not isinstance(settings, dict):
        raise UserError(f"{folder / 'meta.json'}: engine_kwargs must be an object of settings")
    for name, reason in _UNKNOWN.items():
        if settings.get(name):
            raise UserError(f"{folder} was recorded with {name}, which we do not model: {reason}")
    for name, reason in _ONE.items():
        if _count(folder, settings, name, 1) > 1:
            raise UserError(f"{folder} was recorded with {name}, which we do not model: {reason}")
    if settings.get("enable_chunked_prefill") is False:
        raise UserError(
            f"{folder} was recorded without enable_chunked_prefill: our engine cuts prompts as vLLM V1 does"
        )
    if settings.get("enable_expert_parallel") and _count(folder, settings, "data_parallel_size", 1) > 1:
        raise UserError(
            f"{folder} was recorded with enable_expert_parallel: its ranks wait for each other in every step"
        )
    if settings.get("scheduling_policy") not in {None, "fcfs"}:
        raise UserError(f"{folder} was recorded with scheduling_policy, which we replay as fcfs only: record it so")
    return settings


def _blocks(meta: dict[str, Any], settings: dict[str, Any]) -> int | None:
    """Return how many KV blocks there were, wherever the recording tells."""
    cache = meta.get("kv_cache")
    for found in (
        settings.get("num_gpu_blocks_override"),
        meta.get("num_gpu_blocks"),
        cache.get("num_gpu_blocks") if isinstance(cache, dict) else None,
        settings.get("num_gpu_blocks"),
    ):
        if is_count(found) and found:
            return int(found)
    return None


def _count(folder: Path, settings: dict[str, Any], name: str, default: int) -> int:
    found = settings.get(name) or default
    if not is_count(found):
        raise UserError(f"{folder / 'meta.json'}: {name} is {found!r}: write a whole number")
    return int(found)


_TIMES = ("queued_ts", "first_token_ts", "last_token_ts")  # in this order
_SIZES = ("input_toks", "output_toks")
_MOST_TOKENS = 20_000_000  # of one request: twice the largest window there is
_FAILED = "leave out requests that failed"


def _requests(folder: Path, rows: Sequence[dict[str, Any]]) -> tuple[list[Recorded], float]:
    for row in rows:
        _check_request(folder / "requests.jsonl", row)
    shift = min(row["queued_ts"] - row["arrival_time"] for row in rows)
    start = min(row["arrival_time"] for row in rows) + shift
    found = [
        Recorded(
            row["input_toks"],
            row["output_toks"],
            row["arrival_time"] + shift - start,
            row.get("scheduled_ts", row["queued_ts"]) - start,
            row["first_token_ts"] - start,
            row["last_token_ts"] - start,
        )
        for row in rows
    ]
    return sorted(found, key=lambda request: request.arrival), start


def _check_request(path: Path, row: dict[str, Any]) -> None:
    """Raise UserError naming what a request lacks, or what of it cannot be."""
    who = f"{path}: request {cut(str(row['request_id']), most=50)}" if "request_id" in row else f"{path}: a request"
    for name in ("arrival_time", *_TIMES, *_SIZES):
        if name not in row:
            raise UserError(f"{who} lacks {name!r}")
    for name in _SIZES:
        if not is_count(row[name], most=_MOST_TOKENS) or not row[name]:
            raise UserError(f"{who} has {name} {cut(repr(row[name]), most=50)}: write a count of tokens, and {_FAILED}")
    for name in ("arrival_time", *_TIMES, "scheduled_ts"):
        value = row.get(name, 0.0)
        if type(value) not in (int, float) or not isfinite(value):
            raise UserError(f"{who} has {name} {cut(repr(value), most=50)}: write seconds, and {_FAILED}")
    for before, after in pairwise(_TIMES):
        if row[after] < row[before]:
            raise UserError(f"{who} has {after} before {before}: write one clock's times, and {_FAILED}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_int=bounded_int)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold JSON objects")
    return found
