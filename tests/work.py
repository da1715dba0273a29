"""How much work a piece of code does, as a number that no other process on the machine can change."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pointsman.core.form import is_compiled


def count_work(function: Callable[[], object]) -> int:
    """Return how many lines of Python were run and how many functions of C were called.

    What is compiled runs no lines, and the same source does the same work in both forms: there the test is skipped.
    """
    if is_compiled():
        pytest.skip("work is counted in lines of Python, and this is the compiled form")
    seen = 0

    def line(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        return line

    def called(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal seen
        seen += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    collecting = gc.isenabled()
    gc.disable()  # what it would find, and run to end it, is of other tests
    sys.settrace(line)
    sys.setprofile(called)
    try:
        function()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
        if collecting:
            gc.enable()
    return seen


def peak_bytes(function: Callable[[], object]) -> int:
    """Return how much memory was taken at most while it ran."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
