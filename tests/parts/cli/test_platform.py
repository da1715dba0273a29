"""The platform's commands without a cluster: charts, moves, mistakes, each with its exit code and one sentence."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import fresh_port
from tests.unit.bundle.made import crd
from tests.unit.platform.made import bundle_folder, component

from pointsman.cli import main

SCRIPT = Path(__file__).parents[3] / "platform" / "lws-operator" / "scripts" / "update-bundle.sh"


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["platform", *arguments])
    return ended.value.code


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    component(tmp_path)
    bundle_folder(tmp_path / "bundles")
    monkeypatch.setenv("POINTSMAN_BUNDLES", str(tmp_path / "bundles"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "platform.yaml").write_text(json.dumps({"components": [{"name": "thing"}]}))
    return str(tmp_path / "platform.yaml")


def test_render_writes_complete_charts(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "-f", file, "--out", str(tmp_path / "out")) == 0
    assert "thing: chart of thing 1.2.3" in capsys.readouterr().out
    assert (tmp_path / "out" / "thing" / "manifests-crds" / "widgets.example.com.yaml").is_file()
    assert (tmp_path / "out" / "platform.yaml").is_file()


def test_a_platform_of_another_name_is_rendered_to_the_name_that_helmfiles_know(file: str, tmp_path: Path) -> None:
    mine = Path(file).rename(tmp_path / "mine.yaml")
    assert run("render", "-f", str(mine), "--out", str(tmp_path / "out")) == 0
    assert (tmp_path / "out" / "platform.yaml").read_text() == mine.read_text()


@pytest.mark.parametrize("place", ["", "thing", "thing/scripts"])
def test_the_script_of_a_rendered_folder_moves_it_from_anywhere(file: str, tmp_path: Path, place: str) -> None:
    shutil.copy(SCRIPT, tmp_path / "thing" / "scripts" / SCRIPT.name)
    out = tmp_path / "charts of mine"
    assert run("render", "-f", file, "--out", str(out)) == 0
    bundle_folder(tmp_path / "bundles", version="1.3.0")
    (tmp_path / "other" / "thing" / "scripts").mkdir(parents=True)
    script = os.path.relpath(out / "thing" / "scripts" / SCRIPT.name, out / place)
    environment = {
        **os.environ,
        "POINTSMAN": str(Path(sys.executable).with_name("pointsman")),
        "CDPATH": str(tmp_path / "other"),  # somebody's, in which `cd` would look first
    }
    told = subprocess.run(
        ["bash", script, "1.3.0"], cwd=out / place, env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert "version      1.2.3 → 1.3.0" in told.stdout
    assert "version: '1.3.0'" in (out / "thing" / "bundle.yaml").read_text()
    assert json.loads((out / "thing" / ".bundle.json").read_text())["version"] == "1.3.0"


def test_the_script_says_what_it_needs(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "POINTSMAN": "pointsman-that-is-not-there"}
    told = subprocess.run([SCRIPT, "1.3.0"], env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "no pointsman on the PATH" in told.stderr


def test_a_breaking_move_needs_a_word(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrower = crd()
    narrower["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = {}
    bundle_folder(tmp_path / "bundles", version="2.0.0", crds=[narrower])
    pin = tmp_path / "thing" / "bundle.yaml"
    before = pin.read_text()
    assert run("update-bundle", str(tmp_path / "thing"), "2.0.0") == 1
    assert "nothing was changed: say --accept-breaking" in capsys.readouterr().out
    assert run("update-bundle", str(tmp_path / "thing"), "2.0.0", "--accept-breaking", "--dry-run") == 0
    assert pin.read_text() == before
    assert run("update-bundle", str(tmp_path / "thing"), "2.0.0", "--accept-breaking") == 0
    assert "version: '2.0.0'" in pin.read_text()


def test_mistakes_are_one_sentence(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "-f", str(tmp_path / "absent.yaml"), "--out", "x") == 2
    assert "absent.yaml: cannot be read: No such file" in capsys.readouterr().err
    assert run("status", "thong", "-f", file, "--kubeconfig", str(kubeconfig(tmp_path))) == 2
    assert capsys.readouterr().err == "pointsman: 'thong' is no component: did you mean 'thing'?\n"


@pytest.mark.parametrize("command", ["deploy", "status", "undeploy", "preflight", "pull-secret"])
def test_a_cluster_that_is_not_there_is_said_at_once(
    file: str, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "-f", file, "--kubeconfig", str(kubeconfig(tmp_path))) == 1
    assert "the API server does not answer: check --kubeconfig" in capsys.readouterr().err


def kubeconfig(folder: Path) -> Path:
    """Return a configuration for a port at which nobody listens."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{fresh_port()}"}}],
        "users": [{"name": "x", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path
