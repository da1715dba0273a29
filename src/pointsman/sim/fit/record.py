"""Recording a running vLLM from outside: a load of known sizes, and when each request got its tokens.

Requests are sent open loop (they come when they come, however slow the engine is), as token ids that share no prefix,
with the end of the answer ignored, so that both sizes are exactly those written down. Times are the client's; on the
same machine they are the engine's but for a millisecond. What the engine is, its own pages tell: the model's name, and
the blocks of its KV cache. Settings that they do not tell are given by hand. What its steps held its log tells, where
it can be read; a fit does without it, but not as well. Of several ranks each gets its turn, by vLLM's own header.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from pointsman.core.errors import UserError
from pointsman.core.numbers import is_count
from pointsman.sim.fit.enginelog import EngineLog
from pointsman.sim.fit.steplog import MOST_RANKS

_CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)
_LABEL = re.compile(r'(block_size|num_gpu_blocks)="(\d+)"')
_WIDE = 0.8  # of the logarithm of sizes
_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent."""

    rate: float  # requests per second
    seconds: float
    prompt_tokens: int  # mean
    output_tokens: int  # mean
    longest: int  # of a prompt and its output together
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Planned:
    """One request: when, and how large."""

    at: float
    prompt: int
    output: int


def plan(load: Load) -> Iterator[Planned]:
    """Return the requests of a load: Poisson arrivals, sizes with a long tail."""
    rng = random.Random(load.seed)  # noqa: S311 - a load, no secret
    at = 0.0
    while (at := at + rng.expovariate(load.rate)) < load.seconds:
        prompt = _size(rng, load.prompt_tokens, least=4, most=load.longest - 2)
        yield Planned(at, prompt, _size(rng, load.output_tokens, least=2, most=load.longest - prompt))


def _size(rng: random.Random, mean: int, *, least: int, most: int) -> int:
    drawn = mean * rng.lognormvariate(-_WIDE * _WIDE / 2, _WIDE)
    return max(min(int(drawn), most), min(least, most))


class RecordedRun(NamedTuple):
    """What a recording holds."""

    meta: dict[str, Any]
    rows: list[dict[str, Any]]  # of each request; one that was lost has its reason instead
    log: list[str] | None = None  # vLLM's lines about its steps; None where its log was not named


async def record(url: str, load: Load, *, settings: Mapping[str, Any], log: EngineLog | None = None) -> RecordedRun:
    """Send the load to the engine at the URL, and return what was seen.

    Raises UserError when the engine cannot be reached, or answers nothing.
    """
    limits = httpx2.Limits(max_connections=None)
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=_TIMEOUT, limits=limits) as http:
            meta = await _meta(http, settings)
            planned = list(plan(load))
            rows = await _send(http, meta, planned, seed=load.seed)
            lines = None if log is None else await log.upto(sum(each.prompt for each in planned))
            return RecordedRun(meta, rows, lines)
    except (httpx2.HTTPError, LookupError, ValueError) as error:
        raise UserError(f"{url} does not answer as vLLM does: {error or type(error).__name__}") from None


def write(out: Path, recorded: RecordedRun) -> str:
    """Write the recording, and return what is in it.

    Raises UserError when nothing was answered, or the folder cannot be written.
    """
    meta, rows, log = recorded
    lost = [row["lost"] for row in rows if "lost" in row]
    kept = [row for row in rows if "lost" not in row]
    if not kept:
        raise UserError(f"no request was answered: {lost[0] if lost else 'raise --rate or --seconds'}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        described = {**meta, "num_requests": len(kept), "lost": len(lost)}
        (out / "meta.json").write_text(json.dumps(described, indent=1) + "\n")
        (out / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
        if log:
            (out / "vllm.log").write_text("".join(log))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
    counted = f"{len(kept)} requests recorded, {len(lost)} lost"
    if log is None:
        return f"{counted}: {out}\n"
    if not log:
        return f"{counted}, no steps (start vLLM with --enable-logging-iteration-details): {out}\n"
    return f"{counted}, {len(log)} steps: {out}\n"


async def _meta(http: httpx2.AsyncClient, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the engine's own pages tell of it, and what was given by hand."""
    models = (await http.get("/v1/models")).raise_for_status().json()
    page = (await http.get("/metrics")).raise_for_status().text
    found = _CACHE.search(page)
    cache = {name: int(value) for name, value in _LABEL.findall(found.group(1))} if found else {}
    return {"schema_version": 1, "model": models["data"][0]["id"], "engine_kwargs": dict(settings), **cache}


async def _send(
    http: httpx2.AsyncClient, meta: Mapping[str, Any], planned: list[Planned], *, seed: int
) -> list[dict[str, Any]]:
    ranks = meta["engine_kwargs"].get("data_parallel_size") or 1
    began = time.monotonic()
    rng = random.Random(seed + 1)  # noqa: S311 - a load, no secret

    async def one(number: int, each: Planned) -> dict[str, Any]:
        ids = [rng.randrange(1000, 20_000) for _ in range(each.prompt)]
        await asyncio.sleep(max(began + each.at - time.monotonic(), 0.0))
        ask = {"model": meta["model"], "prompt": ids, "max_tokens": each.output, "ignore_eos": True, "stream": True}
        rank = {"data_parallel_rank": number % ranks} if ranks > 1 else {}
        return {"request_id": f"record-{number}", **rank, **await _ask(http, ask, rank.get("data_parallel_rank"))}

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number, each)) for number, each in enumerate(planned)]
    return [task.result() for task in tasks]


async def _ask(http: httpx2.AsyncClient, ask: dict[str, Any], rank: int | None) -> dict[str, Any]:
    """Send one request and return its sizes and times; with the reason where it was lost."""
    headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
    wall, sent = time.time(), time.monotonic()
    try:
        async with http.stream("POST", "/v1/completions", json=ask, headers=headers) as answer:
            if answer.status_code != 200:
                return {"lost": f"{answer.status_code} {(await answer.aread())[:200]!r}"}
            times = [
                time.monotonic()
                async for line in answer.aiter_lines()
                if line.startswith("data: {") and '"text":""' not in line.replace(" ", "")
            ]
    except httpx2.HTTPError as error:
        return {"lost": str(error) or type(error).__name__}
    if not times:
        return {"lost": "an answer without tokens"}
    return {
        "input_toks": len(ask["prompt"]),
        "output_toks": ask["max_tokens"],
        "arrival_time": wall,
        "queued_ts": sent,
        "scheduled_ts": sent,
        "first_token_ts": times[0],
        "last_token_ts": times[-1],
    }


def read_settings(given: list[str]) -> dict[str, Any]:
    """Return settings from NAME=VALUE; values are JSON where they can be, otherwise texts.

    Raises UserError naming one that has no value.
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UserError(f"--setting is {each!r}: write NAME=VALUE, such as max_num_seqs=256")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    if not is_count(found.get("data_parallel_size", 1), most=MOST_RANKS):
        raise UserError(
            f"--setting data_parallel_size is {found['data_parallel_size']!r}: write how many ranks there are"
        )
    return found
