"""Run once more, with nothing beside them, the few tests that failed in `make test`, or in `make e2e` beside it.

Hundreds of tests start real processes, four at a time beside a node, on machines with two cores that belong to
others too. What fails alone as well is wrong; what passes alone was late, or is wrong so seldom that one run cannot
tell. So nothing is hidden: the first failure stays in the output, and the tests that passed alone are listed at the
end. Each of them has a cause to look for, in the test or in what it tests.

A test on the node needs what those before it made, so it gets its second run with all of its file.

More failures than a busy machine explains get no second chance. What a property test found it finds again: hypothesis
keeps the example.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

MOST = 5
STORIES = 2
_CACHE = Path(".pytest_cache")


def chosen(failed: Iterable[str]) -> list[str]:
    """Return the tests to run again; none when there are too many, or a file could not even be collected."""
    names = list(failed)
    if len(names) > MOST or any("::" not in name for name in names):
        return []
    return sorted(map(_without_group, names))


def _without_group(name: str) -> str:
    """Return a test's name as pytest takes it: xdist appends `@` and the name of its group."""
    test, _, group = name.rpartition("@")
    return test if test and "]" not in group else name


def stories(failed: Iterable[str]) -> list[str]:
    """Return the files of `tests/e2e` to run again; none when there are too many."""
    files = sorted({name.partition("::")[0] for name in failed})
    return files if len(files) <= STORIES else []


def again(names: list[str], *, environment: Mapping[str, str]) -> int:
    """Run tests or files of tests by their names, and say so; return pytest's exit code."""
    if not names:
        return 1
    print("again, with nothing beside them:", *names, sep="\n  ", flush=True)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *names]
    code = subprocess.run(line, env=environment, check=False).returncode
    if code == 0:
        print("PASSED ALONE, after a failure beside others:", *names, sep="\n  ", flush=True)
    return code


def main(*arguments: str) -> int:
    if arguments == ("e2e",):
        return again(stories(_failed(_CACHE / "e2e")), environment={**os.environ, "POINTSMAN_E2E": "1"})
    return again(chosen(_failed(_CACHE)), environment=os.environ)


def _failed(cache: Path) -> list[str]:
    noted = cache / "v/cache/lastfailed"
    return list(json.loads(noted.read_text())) if noted.exists() else []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
