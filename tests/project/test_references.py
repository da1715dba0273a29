"""What the documentation names is there: modules, files, tests, targets of make, and decisions by their number."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pointsman"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RESOURCES = sorted((ROOT / "docs" / "reference").glob("*.md"))  # whose fields are called as packages of ours are
FOLDERS = sorted(each.name for each in ROOT.iterdir() if each.is_dir() and each.name[0] not in "._")
# What looks like a name of ours and is a field of a resource, a file of a platform, or a place in a state folder.
OTHERS = re.compile(r"(platform|bundle)\.yaml|epp\.(args|failureMode)|crds\.(install|keep)|config/envoy/.*|.*/FILE")


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of ours, or something that a module of ours has."""
    place, parts = PACKAGE, name.split(".")
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
        elif (file := place / f"{part}.py").is_file():
            return set(parts[number + 1 : number + 2]) <= defined(file)
        else:
            return part in defined(place / "__init__.py")
    return True


@cache
def defined(file: Path) -> frozenset[str]:
    """Return the names that a module defines or imports."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    made = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    set_ = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(made | set_ | {node.asname or node.name for node in nodes if isinstance(node, ast.alias)})


def wrong_modules(text: str) -> Iterator[str]:
    packages = "|".join(each.name for each in PACKAGE.iterdir() if each.is_dir())
    for name in re.findall(rf"(?<![\w./$-])(?:pointsman\.)?((?:{packages})(?:\.[A-Za-z_]\w*)+)(?![\w/-])", text):
        if not OTHERS.fullmatch(name) and not resolves(name):
            yield name


def wrong_files(text: str) -> Iterator[str]:
    named = re.findall(rf"(?<![\w./~$<-])((?:{'|'.join(FOLDERS)})/[\w./{{}},*-]+)", text)
    for name in (each.rstrip("./,") for each in named):
        pattern = re.sub(r"{.*}", "*", name)
        if not OTHERS.fullmatch(name) and not (list(ROOT.glob(pattern)) or list(ROOT.glob(f"{pattern}*"))):
            yield name


def wrong_tests(text: str) -> Iterator[str]:
    for name in set(re.findall(r"\btest_\w+", text)):
        if not any(name in each for each in written()):
            yield name


@cache
def written() -> list[str]:
    files = sorted(each for each in (ROOT / "tests").rglob("test_*.py") if each != Path(__file__))
    return [*(each.stem for each in files), *(each.read_text() for each in files)]


def wrong_targets(text: str) -> Iterator[str]:
    there = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for named in re.findall(r"(?:`|^\$ )make ((?:[a-z0-9-]+ ?)+)", text, re.MULTILINE):
        yield from (f"make {each}" for each in named.split() if each not in there)


def wrong_decisions(text: str) -> Iterator[str]:
    for said, file in re.findall(r"\[[Dd]ecision (\d+)\]\([^)]*?(\d{4})-", text):
        if int(said) != int(file):
            yield f"decision {said} is {file}"
    there = len(list((ROOT / "docs" / "decisions").glob("*.md")))
    yield from (f"decision {each}" for each in re.findall(r"[Dd]ecision (\d+)", text) if not 1 <= int(each) <= there)


CHECKS = (wrong_modules, wrong_files, wrong_tests, wrong_targets, wrong_decisions)
CASES = [
    pytest.param(page, wrong, id=f"{page.relative_to(ROOT)}-{wrong.__name__}")
    for page in PAGES
    for wrong in CHECKS
    if not (wrong is wrong_modules and page in RESOURCES)
]


@pytest.mark.parametrize(("page", "wrong"), CASES)
def test_what_a_page_names_is_there(page: Path, wrong: Callable[[str], Iterator[str]]) -> None:
    assert not list(wrong(page.read_text()))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        pytest.param(wrong_modules, "by `render.stack`", id="a module that moved"),
        pytest.param(wrong_modules, "`kube.client.Klient`", id="a class that is not there"),
        pytest.param(wrong_files, "see `tests/unit/render/test_stack.py`", id="a file that moved"),
        pytest.param(wrong_tests, "`test_of_nothing_at_all`", id="a test that is gone"),
        pytest.param(wrong_targets, "`make everything`", id="a target that is gone"),
        pytest.param(wrong_decisions, "[decision 3](decisions/0004-fail-open.md)", id="a number that is another's"),
    ],
)
def test_what_is_not_there_is_found(wrong: Callable[[str], Iterator[str]], text: str) -> None:
    assert list(wrong(text))


def test_decisions_are_numbered_without_gaps_and_named_in_their_first_line() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(each.name[:4]) for each in files] == list(range(1, len(files) + 1))
    for number, file in enumerate(files, 1):
        text = file.read_text()
        assert text.startswith(f"# {number}. "), file.name
        assert re.search(r"^## .*([Rr]ejected|Alternatives)", text, re.MULTILINE), file.name


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (phony,) = re.findall(r"^\.PHONY: (.*)", text, re.MULTILINE)
    command = ["make", "--no-print-directory", "help"]  # `make test` runs this, too
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    assert sorted(line.split()[0] for line in shown.splitlines()) == sorted(phony.split())
