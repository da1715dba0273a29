"""One version: what the package, the chart and a release name."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "version"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_package_chart_and_command_agree() -> None:
    assert run().stdout == f"version={version('pointsman')}\n"
    command = [sys.executable, "-m", "pointsman", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    number, _, rest = said.strip().partition(" ")
    assert number == version("pointsman")
    assert rest.startswith("(pure Python; CPython 3."), "an editable install has nothing that is compiled"


def test_a_tag_that_nobody_else_names_is_refused() -> None:
    done = run("--tag", "v99.0.0")
    assert done.returncode == 1
    assert "the tag says 99.0.0" in done.stderr and "Traceback" not in done.stderr
