"""The tutorial, as a newcomer would follow it: every file that it says to save, every command that it says to run.

Two things differ from what a reader does: the files are not saved in the clone, and the ports are free ones, because
another stack may have the usual ones on this machine.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.envoy.commands import PORTS, Run, status

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "first-plugin.md"
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_SAVED_AS = re.compile(r"as `([\w.]+)`:\s*$")
_OUR_PORTS = " ".join(f"{flag}=0" for flag in PORTS)


@dataclass(frozen=True)
class Block:
    """A fenced block of the page."""

    text: str
    file: str  # the name under which to save it; empty for commands


def blocks(page: str) -> Iterator[Block]:
    at = 0
    for found in _BLOCK.finditer(page):
        named = _SAVED_AS.search(page[at : found.start()])
        at = found.end()
        assert named or found[1] == "bash", f"what is a reader to do with this? {found[0]}"
        yield Block(found[2], named[1] if named else "")


class Reader:
    """Someone who does what the page says, in a folder of their own."""

    def __init__(self, folder: Path, run: Run, *, envoy: Path) -> None:
        self._folder, self._run = folder, run
        self._environment = os.environ | {"XDG_STATE_HOME": str(folder), "POINTSMAN_ENVOY": str(envoy)}
        self._activate = f"source {ROOT}/.venv/bin/activate"
        self._saved: dict[str, str] = {}

    def follow(self, block: Block) -> str:
        """Save the file, or run the commands; return what these print."""
        if block.file:
            self._saved[block.file] = block.text
            (self._folder / block.file).write_text(block.text)
            return ""
        return "".join(self._type(line) for line in block.text.splitlines())

    def _type(self, line: str) -> str:
        if line.startswith("python "):
            self._use_our_ports(line.split()[1])
        line = line.replace("pointsman up", f"pointsman up {_OUR_PORTS}").replace("make ", f"make -C {ROOT} ")
        line = line.replace("source .venv/bin/activate", ":")
        done = subprocess.run(
            ["bash", "-c", f"{self._activate} && {line}"],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
        return done.stdout

    def _use_our_ports(self, script: str) -> None:
        running = status(self._run)
        text = self._saved[script].replace("http://127.0.0.1:8080", running["gateway"])
        text = text.replace("http://127.0.0.1:9090", running["picker"]["metrics"])
        (self._folder / script).write_text(text)


def test_the_tutorial_does_what_it_says(run: Run, tmp_path: Path, envoy: Path) -> None:
    reader = Reader(tmp_path, run, envoy=envoy)
    printed = [text for block in blocks(PAGE.read_text()) if (text := reader.follow(block))]
    answers = [re.findall(r"(\w+) +→ (simulator-\d)", text) for text in printed]
    before, after = (pairs for pairs in answers if pairs)
    assert len(before) == len(after) == 6
    assert len(set(after)) == 3, f"a tenant has two homes: {after}"
    last = printed[-1]
    assert "picked 127.0.0.1:" in last and last.count("{'tenant': ") == 3 and last.count("{'tenant': 1.0}") == 1, last
