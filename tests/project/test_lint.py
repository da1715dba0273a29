"""Every rule that is switched off has its reason beside it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "tools")


def test_every_rule_that_is_ignored_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (section,) = re.findall(r"^ignore = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert [line for line in section.splitlines() if not re.search(r"# \S", line)] == []


def test_every_exception_in_the_code_says_why() -> None:
    mark = "# noqa" + ":"
    bare = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in {".py", ""}
        for line in path.read_text(errors="replace").splitlines()
        if mark in line and not re.search(mark + r" [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \S", line)
    ]
    assert bare == []
