"""What reading the endpoints' metrics costs the picker: 100 endpoints, a page of vLLM's size, every 50 ms.

One process serves static pages on as many loopback ports as there are endpoints; the picker's own scraper reads them
in this process under uvloop. The figure is CPU time of this process over wall time, with the rate that was reached; the
yardstick in the same run is prometheus-client's parser over the same page, which is what a full parse would cost.

    python -m bench.scrape [--endpoints 100] [--seconds 5] [--interval 0.05]
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import NEVER_SCRAPED
from pointsman.epp.sources.dialects import DIALECTS, Reader
from pointsman.epp.sources.scrape import MetricsQuestion, Scraper, ScrapeTerms

PAGE_BYTES = 22_800  # the Go simulator's own page, and about that of real vLLM


def make_page(size: int = PAGE_BYTES) -> bytes:
    """Return a page of vLLM's families in a vLLM-like order: gauges in the middle of much that nobody here reads."""
    labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
    figures = "".join(
        f"# HELP vllm:{name} {name}\n# TYPE vllm:{name} gauge\nvllm:{name}{{{labels}}} {value}\n"
        for name, value in (("num_requests_running", 3), ("num_requests_waiting", 5), ("kv_cache_usage_perc", 0.25))
    )
    figures += 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.7e+09\n'
    figures += 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1024"} 1.0\n'
    bounds = [10.0**e * m for e in range(-3, 4) for m in (1, 2.5, 5)]
    histograms: list[str] = []
    at = 0
    while sum(map(len, histograms)) + len(figures) < size:
        name = f"vllm:request_{'abcdefghijklmnopqrstuvwxyz'[at % 26]}_time_seconds"
        lines = [f'{name}_bucket{{{labels},le="{bound:g}"}} {at * 7}.0\n' for bound in bounds]
        histograms += [f"# HELP {name} A histogram.\n# TYPE {name} histogram\n", *lines]
        at += 1
    middle = len(histograms) // 2
    return ("".join(histograms[:middle]) + figures + "".join(histograms[middle:])).encode()


class _Static(asyncio.Protocol):
    """Answers every request with the same bytes."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self.answer * data.count(b"\r\n\r\n"))


def _serve(count: int, page: bytes, tell: "multiprocessing.connection.Connection[object, object]") -> None:
    async def run() -> None:
        _Static.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(page) + page
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(_Static, "127.0.0.1", 0) for _ in range(count)]
        tell.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(run())


async def _measure(ports: list[int], *, seconds: float, interval: float) -> tuple[float, float]:
    """Return the share of a core and the pages per second."""
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
    return cpu / wall, pages / wall


def _cpu_of(rounds: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    before = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - before) / rounds


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--interval", type=float, default=0.05)
    args = parser.parse_args()
    page = make_page()
    reader = Reader(DIALECTS["vllm"])
    scan = _cpu_of(2000, lambda: reader.read(page, now=1.0, last=NEVER_SCRAPED, attributes={}))
    parse = _cpu_of(5, lambda: list(text_string_to_metric_families(page.decode())))
    print(f"page of {len(page)} bytes: scan {scan * 1e6:.1f} µs, full parse {parse * 1e6:.0f} µs, {parse / scan:.0f} ×")
    here, there = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(args.endpoints, page, there), daemon=True
    )
    server.start()
    ports = here.recv()
    share, rate = uvloop.run(_measure(ports, seconds=args.seconds, interval=args.interval))
    server.terminate()
    wanted = args.endpoints / args.interval
    print(
        f"{args.endpoints} endpoints every {args.interval * 1000:g} ms: {share:.3f} core, {rate:.0f} of {wanted:.0f} "
        f"pages/s, {share / rate * 1e6:.0f} µs per page (Go picker, other machine state: 1.60 cores)"
    )
    sys.exit(0 if rate > 0.9 * wanted else 1)


if __name__ == "__main__":
    main()
