"""What reading ahead leaves for the last chunk of a body: the time to hash its prompt, before and after.

A body comes in chunks of 16 KB; `at the end` is the work that is left when the last one is here, `in all` what was
spent on it from the first chunk on. Text has a line break every 80 characters, which JSON escapes.

    python -m bench ahead [--sizes 16384 225280]
"""

import argparse
import json

from bench.decide import micros
from pointsman.epp.body.ahead import Ahead
from pointsman.epp.body.prompts import hash_chain

CHUNK = 16_384
BLOCK_TOKENS, MAX_BLOCKS = 64, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16_384, 225_280])
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    for size in args.sizes:
        text = ("The points are set before the train arrives. " * 2 + "\n") * (size // 91 + 1)
        for first in (True, False):
            document = {"model": "m", "prompt": text[:size]} if first else {"prompt": text[:size], "model": "m"}
            compare(json.dumps(document).encode(), text[:size].encode(), first=first, seconds=args.seconds)


def compare(body: bytes, text: bytes, *, first: bool, seconds: float) -> None:
    chunks = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]

    def plain() -> list[int]:
        return hash_chain(text, model="m", salt="", block_tokens=BLOCK_TOKENS, max_blocks=MAX_BLOCKS)

    def read() -> Ahead:
        ahead = Ahead(block_tokens=BLOCK_TOKENS, max_blocks=MAX_BLOCKS)
        for chunk in chunks[:-1]:
            ahead.feed(chunk)
        return ahead

    def rest(ahead: Ahead) -> list[int]:
        known = ahead.agrees(text)
        return hash_chain(text, model="m", salt="", block_tokens=BLOCK_TOKENS, max_blocks=MAX_BLOCKS, known=known)

    done = read()
    assert rest(done) == plain()
    before, after = micros(plain, seconds=seconds), micros(lambda: rest(done), seconds=seconds)
    whole = micros(lambda: rest(read()), seconds=seconds)
    where = "first" if first else "last"
    ahead = f"ahead {after:.0f} at the end, {whole:.0f} in all"
    print(f"{len(body):7} bytes, model {where}: {before:.0f} µs at the end; {ahead}")


if __name__ == "__main__":
    main()
