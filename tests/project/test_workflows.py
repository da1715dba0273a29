"""The workflows are valid, and what they call is there."""

import os
import re
import shutil
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
    named = {path for each in WORKFLOWS for path in re.findall(r"\b(?:tools|charts)/[\w./-]+", each.read_text())}
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_a_published_chart_installs_the_published_image(tmp_path: Path) -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]["chart"]
    (script,) = (step["run"] for step in job["steps"] if "run" in step)
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    helm = tmp_path / "helm"
    helm.write_text("#!/bin/sh\n")
    helm.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VERSION": "1.2.3", "IMAGE": "registry.example/o/p"}
    environment |= {"TOKEN": "t", "GITHUB_ACTOR": "a", "OWNER": "o"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, timeout=30, check=True)
    values = yaml.safe_load((tmp_path / "charts" / "pointsman" / "values.yaml").read_text())
    assert (values["image"]["repository"], values["image"]["tag"]) == ("registry.example/o/p", "1.2.3")
    assert "registry.example/o/p" in values["policy"]["trustedImagePrefixes"]
    assert job["env"].keys() >= environment.keys() - {"PATH", "GITHUB_ACTOR"}


def test_ci_hands_its_path_to_root() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert 'sudo env "HOME=$HOME" "PATH=$PATH"' in text  # --preserve-env=PATH loses to sudo's secure_path
