"""What the live page costs the picker: the share of a core per viewer, and with none.

A busy picker (`busy_picker`: 100 endpoints, 1,000 picks a second) is measured by the scheduler's account of its
process: with no page in it at all, then with a page and 0, 1, 4 and 16 viewers, in turns, so that a slow minute of the
machine hits each of them; every figure is the median of the rounds. Viewers are sockets of this process that read all.
Beside the process stands the CPU time of the page's own code, which is what tells on a machine that is not quiet: its
ticks, and what keeping a decision costs more than it does without a page. More, because whoever lets go of a decision
last frees it: with a viewer that is the page, else the picker's ring.

    python -m bench page [--seconds 3] [--rounds 5] [--endpoints 100] [--rate 1000] [--viewers 0 1 4 16]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

from bench.gateway import here
from bench.parts import Part
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.page.history import EVERY, Sample, fill
from pointsman.local.http import get
from pointsman.render.envoy.addresses import Address


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    cores: float
    ticks: float  # of them, the page's ticks
    keeping: float  # … and keeping decisions, the picker's ring included
    rate: float  # picks a second
    bytes: float  # a second, of one viewer
    messages: float


@dataclass
class Viewer:
    """A page that is open, as far as the picker can tell."""

    bytes: int = 0
    messages: int = 0

    async def read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            self.bytes += len(data)
            self.messages += data.count(b"data: {")


@asynccontextmanager
async def watching(place: Address) -> AsyncIterator[Viewer]:
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(b"GET /debug/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    viewer = Viewer()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(viewer.read(reader))
        yield viewer
        task.cancel()
        writer.close()


class Busy:
    """A busy picker, and what it has done so far."""

    def __init__(self, folder: Path, *, endpoints: int, rate: float, page: bool) -> None:
        self.place = here()
        flags = ["--port", str(self.place.port), "--endpoints", str(endpoints), "--rate", str(rate)]
        flags += [] if page else ["--no-page"]
        self.part = Part([sys.executable, "-m", "bench.busy_picker", *flags], log=folder / f"busy-{page}.log")

    async def counts(self) -> tuple[float, float, float]:
        """Return the picks so far, and the seconds that the page's ticks and keeping decisions took."""
        for _ in range(600):
            answer = await get(self.place, "/metrics")
            if answer is not None and answer.status == 200:
                lines = answer.body.decode().splitlines()
                wanted = ("pointsman_picks_total{", "bench_page_seconds_total ", "bench_keeping_seconds_total ")
                picks, ticks, keeping = (_sum(lines, begin) for begin in wanted)
                return picks, ticks, keeping
            self.part.check()
            await asyncio.sleep(0.05)
        raise SystemExit("bench: the busy picker does not answer")

    async def measure(self, viewers: int, *, seconds: float) -> Row:
        async with AsyncExitStack() as stack:
            open_ones = [await stack.enter_async_context(watching(self.place)) for _ in range(viewers)]
            await asyncio.sleep(0.6)  # everything was said once
            before, cpu = await self.counts(), self.part.cpu()
            heard = [(each.bytes, each.messages) for each in open_ones]
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(seconds)
            spent, took = self.part.cpu() - cpu, asyncio.get_running_loop().time() - began
            said = [(one.bytes - was[0], one.messages - was[1]) for one, was in zip(open_ones, heard, strict=True)]
            now = await self.counts()
            picks, ticks, keeping = ((after - first) / took for after, first in zip(now, before, strict=True))
            return Row(
                cores=spent / took,
                ticks=ticks,
                keeping=keeping,
                rate=picks,
                bytes=statistics.mean(each[0] for each in said) / took if said else 0.0,
                messages=statistics.mean(each[1] for each in said) / took if said else 0.0,
            )


def _sum(lines: list[str], begin: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(begin))


def middle(rows: list[Row], field: str) -> float:
    return float(statistics.median(getattr(row, field) for row in rows))


async def compare(folder: Path, *, args: argparse.Namespace) -> None:
    without = Busy(folder, endpoints=args.endpoints, rate=args.rate, page=False)
    busy = Busy(folder, endpoints=args.endpoints, rate=args.rate, page=True)
    try:
        turns: list[tuple[str, Busy, int]] = [("no page", without, 0)]
        turns += [(f"{number} viewers", busy, number) for number in args.viewers]
        rows: dict[str, list[Row]] = {name: [] for name, _, _ in turns}
        for turn in range(args.rounds + 1):
            for name, picker, viewers in turns:
                row = await picker.measure(viewers, seconds=args.seconds)
                if turn:  # the first only warms up
                    rows[name].append(row)
        show(rows, viewers={name: number for name, _, number in turns})
    finally:
        for each in (without, busy):
            each.part.end()


def show(rows: dict[str, list[Row]], *, viewers: dict[str, int]) -> None:
    print("| | picker, core | page's code, core | per viewer | ms of code per message | picks/s | kB/s | messages/s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    alone = rows["no page"]
    each_pick = middle(alone, "keeping") / middle(alone, "rate")
    for name, measured in rows.items():
        page = middle(measured, "ticks") + middle(measured, "keeping") - each_pick * middle(measured, "rate")
        messages = middle(measured, "messages")
        each = f"{page / viewers[name]:.2%}" if viewers[name] else "–"
        per = f"{page / messages * 1000:.1f}" if messages else "–"
        print(
            f"| {name} | {middle(measured, 'cores'):.1%} | {page:.2%} | {each} | {per} "
            f"| {middle(measured, 'rate'):.0f} | {middle(measured, 'bytes') / 1000:.1f} | {messages:.1f} |",
            flush=True,
        )


def sample(models: int) -> float:
    """Return the CPU seconds of adding up the counters once, which is done every few seconds without a viewer too."""
    metrics = PickerMetrics()
    for number in range(models):
        row = metrics.row(model=f"m{number}", target=f"m{number}")
        row.began()
        row.first_byte(seconds=0.1, streaming=True)
        row.ended(seconds=1.0, size=1)
    began = thread_time()
    for _ in range(20):
        for _ in fill(Sample(at=0.0, picked=0, errors=0.0), metrics):
            pass
    return (thread_time() - began) / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1000.0, help="picks a second")
    parser.add_argument("--viewers", type=int, nargs="+", default=[0, 1, 4, 16])
    args = parser.parse_args()
    if 0 not in args.viewers:
        sys.exit("bench: --viewers needs 0, which the others are measured against")
    print(f"{args.endpoints} endpoints, {args.rate:g} picks/s, {args.rounds} rounds of {args.seconds:g} s\n")
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as name:
        asyncio.run(compare(Path(name), args=args))
    for models in (1, 1000):
        share = sample(models) / EVERY
        print(
            f"\nwithout a viewer, {models} models: "
            f"{share * EVERY * 1e6:.0f} µs every {EVERY:g} s, {share:.4%} of a core"
        )


if __name__ == "__main__":
    main()
