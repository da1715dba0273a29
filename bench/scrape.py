"""What reading the endpoints' metrics costs the picker: 100 endpoints every 50 ms, CPU time per page.

One process serves pages on as many loopback ports as there are endpoints, each answer with other figures, so that
lines change their length and move; the picker's own scraper reads them in another under uvloop. Two kinds of pages:
`vllm`, of real vLLM's size and order, and `sim`, as our simulator writes it. `--python` compares interpreters or
commits, which take turns; each figure is the least of the rounds, the ratio to the first is the median of the rounds'.
The yardstick is prometheus-client's parser over the same page, which is what a full parse would cost.

    python -m bench scrape [--endpoints 100] [--seconds 3] [--interval 0.05] [--rounds 3] [--pages vllm sim]
                           [--python NAME=COMMAND ...]
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import multiprocessing.connection
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import cast

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import NEVER_SCRAPED
from pointsman.epp.sources.dialects import DIALECTS, Reader
from pointsman.epp.sources.scrape import MetricsQuestion, Scraper, ScrapeTerms
from pointsman.sim.pod.metrics import Gauges, Metrics

PAGE_BYTES = 22_800  # the Go simulator's own page, and about that of real vLLM
_MOMENTS = 16  # different pages of one kind, served in turn
_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_HEAD = (
    "HTTP/1.1 200 OK\r\ndate: Mon, 16 Nov 2026 11:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
    "content-type: text/plain; version=0.0.4; charset=utf-8\r\n\r\n"
)


def make_page(moment: int = 3, *, size: int = PAGE_BYTES) -> bytes:
    """Return a page of vLLM's families in a vLLM-like order: gauges in the middle of much that nobody here reads."""
    labels = f'engine="0",model_name="{_MODEL}"'
    gauges = ("num_requests_running", moment), ("num_requests_waiting", moment * 5 % 17), ("kv_cache_usage_perc", 0.25)
    rows = [(name, labels, value) for name, value in gauges]
    rows.append(
        ("lora_requests_info", 'max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""', 1.7e9 + moment)
    )
    rows.append(("cache_config_info", 'block_size="16",num_gpu_blocks="1024"', 1.0))
    figures = "".join(
        f"# HELP vllm:{name} {name}\n# TYPE vllm:{name} gauge\nvllm:{name}{{{inside}}} {value}\n"
        for name, inside, value in rows
    )
    bounds = [10.0**e * m for e in range(-3, 4) for m in (1, 2.5, 5)]
    histograms: list[str] = []
    at = 0
    while sum(map(len, histograms)) + len(figures) < size:
        name = f"vllm:request_{'abcdefghijklmnopqrstuvwxyz'[at % 26]}_time_seconds"
        lines = [f'{name}_bucket{{{labels},le="{bound:g}"}} {at * moment * 7}.0\n' for bound in bounds]
        histograms += [f"# HELP {name} A histogram.\n# TYPE {name} histogram\n", *lines]
        at += 1
    middle = len(histograms) // 2
    return ("".join(histograms[:middle]) + figures + "".join(histograms[middle:])).encode()


def _sim_page(moment: int) -> bytes:
    """Return the simulator's page after so many requests."""
    metrics = Metrics(model=_MODEL, max_model_len=8192, block_size=16, blocks=1024, max_loras=4, dialect="vllm")
    for histogram in (metrics.first_token, metrics.gap, metrics.prompt, metrics.whole):
        histogram.observe(0.1 * moment, times=moment * 7)
    loras = (("a", "", 1.7e9 + moment),)
    gauges = Gauges(running=moment, waiting=moment * 5 % 17, usage=moment / 64, loras=loras)
    return metrics.render(gauges, counters={"prompt_tokens_total": moment * 1000})


PAGES = {"vllm": make_page, "sim": _sim_page}


class _Server(asyncio.Protocol):
    """Answers every request with the next page."""

    answers: Sequence[bytes] = ()

    def __init__(self) -> None:
        self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._asked += 1
            self._transport.write(self.answers[self._asked % len(self.answers)])


def _serve(count: int, kind: str, tell: "multiprocessing.connection.Connection[object, object]") -> None:
    async def run() -> None:
        pages = [PAGES[kind](moment) for moment in range(_MOMENTS)]
        _Server.answers = [(_HEAD % len(page)).encode() + page for page in pages]
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(_Server, "127.0.0.1", 0) for _ in range(count)]
        tell.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(run())


async def _measure(ports: list[int], *, seconds: float, interval: float) -> tuple[float, float]:
    """Return the CPU seconds per page and the pages per second."""
    tally, pool = Polls(), Pool()
    scraper = Scraper(
        MetricsQuestion(tally=tally), terms=ScrapeTerms(interval=interval), tally=tally, clock=time.monotonic
    )
    pool.watch(scraper.follow)
    pool.replace([Endpoint(name=str(port), address="127.0.0.1", port=port) for port in ports])
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(scraper.run())
        await asyncio.sleep(1.0)
        cpu, wall, pages = time.process_time(), time.monotonic(), tally.polls.total()
        while time.monotonic() - wall < seconds:
            await asyncio.sleep(interval)
            pool.sweep(time.monotonic())
        cpu, wall, pages = time.process_time() - cpu, time.monotonic() - wall, tally.polls.total() - pages
        task.cancel()
    assert not tally.poll_errors, tally.poll_errors
    return cpu / pages, pages / wall


def _cpu_of(rounds: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    before = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - before) / rounds


def _scan(kind: str) -> float:
    """Return the CPU seconds of reading one page that is there."""
    pages, reader = [PAGES[kind](moment) for moment in range(_MOMENTS)], Reader(DIALECTS["vllm"])

    def read_all() -> None:
        for page in pages:
            reader.read(page, now=1.0, last=NEVER_SCRAPED, attributes={})

    return _cpu_of(100, read_all) / _MOMENTS


def one(args: argparse.Namespace) -> tuple[float, float, float]:
    """Return CPU seconds per page with everything and of the scan alone, and the pages per second."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as `core.loop` sets it
    cost, rate = uvloop.run(_measure(args.ports, seconds=args.seconds, interval=args.interval))
    return cost, _scan(args.pages[0]), rate


def compare(kind: str, *, args: argparse.Namespace) -> None:
    """Let the interpreters take turns with pages of one kind, and print what each takes."""
    here, there = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(args.endpoints, kind, there), daemon=True
    )
    server.start()
    what = ["--ports", *map(str, here.recv()), "--seconds", str(args.seconds), "--interval", str(args.interval)]
    commands = [given.rpartition("=")[::2] for given in args.python]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name, _ in commands}
    for _ in range(args.rounds):
        for name, command in commands:
            run = [command, "-m", "bench", "scrape", "--pages", kind, *what]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"bench: {command} failed:\n{done.stderr[-2000:]}")
            found[name].append(tuple(json.loads(done.stdout)))
    server.terminate()
    _show(kind, found)


def _show(kind: str, found: dict[str, list[tuple[float, float, float]]]) -> None:
    page = PAGES[kind](3)
    parse = _cpu_of(5, lambda: list(text_string_to_metric_families(page.decode())))
    first = next(iter(found.values()))
    for name, rounds in found.items():
        ratio, scan_ratio = (
            statistics.median(a[at] / b[at] for a, b in zip(first, rounds, strict=True)) for at in (0, 1)
        )
        cost, scan, rate = (sorted(column) for column in zip(*rounds, strict=True))
        print(
            f"| {kind}, {len(page)} | {name} | {cost[0] * 1e6:.0f} | {ratio:.2f} | {scan[0] * 1e6:.1f} "
            f"| {scan_ratio:.2f} | {parse / scan[0]:.0f} | {rate[-1]:.0f} |",
            flush=True,
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--interval", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=list(PAGES))
    parser.add_argument("--python", nargs="+", default=[f"this={sys.executable}"], help="interpreters, as NAME=COMMAND")
    parser.add_argument("--ports", type=int, nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ports:
        print(json.dumps(one(args)))
        return
    print(
        "| page, bytes | scraper | µs a page | × less than the first | of that the scan, µs | × less "
        "| full parse ÷ scan | most pages/s |\n|---|---|--:|--:|--:|--:|--:|--:|"
    )
    for kind in args.pages:
        compare(kind, args=args)


if __name__ == "__main__":
    main()
