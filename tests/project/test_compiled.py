"""The compiled form of the picker passes the tests of its modules, as the pure form does.

Built once per state of the sources, into the cache; where there is no C compiler it is skipped, which costs nobody
anything: `make up` and an editable install never need one. `make compiled` runs more of the tests this way.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import compiled

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/fuzz/epp/sources",
    "tests/parts/epp/sources/test_scrape.py",
    "tests/unit/core/http",
    "tests/unit/wire",
    "tests/unit/epp/body",
    "tests/unit/epp/extproc",
    "tests/unit/epp/metrics",
    "tests/unit/epp/pool",
    "tests/unit/epp/schedule",
    "tests/unit/epp/sources",
    "tests/wire/test_grpcio.py",
    "tests/wire/test_known_answers.py",
)


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    lacking = compiled.missing()
    if lacking:
        pytest.skip(lacking)
    return {**os.environ, "PYTHONPATH": str(compiled.build()), "POINTSMAN_FUZZ_EXAMPLES": "30"}


def run(*arguments: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_version_says_that_it_is_compiled(environment: dict[str, str]) -> None:
    assert "(compiled; " in run("pointsman", "--version", environment=environment)


@pytest.mark.timeout(1600)
def test_it_passes_the_tests_of_its_modules(environment: dict[str, str]) -> None:
    said = run("pytest", "-q", "--no-header", *TESTS, environment=environment)
    passed = int(said.rpartition(" passed")[0].split()[-1])
    assert passed > 800, said[-2000:]
