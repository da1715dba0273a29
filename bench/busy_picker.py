"""A picker that is busy by itself: real in all but its wire, with so many endpoints and so many picks a second.

Every endpoint's numbers change every 50 ms, as scrapes change them; every pick has a prompt of its own and half of them
a beginning that was seen before; a request holds its place for a second. What is measured beside it is the live page:
the CPU time of its ticks with their writes is `bench_page_seconds_total`, and that of keeping decisions, which the
picker's own ring does too, `bench_keeping_seconds_total`.

    python -m bench.busy_picker --port 9090 [--endpoints 100] [--rate 1000] [--no-page]
"""

import argparse
import asyncio
import heapq
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import ParamSpec, TypeVar

from pointsman.core.documents import to_yaml
from pointsman.core.families import Gauge, names
from pointsman.core.loop import wait_while
from pointsman.epp.config.defaults import DEFAULT_CONFIG
from pointsman.epp.pool.view import EndpointMetrics
from pointsman.epp.request.request import Prompt, Request
from pointsman.epp.server import PickerServer
from pointsman.epp.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
_TICK = 0.01
_MOST_AT_ONCE = 50
_HELD_SECONDS = 1.0
_HEADERS = {":path": "/v1/chat/completions", "content-type": "application/json", "user-agent": "bench"}
_CONFIG = (
    DEFAULT_CONFIG.partition("dataLayer:")[0]
    .replace("- type: metrics-data-source\n", "")
    .replace("- type: core-metrics-extractor\n", "dataLayer: {injectDefaults: false}\n")
)


async def scrape(picker: PickerServer, rng: random.Random) -> None:
    """Let every endpoint say something else, as often as a scrape would."""
    pool, clock = picker.parts.pool, picker.parts.clock
    while True:
        for member in pool.members:
            said = EndpointMetrics(
                running=min(member.inflight, 32),
                waiting=max(member.inflight - 32, 0),
                kv_usage=rng.random(),
                updated_at=clock(),
            )
            member.scraped(said, attributes={}, mark=member.mark())
        await asyncio.sleep(0.05)


async def pick(picker: PickerServer, rng: random.Random, *, rate: float) -> None:
    """Decide so many requests a second; each ends after a while."""
    director, clock = picker.parts.director, picker.parts.clock
    number, due, last = 0, 0.0, clock()
    held: list[tuple[float, int, object]] = []
    while True:
        now = clock()
        due, last = min(due + (now - last) * rate, _MOST_AT_ONCE), now  # a machine that cannot keep up must not stall
        while due >= 1:
            due, number = due - 1, number + 1
            seen = rng.randrange(50) if number % 2 else number
            prompt = Prompt(tokens=2048, block_tokens=16, blocks=[seen * 1000 + at for at in range(64)] + [number])
            request = Request(id=f"bench-{number}", headers=_HEADERS, model="m", target_model="m", prompt=prompt)
            _, reservation = director.direct(request)
            reservation.first_byte()
            heapq.heappush(held, (now + _HELD_SECONDS, number, reservation))
        while held and held[0][0] <= now:
            heapq.heappop(held)[2].release()  # type: ignore[attr-defined]  # a Reservation
        await asyncio.sleep(_TICK)


class Account:
    """The CPU time of some functions together; waiting, for a socket or for a core, is not in it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def read(self) -> dict[tuple[str, ...], float]:
        """Return it as a metric's values."""
        return {(): self.seconds}

    def of(self, work: Callable[P, T]) -> Callable[P, T]:
        """Return the function with its time counted."""

        def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            began = thread_time()
            try:
                return work(*args, **kwargs)
            finally:
                self.seconds += thread_time() - began

        return counted


def watch_costs(picker: PickerServer) -> None:
    """Count what the page does, and what decisions that are kept cost, whoever keeps them; and show it."""
    ticks, keeping = Account(), Account()
    live, records = picker.page.live, picker.parts.director.records
    live._tick = ticks.of(live._tick)  # type: ignore[method-assign]  # noqa: SLF001 - measured from within
    records.add = keeping.of(records.add)  # type: ignore[method-assign]
    for name, account in (("bench_page_seconds_total", ticks), ("bench_keeping_seconds_total", keeping)):
        picker.parts.metrics.add(Gauge(names(name, ()), "CPU.", read=account.read, kind="counter"))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--no-page", action="store_true", help="serve no live page at all")
    args = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
        listed = Path(folder) / "endpoints.yaml"
        rows = [
            {"name": f"pod-{n}", "address": f"10.1.{n // 250}.{n % 250 + 1}", "port": 8000}
            for n in range(args.endpoints)
        ]
        listed.write_text(to_yaml({"endpoints": rows}))
        settings = Settings(
            host="127.0.0.1", grpc_port=0, grpc_health_port=0, metrics_port=args.port, secure_serving=False,
            endpoints_file=listed, config_text=_CONFIG, drain_timeout=0.1,
        )  # fmt: skip
        picker = PickerServer(settings, rng=rng)
        watch_costs(picker)
        if args.no_page:
            picker.page.run = lambda: asyncio.sleep(0)  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(picker.run())
            await wait_while(lambda: not picker.parts.health.serving, seconds=30.0)
            driving = [tasks.create_task(work) for work in (scrape(picker, rng), pick(picker, rng, rate=args.rate))]
            await serving
            for task in driving:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
