"""Which form of ourselves runs: pure Python, or the path of every request and scrape compiled from the same source.

Both do the same; what differs is the CPU time. Where a compiled module does not fit the interpreter, Python takes the
source beside it.
"""

import platform

from pointsman.core import numbers


def is_compiled() -> bool:
    """Tell whether the compiled form runs; all its modules are built together, so one answers for all."""
    return not numbers.__file__.endswith(".py")


def describe(version: str) -> str:
    """Return a version with the form that runs, and the interpreter that runs it."""
    form = "compiled" if is_compiled() else "pure Python"
    return f"{version} ({form}; {platform.python_implementation()} {platform.python_version()})"
