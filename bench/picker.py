"""What the picker costs beside Envoy: CPU per request as a share of Envoy's own in the same run, and latency.

The default profile does all its work: body read, prompt hashed, queue, cache and prefix scored, every endpoint's
metrics (a page of vLLM's size) scraped every 50 ms, no prompt ever sent twice. One Envoy worker; the picker and Envoy
are measured by the scheduler's account of their processes, scraping included.

- by size: 8 endpoints, bodies of 1, 16 and 220 KB; then 100 endpoints.
- idle: what scraping alone takes, before any request.
- half: the same rate, half of what saturates, with the picker and without; the difference is what the picker adds.

Where others want the same cores, rates and latencies say little: `--realtime` (root) puts all parts before them, for
the seconds of one measurement at a time, and lets them catch up in between.

    python -m bench picker [--seconds 4] [--rounds 3] [--connections 64] [--endpoints 8 100]
                           [--sizes 1024 16384 225280] [--realtime]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import wrk
from bench.gateway import Row, Stage, Variant, measure, median
from bench.parts import Part
from bench.scrape import make_page

ALONE = Variant(name="Envoy alone")
PICKER = Variant(name="Pointsman, default profile", picker="ours", config="")
_HEAD = "| endpoints | body | requests/s | p50 ms | p99 ms | picker µs/req | Envoy µs/req | picker ÷ Envoy | errors |"


class Gateway:
    """One variant that is up, and can be measured."""

    def __init__(self, stage: Stage, variant: Variant, *, connections: int, first: Sequence[str]) -> None:
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

    def median(self, script: Path, *, args: argparse.Namespace) -> Row:
        self.measure(script, seconds=args.seconds)  # warms up
        return median([self.measure(script, seconds=args.seconds) for _ in range(args.rounds)])


def idle(picker: Part, *, seconds: float) -> float:
    """Return the share of a core that the picker takes while nobody asks it."""
    time.sleep(2.0)  # what starting left to do
    before, since = picker.cpu(), time.monotonic()
    time.sleep(seconds)
    return (picker.cpu() - before) / (time.monotonic() - since)


def by_size(gateway: Gateway, *, endpoints: int, folder: Path, args: argparse.Namespace) -> dict[int, Row]:
    print(_HEAD, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|", sep="\n")
    rows = {}
    for size in args.sizes:
        row = rows[size] = gateway.median(wrk.write_script(folder, size=size, distinct=True), args=args)
        print(
            f"| {endpoints} | {size} | {row.rate:.0f} | {row.p50:.1f} | {row.p99:.1f} | {row.picker:.0f} "
            f"| {row.envoy:.0f} | {row.picker / row.envoy:.2f} | {row.errors} |",
            flush=True,
        )
    return rows


def at_half(gateways: Sequence[Gateway], *, rate: float, size: int, folder: Path, args: argparse.Namespace) -> None:
    """Print the latencies of all gateways at half of a rate: every connection rests so long between two requests."""
    rest = round(args.connections / (rate / 2) * 1000)
    script = wrk.write_script(folder, size=size, distinct=True, delay=rest)
    alone, picked = (gateway.median(script, args=args) for gateway in gateways)
    print(f"\nAt half of what saturates, {size} bytes ({picked.rate:.0f} requests/s; Envoy alone: {alone.rate:.0f}):")
    print(
        f"the picker adds {picked.p50 - alone.p50:.2f} ms to a p50 of {alone.p50:.2f} "
        f"and {picked.p99 - alone.p99:.2f} ms to a p99 of {alone.p99:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--endpoints", type=int, nargs="+", default=[8, 100])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 16384, 225280])
    parser.add_argument("--realtime", action="store_true", help="put all parts before others on this machine")
    args = parser.parse_args()
    if not wrk.is_there():
        sys.exit("bench: wrk is not there: install Debian's package `wrk` (apt install wrk)")
    print(f"{args.connections} connections, {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores\n")
    for endpoints in args.endpoints:
        compare(endpoints, args=args)


def compare(endpoints: int, *, args: argparse.Namespace) -> None:
    """Run everything with so many endpoints."""
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as name:
        folder = Path(name)
        first = ("chrt", "--fifo", "10") if args.realtime else ()
        stage = Stage(folder, replicas=endpoints, page=make_page().decode(), first=first)
        try:
            picked = Gateway(stage, PICKER, connections=args.connections, first=first)
            assert picked.picker is not None
            share = idle(picked.picker, seconds=args.seconds)
            print(f"{endpoints} endpoints, idle: scraping every 50 ms takes the picker {share:.2f} core\n", flush=True)
            rows = by_size(picked, endpoints=endpoints, folder=folder, args=args)
            alone = Gateway(stage, ALONE, connections=args.connections, first=first)
            size = args.sizes[0]
            at_half((alone, picked), rate=rows[size].rate, size=size, folder=folder, args=args)
            print(flush=True)
        finally:
            stage.end()


if __name__ == "__main__":
    main()
