"""`pointsman status` and `down`: what runs on this machine, and its end.

They read what the stack says of itself and need nothing of what makes one, so they start sooner than `up`.
"""

import asyncio
import json
import os
import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pointsman.local import control, running, screen
from pointsman.local.observe import observe
from pointsman.local.state import Folder, default_folder


def status(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Show the running stack and its endpoints; exit 1 when none runs.

    Parameters
    ----------
    as_json
        Print it as JSON, with ports and process ids.

    """
    folder = Folder(default_folder(os.environ))
    found = control.find(folder)
    stack = found.stack if found is not None else None
    console = screen.console()
    if stack is None:
        said = "no stack runs: `pointsman up` starts one"
        if found is not None or folder.is_supervised():
            said = f"a stack runs in {folder.path}, but does not say what it is: it may be starting or ending"
        console.print('{"running": false, "endpoints": []}' if as_json else said)
        return 1
    endpoints = asyncio.run(observe(stack))
    if as_json:
        document = {"running": True, **msgspec.to_builtins(stack), "endpoints": msgspec.to_builtins(endpoints)}
        del document["replicas"]
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif console.is_terminal:
        console.print(screen.table(stack, endpoints, caption="\n".join(screen.problems(stack)) or None))
    else:
        console.print("\n".join(screen.lines(stack, endpoints)))
    return 0


def down() -> int:
    """Stop the running stack and wait until everything of it is gone."""
    folder = Folder(default_folder(os.environ))
    console = screen.console()
    if not folder.is_supervised():
        console.print("no stack runs")
        return 0
    running.stop(folder)
    console.print("the stack is stopped")
    return 0
