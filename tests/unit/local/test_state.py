import multiprocessing
from pathlib import Path

import pytest

from pointsman.core.errors import Unavailable
from pointsman.core.files import replace
from pointsman.local.state import Folder, Replica, StackState, WantedReplicas, default_folder

STACK = StackState(
    pid=1,
    ready=True,
    gateway="http://127.0.0.1:8080",
    admin="http://127.0.0.1:19000",
    model="m",
    failure_mode="FailClose",
    picker={"metrics": "http://127.0.0.1:9090"},
    pids={"envoy": 2, "picker": None},
    logs="/logs",
    replicas=(Replica(name="simulator-0", address="127.0.0.1:8200", state="ready", pid=3),),
)


def test_folder_follows_the_xdg_rules() -> None:
    assert default_folder({"HOME": "/home/x"}) == Path("/home/x/.local/state/pointsman")
    assert default_folder({"HOME": "/home/x", "XDG_STATE_HOME": "/s"}) == Path("/s/pointsman")
    assert default_folder({"HOME": "/home/x", "XDG_STATE_HOME": ""}) == Path("/home/x/.local/state/pointsman")


def test_nothing_runs_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "none")
    assert not folder.is_supervised()
    assert folder.stack() is None


def test_stack_is_read_back_while_it_is_supervised(tmp_path: Path) -> None:
    ours, theirs = Folder(tmp_path), Folder(tmp_path)
    ours.acquire()
    assert theirs.is_supervised()
    assert theirs.stack() is None  # it has not written anything yet
    ours.write_stack(STACK)
    assert theirs.stack() == STACK
    ours.retire()
    assert theirs.stack() is None
    assert theirs.is_supervised()  # until its process has ended: who waits for that waits for everything


def test_only_one_supervisor(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    first.acquire()
    with pytest.raises(Unavailable, match="pointsman down"):
        Folder(tmp_path).acquire()


def _supervise_and_die(path: Path) -> None:
    folder = Folder(path)
    folder.acquire()
    folder.write_stack(STACK)


def test_record_of_a_dead_supervisor_is_not_believed(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_supervise_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert Folder(tmp_path).stack_file.exists()
    assert Folder(tmp_path).stack() is None


def test_wanted_is_what_was_asked_last_and_a_new_supervisor_forgets_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.wanted() is None
    folder.write_wanted(WantedReplicas(replicas=5))
    folder.write_wanted(WantedReplicas(replicas=2))
    assert folder.wanted() == WantedReplicas(replicas=2)
    folder.acquire()
    assert folder.wanted() is None


def test_replace_is_one_step(tmp_path: Path) -> None:
    path = tmp_path / "x"
    replace(path, "old")
    inode = path.stat().st_ino
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_ino != inode
    assert list(tmp_path.iterdir()) == [path]
