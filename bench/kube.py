"""The controller runtime against a real API server: lists, events, queue, and what it costs to do nothing.

    python -m bench.kube [--count 10000] [--rest 60]

Every figure stands beside a baseline of the same run: `json.loads` of the very bytes that were listed, or the
API server's own share. Needs the control plane of tests/cluster.
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
from tests.cluster.assets import find
from tests.cluster.controlplane import ControlPlane
from tests.cluster.test_scale import configmap

from pointsman.kube import Client, Controller, Key, Kind, Ownership, Result, Runtime, Source, View, connect
from pointsman.kube.reflector import Reflector
from pointsman.kube.store import Store

CONFIGMAP = Kind("", "v1", "ConfigMap", "configmaps")
NAMESPACE = "default"


class Recorded(Client):
    """A client that serves recorded pages, so that what is timed is our own work and nothing else."""

    def __init__(self, pages: list[bytes]) -> None:
        super().__init__(httpx2.AsyncClient())
        self._pages = pages
        self._next = 0

    async def request(self, *_: object, **__: object) -> bytes:  # every request is the next page
        page = self._pages[self._next % len(self._pages)]
        self._next += 1
        return page


async def record(client: Client) -> list[bytes]:
    """Return the pages of a list as the server sends them."""
    pages, parameters = [], {"limit": "500"}
    while True:
        page = await client.request("GET", CONFIGMAP.path(NAMESPACE), parameters=parameters)
        pages.append(page)
        token = json.loads(page)["metadata"].get("continue")
        if not token:
            return pages
        parameters["continue"] = token


def weigh(make: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU seconds that making something takes (best of 5) and the MiB that it holds."""
    best = float("inf")
    for _ in range(5):
        gc.collect()
        began = time.thread_time()  # of this thread: the machine may be busy with others
        make()
        best = min(best, time.thread_time() - began)
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return best, held / 2**20


def listing(pages: list[bytes]) -> None:
    """Compare our list and index with json.loads of the same bytes."""

    def ours() -> Store:
        store = Store(CONFIGMAP)
        loop = asyncio.new_event_loop()
        one = Reflector(Recorded(pages), source=Source(CONFIGMAP, namespace=NAMESPACE), store=store)
        loop.run_until_complete(one._list())  # noqa: SLF001 - the list without its watch
        loop.close()
        return store

    def theirs() -> list[object]:
        return [json.loads(page) for page in pages]

    (mine, my_memory), (base, base_memory) = weigh(ours), weigh(theirs)
    size = sum(map(len, pages)) / 2**20
    print(f"list and index, {size:.1f} MiB on the wire")
    print(f"  ours        {mine * 1e3:8.0f} ms CPU  {my_memory:6.1f} MiB held")
    print(f"  json.loads  {base * 1e3:8.0f} ms CPU  {base_memory:6.1f} MiB held")
    print(f"  ratio       {mine / base:8.2f}         {my_memory / base_memory:6.2f}")


async def queueing(client: Client) -> None:
    """Time a thousand keys that get in line at once, with a reconcile that reads its object and returns."""
    done = asyncio.Event()
    left = 0

    async def reconcile(key: Key, view: View) -> Result | None:
        nonlocal left
        view.get(CONFIGMAP, key)
        left -= 1
        if left == 0:
            done.set()
        return None

    runtime = Runtime(client, ownership=Ownership(manager="bench", domain="bench.dev"))
    work = runtime.add(Controller("bench", Source(CONFIGMAP, namespace=NAMESPACE), reconcile))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runtime.run())
        await runtime.settled()
        left = len(runtime.view.entries(CONFIGMAP))
        await done.wait()
        keys = [item.key for item in runtime.view.entries(CONFIGMAP)][:1000]
        rounds = []
        for _ in range(5):
            left = len(keys)
            done.clear()
            began = time.perf_counter()
            for key in keys:
                work.queue.add(key)
            await done.wait()
            rounds.append(time.perf_counter() - began)
        task.cancel()
    print(f"1,000 keys queued at once: all reconciled after {min(rounds) * 1e3:.0f} ms (best of 5)")


async def latency(client: Client, *, count: int) -> None:
    """Time from the moment a write is sent to the start of its reconcile, beside the write's own round trip."""
    began: dict[str, float] = {}
    taken: list[float] = []
    trips: list[float] = []
    seen = asyncio.Event()

    async def reconcile(key: Key, view: View) -> Result | None:
        document = view.get(CONFIGMAP, key)
        mark = (document or {}).get("data", {}).get("mark")
        if mark in began:
            taken.append(time.perf_counter() - began.pop(mark))
            seen.set()
        return None

    runtime = Runtime(client, ownership=Ownership(manager="bench", domain="bench.dev"))
    runtime.add(Controller("bench", Source(CONFIGMAP, namespace=NAMESPACE), reconcile))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runtime.run())
        await runtime.settled()
        await asyncio.sleep(2)
        for number in range(count):
            seen.clear()
            mark = str(number)
            began[mark] = time.perf_counter()
            sent = time.perf_counter()
            await client.patch(CONFIGMAP, Key(NAMESPACE, "c00000"), {"data": {"mark": mark}}, how="merge")
            trips.append(time.perf_counter() - sent)
            await seen.wait()
        task.cancel()
    for name, values in (("write sent to reconcile begun", taken), ("the write's own round trip", trips)):
        ordered = sorted(values)
        p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        print(f"{name}: p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms over {count}")


async def rest(client: Client, *, seconds: float) -> None:
    """Measure the CPU of this process and count its requests while nothing happens."""
    requests: Counter[str] = Counter()

    async def reconcile(_key: Key, _view: View) -> Result | None:
        return None

    runtime = Runtime(client, ownership=Ownership(manager="bench", domain="bench.dev"))
    runtime.add(Controller("bench", Source(CONFIGMAP, namespace=NAMESPACE), reconcile))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runtime.run())
        await runtime.settled()
        await asyncio.sleep(5)

        def total() -> Counter[str]:
            counted: Counter[str] = Counter()
            for (_, method), count in runtime.metrics.requests.cells.items():
                counted[method] += int(count)
            return counted

        before, used = total(), time.process_time()
        await asyncio.sleep(seconds)
        used, requests = time.process_time() - used, total() - before
        task.cancel()
    cached = len(runtime.view.entries(CONFIGMAP))
    share = f"{used / seconds:.2%} of a core, requests {dict(requests)}"
    print(f"at rest with {cached:,} objects for {seconds:.0f} s: {share}")


async def measure(plane: ControlPlane, *, count: int, seconds: float) -> None:
    await asyncio.to_thread(plane.seed, (configmap(NAMESPACE, number) for number in range(count)))
    async with connect(plane.kubeconfig("admin")) as client:
        pages = await record(client)
        await asyncio.to_thread(listing, pages)
        await queueing(client)
        await latency(client, count=300)
        await rest(client, seconds=seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak resident size of the whole bench: {peak:.0f} MiB, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rest", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane(find(), Path(directory))
        try:
            plane.start()
            asyncio.run(measure(plane, count=options.count, seconds=options.rest))
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
