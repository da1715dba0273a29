"""`python -m bench [name] [flags]`: one comparison, by the name of its module; `gateway` when none is given."""

import runpy
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if "__main__" in path.read_text())


def main() -> None:
    named = len(sys.argv) > 1 and not sys.argv[1].startswith("-")
    name = sys.argv.pop(1) if named else "gateway"
    if name not in NAMES:
        sys.exit(f"bench: there is no {name}; there is {', '.join(NAMES)}")
    runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)


main()
