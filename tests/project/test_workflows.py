"""The workflows are valid, and what they call is there."""

import re
import subprocess
from pathlib import Path

import yaml
from tests.gotools import built

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_finds_nothing() -> None:
    program = built("actionlint")
    # Its optional helpers would only be used where somebody has installed them.
    command = [str(program), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert len(WORKFLOWS) >= 2


def test_ci_runs_what_every_machine_runs() -> None:
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["all"]["steps"]
    assert any("bash .ci/run" in step.get("run", "") for step in steps)


def test_files_that_workflows_call_exist() -> None:
    named = {path for each in WORKFLOWS for path in re.findall(r"\b(?:tools|charts)/[\w/-]+", each.read_text())}
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
