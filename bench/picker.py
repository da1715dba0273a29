"""What the picker costs beside Envoy: CPU per request as a share of Envoy's own in the same run, and latency.

Envoy does no more than it must (`yardstick`), with one worker. The picker does all its work: body read, prompt hashed,
endpoints scored, every endpoint's metrics (a page of vLLM's size) scraped every 50 ms, the response's usage read, no
prompt ever sent twice. Both are measured by the scheduler's account of their processes, scraping included.

- by size: 8 endpoints, bodies of 1, 16 and 220 KB; then 100 endpoints.
- by profile: the default one, and `baseline`, llm-d's optimized baseline (`config/picker/optimized-baseline.yaml`).
- by interpreter: `--python pure=.venv/bin/python old=../old.sh`, each with an Envoy of its own. All of them are up at
  once and take turns, so that a slow minute hits each; the ratio is taken turn by turn, and its median is shown.
- idle: what scraping alone takes, before any request. It does not grow with the requests, so where others take the
  cores and requests are few, it weighs more on each: the last column leaves it out.
- half: the same rate, half of what saturates, with the picker and without; the difference is what the picker adds.

Where others want the same cores, rates and latencies say little: `--realtime` (root) puts all parts before them, for
the seconds of one measurement at a time, and lets them catch up in between.

    python -m bench picker [--seconds 4] [--rounds 3] [--connections 64] [--endpoints 8 100] [--profiles default]
                           [--sizes 1024 16384 225280] [--python NAME=COMMAND ...] [--no-half] [--realtime]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import wrk
from bench.gateway import Row, Stage, Variant, measure, median, options
from bench.parts import Part
from bench.scrape import make_page

_BASELINE = Path(__file__).parent.parent / "config/picker/optimized-baseline.yaml"
PROFILES = {"default": "", "baseline": _BASELINE.read_text()}
ALONE = Variant(name="Envoy alone", smallest=True)
# As vLLM answers, with the usage that is read of every response.
ANSWER = (
    '{"id":"cmpl-0a4f","object":"text_completion","created":1763000000,"model":"bench","choices":[{"index":0,"text":'
    '" and leaves","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_logprobs":null}],"usage":'
    '{"prompt_tokens":256,"total_tokens":257,"completion_tokens":1,"prompt_tokens_details":null},'
    '"kv_transfer_params":null}'
)
_HEAD = (
    "| picker | endpoints | body | requests/s | p50 ms | p99 ms | errors | picker µs/req | Envoy µs/req "
    "| picker ÷ Envoy | without scraping |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


class Gateway:
    """One variant that is up, and can be measured."""

    def __init__(self, stage: Stage, variant: Variant, *, connections: int, first: Sequence[str]) -> None:
        self.name = variant.name
        self._url, self._proxy, self.picker = stage.gateway(variant)
        self._connections = connections
        self._first = first

    def measure(self, script: Path, *, seconds: float) -> Row:
        if self._first:
            time.sleep(seconds)  # the others' turn
        return measure(
            self._url,
            proxy=self._proxy,
            picker=self.picker,
            script=script,
            seconds=seconds,
            connections=self._connections,
            first=self._first,
        )


def in_turns(gateways: Sequence[Gateway], script: Path, *, args: argparse.Namespace) -> list[list[Row]]:
    """Return the rounds of each gateway, after one that only warms up."""
    rounds = [[each.measure(script, seconds=args.seconds) for each in gateways] for _ in range(args.rounds + 1)]
    return [list(rows) for rows in zip(*rounds[1:], strict=True)]


def idle(pickers: Sequence[Part], *, seconds: float) -> list[float]:
    """Return the share of a core that each picker takes while nobody asks it."""
    time.sleep(2.0)  # what starting left to do
    before, since = [each.cpu() for each in pickers], time.monotonic()
    time.sleep(seconds)
    after, took = [each.cpu() for each in pickers], time.monotonic() - since
    return [(b - a) / took for a, b in zip(before, after, strict=True)]


def by_size(
    gateways: Sequence[Gateway], *, shares: Sequence[float], endpoints: int, folder: Path, args: argparse.Namespace
) -> dict[int, list[Row]]:
    print(_HEAD)
    found = {}
    for size in args.sizes:
        turns = in_turns(gateways, wrk.write_script(folder, size=size, distinct=True), args=args)
        found[size] = [median(rows) for rows in turns]
        for gateway, share, rows, row in zip(gateways, shares, turns, found[size], strict=True):
            ratio = statistics.median(each.picker / each.envoy for each in rows)
            apart = statistics.median((each.picker - share / each.rate * 1e6) / each.envoy for each in rows)
            print(
                f"| {gateway.name} | {endpoints} | {size} | {row.rate:.0f} | {row.p50:.1f} | {row.p99:.1f} "
                f"| {row.errors} | {row.picker:.0f} | {row.envoy:.0f} | {ratio:.2f} | {apart:.2f} |",
                flush=True,
            )
    return found


def at_half(gateways: Sequence[Gateway], *, rate: float, size: int, folder: Path, args: argparse.Namespace) -> None:
    """Print the latencies of all gateways at half of a rate: every connection rests so long between two requests."""
    rest = round(args.connections / (rate / 2) * 1000)
    script = wrk.write_script(folder, size=size, distinct=True, delay=rest)
    alone, picked = (median(rows) for rows in in_turns(gateways, script, args=args))
    print(f"\nAt half of what saturates, {size} bytes ({picked.rate:.0f} requests/s; Envoy alone: {alone.rate:.0f}):")
    print(
        f"the picker adds {picked.p50 - alone.p50:.2f} ms to a p50 of {alone.p50:.2f} "
        f"and {picked.p99 - alone.p99:.2f} ms to a p99 of {alone.p99:.2f}",
        flush=True,
    )


def main() -> None:
    parser = options(__doc__, seconds=4.0, sizes=(1024, 16384, 225280))
    parser.add_argument("--endpoints", type=int, nargs="+", default=[8, 100])
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=["default"])
    parser.add_argument("--python", nargs="+", default=[f"this={sys.executable}"], help="interpreters, as NAME=COMMAND")
    parser.add_argument("--no-half", action="store_true", help="leave latencies at half of the rate out")
    parser.add_argument("--realtime", action="store_true", help="put all parts before others on this machine")
    args = parser.parse_args()
    wrk.require()
    print(f"{args.connections} connections, {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores\n")
    for endpoints in args.endpoints:
        compare(endpoints, args=args)


def variants(args: argparse.Namespace) -> list[Variant]:
    """Return every interpreter with every profile."""
    found = []
    for given in args.python:
        name, _, command = given.rpartition("=")
        for profile in args.profiles:
            called = f"{name or command}, {profile}"
            found.append(Variant(name=called, picker="ours", config=PROFILES[profile], python=command, smallest=True))
    return found


def compare(endpoints: int, *, args: argparse.Namespace) -> None:
    """Run everything with so many endpoints."""
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as name:
        folder = Path(name)
        first = ("chrt", "--fifo", "10") if args.realtime else ()
        stage = Stage(folder, replicas=endpoints, page=make_page().decode(), answer=ANSWER, first=first)
        try:
            pickers = [Gateway(stage, each, connections=args.connections, first=first) for each in variants(args)]
            shares = idle([each.picker for each in pickers if each.picker is not None], seconds=args.seconds)
            said = ", ".join(f"{each.name} {share:.2f}" for each, share in zip(pickers, shares, strict=True))
            print(f"{endpoints} endpoints, idle: scraping every 50 ms takes so many cores: {said}\n", flush=True)
            rows = by_size(pickers, shares=shares, endpoints=endpoints, folder=folder, args=args)
            if not args.no_half:
                alone = Gateway(stage, ALONE, connections=args.connections, first=first)
                size = args.sizes[0]
                at_half((alone, pickers[0]), rate=rows[size][0].rate, size=size, folder=folder, args=args)
            print(flush=True)
        finally:
            stage.end()


if __name__ == "__main__":
    main()
