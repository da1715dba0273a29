"""What a decision costs by the number of endpoints: default configuration, prompt hashed into four blocks, and all.

One decision is `Director.direct` and the release of its reservation: what headers mean, producers, profile, hooks,
record, metrics, reservation. The yardstick in the same run is what the request cannot do without: `json.loads` of a
1 KB body. Figures are CPU time of this process; what counts is the ratio, and how it grows.

    python -m bench.decide [--endpoints 1 10 100 1000] [--seconds 1] [--prefixes 20000] [--baseline | --config FILE]

`--baseline` decides by llm-d's optimized baseline (`config/picker/optimized-baseline.yaml`) instead.
"""

import argparse
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import EndpointMetrics
from pointsman.epp.request.request import Prompt, Request
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.records import Records

BODY = json.dumps({"model": "m", "prompt": "x" * 900, "max_tokens": 100, "temperature": 0}).encode()
BLOCKS = 4


BASELINE = Path(__file__).parents[1] / "config" / "picker" / "optimized-baseline.yaml"


def make_director(
    endpoints: int, *, rng: random.Random, options: DirectorOptions | None = None, config: str = ""
) -> Director:
    """Return a director over a pool that looks like one under load."""
    pool = Pool()
    pool.replace([Endpoint(name=f"p{n}", address=f"10.0.{n >> 8}.{n & 255}", port=8000) for n in range(endpoints)])
    for member in pool.members:
        seen = EndpointMetrics(waiting=rng.randrange(5), kv_usage=rng.random(), updated_at=time.monotonic())
        member.scraped(seen, attributes={}, mark=member.mark())
    scheduler = Builder(clock=time.monotonic, rng=rng).build(load(config)).scheduler
    return Director(pool=pool, scheduler=scheduler, records=Records(), rng=rng, options=options)


def one_decision(director: Director, *, rng: random.Random, prefixes: int) -> Callable[[], None]:
    """Return a function that decides one request, of one of so many prompts, and ends it."""

    def decide() -> None:
        first = rng.randrange(prefixes) * BLOCKS
        prompt = Prompt(tokens=250, block_tokens=64, blocks=range(first, first + BLOCKS))
        request = Request(id=str(first), headers={":path": "/v1/completions"}, model="m", prompt=prompt)
        director.direct(request)[1].release()

    return decide


def micros(work: Callable[[], object], *, seconds: float) -> float:
    """Return the microseconds of CPU that a call takes: the best of five rounds, because others use the machine too."""
    work()
    rounds = []
    for _ in range(5):
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds / 5:
            for _ in range(20):
                work()
            calls += 20
        rounds.append(spent / calls * 1e6)
    return min(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of a decision.")
    parser.add_argument("--endpoints", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--prefixes", type=int, default=20_000)
    parser.add_argument("--config", type=Path, help="an EndpointPickerConfig to decide by")
    parser.add_argument("--baseline", action="store_const", dest="config", const=BASELINE)
    options = parser.parse_args()
    config = options.config.read_text() if options.config else ""
    rng = random.Random(1)
    yardstick = micros(lambda: json.loads(BODY), seconds=options.seconds)
    print(f"json.loads of a {len(BODY)}-byte body: {yardstick:.1f} µs")
    for count in options.endpoints:
        costs = []
        for explain in (False, True):
            director = make_director(count, rng=rng, options=DirectorOptions(explain=explain), config=config)
            decide = one_decision(director, rng=rng, prefixes=options.prefixes)
            costs.append(micros(decide, seconds=options.seconds))
        plain, explained = costs
        print(
            f"{count:5} endpoints: {plain:7.1f} µs a decision, {plain / yardstick:5.1f} × json.loads, "
            f"{plain / count:6.2f} µs per endpoint; explained {explained / plain:.2f} ×"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak memory {peak} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
