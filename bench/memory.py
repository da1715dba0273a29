"""Whether memory stays: resident size of a picker's core after more and more requests over many distinct prefixes.

Requests go through the director in this process (what headers mean, producers, profile, hooks, record, metrics,
reservation) with the default configuration; the wire keeps nothing after a stream has ended, and is left out so that a
million requests take minutes. Every prefix is a prompt of 16 KB, hashed as usual. What counts is the last column: after
the index is full it must be flat.

    python -m bench memory [--requests 1000000] [--prefixes 100000] [--endpoints 8]
"""

import argparse
import random
from pathlib import Path

from bench.decide import make_director
from pointsman.epp.body.prompts import hash_chain
from pointsman.epp.request.request import Prompt, Request

_SUFFIX = b"The points are set before the train arrives. " * 364


def resident() -> float:
    """Return the MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def prompt(number: int) -> Prompt:
    text = b"%08x " % number + _SUFFIX
    chain = hash_chain(text, model="m", salt="", block_tokens=64, max_blocks=2048)
    return Prompt(tokens=len(text) // 4, block_tokens=64, blocks=chain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--prefixes", type=int, default=100_000)
    parser.add_argument("--endpoints", type=int, default=8)
    args = parser.parse_args()
    rng = random.Random(1)
    director = make_director(args.endpoints, rng=rng)
    start = resident()
    print(f"{args.endpoints} endpoints, {args.prefixes} prefixes of 16 KB; {start:.0f} MiB before the first request")
    for number in range(1, args.requests + 1):
        asked = Request(
            id=str(number), headers={}, model="m", target_model="m", prompt=prompt(rng.randrange(args.prefixes))
        )
        director.direct(asked)[1].release()
        if number * 10 % args.requests == 0:
            print(f"{number:9} requests: {resident():6.0f} MiB, {resident() - start:+.0f}", flush=True)


if __name__ == "__main__":
    main()
