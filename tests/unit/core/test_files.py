"""Files that are ours alone, and what may lie in their place."""

import os
import stat
from pathlib import Path

import pytest

from pointsman.core.files import open_private, private_folder, read_regular, replace


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = tmp_path / "a" / "b"
        private_folder(folder)
        replace(folder / "one", "text")
        open_private(folder / "two").close()
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "one"), mode(folder / "two")) == (0o700, 0o600, 0o600)


def place(path: Path, what: str) -> None:
    match what:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "large":
            with path.open("wb") as file:
                file.truncate(100 << 20)


@pytest.mark.parametrize("what", ["folder", "pipe", "loop", "device", "large", "nothing"])
def test_what_is_no_plain_file_is_an_error_at_once(tmp_path: Path, what: str) -> None:
    place(tmp_path / "file", what)
    with pytest.raises(OSError, match=r"."):
        read_regular(tmp_path / "file", most=1 << 20)


def test_a_failed_replacement_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match=r"."):
        replace(tmp_path / "file", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
