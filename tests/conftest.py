"""Where and when tests run: those of a file share a stack, so they are one xdist group; the longest stories begin
first, and the pure tests, of which each is its own, fill the end.

Generated examples have no deadline, since others may have the cores.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

ROOT = Path(__file__).parent
# Folders, and a group in one of them: what is left of "cluster" is one group as well, and ends last if it begins late.
SLOWEST_FIRST = ("cluster", "istio", "bare", "project", "envoy", "browser", "sim", "wire", "fuzz", "parts", "unit")
_LONGEST_NAME = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case by the beginning of a long value: a megabyte of digits is no name."""
    if not isinstance(val, str | bytes) or len(val) <= _LONGEST_NAME:
        return None
    return f"{val[:_LONGEST_NAME].decode('latin-1') if isinstance(val, bytes) else val[:_LONGEST_NAME]}... {len(val)}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the tests of a file on one worker, where the folder says nothing else; pure tests need no company."""
    alone = _folder(item) in {"unit", "e2e"} or not item.config.pluginmanager.hasplugin("xdist")
    if not alone and item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(item.path.relative_to(ROOT).with_suffix("").as_posix()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and hide the million objects that this makes from it afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; xdist keeps this order (`--no-loadscope-reorder`)."""
    ranks = {name: at for at, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: ranks.get(_group(item), ranks.get(_folder(item), 0)))


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0] if item.path.is_relative_to(ROOT) else "unit"
