"""`tools/again.py`: a test that passes alone is told and not counted; many have no second chance."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.again import MOST, STORIES, chosen, stories

ROOT = Path(__file__).parents[2]
PROJECT = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": """
import pytest

def pytest_itemcollected(item):
    item.add_marker(pytest.mark.xdist_group("envoy/test_slow"))
""",
    "tests/envoy/test_slow.py": """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", ["a b@c"])
def test_second_time(name):
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False, "late"

def test_always():
    assert not Path("broken").exists()
""",
}


STORY = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": "import os\nassert os.environ['POINTSMAN_E2E']\n",
    "tests/e2e/test_other.py": "def test_elsewhere():\n    assert True\n",
    "tests/e2e/test_story.py": """
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def made():
    return []

def test_first(made):
    made.append("stack")

def test_second(made):
    assert made
    times = Path("seen").read_text() if Path("seen").exists() else ""
    Path("seen").write_text(times + "x")
    assert times, "late"
""",
}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    line = [sys.executable, "-m", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("broken", [False, True])
def test_a_second_chance_alone(tmp_path: Path, broken: bool) -> None:
    _write(tmp_path, PROJECT)
    if broken:
        (tmp_path / "broken").touch()
    first = _run(tmp_path, "pytest", "-q", "-p", "xdist", "-n", "1", "--dist", "loadgroup")
    assert first.returncode == 1, first.stdout + first.stderr
    again = _run(tmp_path, "tools.again")
    assert again.returncode == broken, again.stdout + again.stderr
    assert "test_second_time[a b@c]" in again.stdout
    assert ("PASSED ALONE" in again.stdout) is not broken


def test_a_story_is_told_again_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second test of a file needs what the first one made, and `make test` keeps its failures elsewhere."""
    _write(tmp_path, STORY)
    assert _run(tmp_path, "tools.again", "e2e").returncode == 1, "nothing to run again is no success"
    monkeypatch.setenv("POINTSMAN_E2E", "1")
    first = _run(tmp_path, "pytest", "-q", "-o", "cache_dir=.pytest_cache/e2e", "tests/e2e")
    assert "1 failed, 2 passed" in first.stdout, first.stdout + first.stderr
    assert _run(tmp_path, "tools.again").returncode == 1
    monkeypatch.delenv("POINTSMAN_E2E")
    again = _run(tmp_path, "tools.again", "e2e")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 passed" in again.stdout
    assert again.stdout.endswith("PASSED ALONE, after a failure beside others:\n  tests/e2e/test_story.py\n")


def test_many_stories_have_no_second_chance() -> None:
    failed = [f"tests/e2e/test_{n}.py::test_{m}" for n in range(STORIES) for m in range(MOST)]
    assert len(stories(failed)) == STORIES
    assert stories([*failed, "tests/e2e/test_more.py::test_one"]) == []


@pytest.mark.parametrize(
    "failed",
    [
        [],
        ["tests/envoy/test_path.py"],  # it could not be collected
        [f"tests/envoy/test_path.py::test_one[{n}]@envoy/test_path" for n in range(MOST + 1)],
    ],
)
def test_no_second_chance(failed: list[str]) -> None:
    assert chosen(failed) == []


def test_the_group_is_no_part_of_a_name() -> None:
    grouped, alone = "tests/envoy/test_path.py::test_one[a@b]", "tests/unit/core/test_text.py::test_two[c@d]"
    assert chosen([f"{grouped}@envoy/test_path", alone]) == [grouped, alone]
