"""Resources out of files: what the API server would check, checked without one, and every mistake in one message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pointsman.api.simulator import SimulatorDeployment
from pointsman.core.documents import read_yaml
from pointsman.core.errors import UserError
from pointsman.core.values import ConfigError, check


def parse(document: Mapping[str, Any], *, source: str) -> SimulatorDeployment:
    """Return the resource in a document that came from `source`.

    Raises UserError with each field that is wrong and what to do about it.
    """
    if not isinstance(document, Mapping):
        raise UserError(f"{source}: not a SimulatorDeployment: a resource is a mapping with apiVersion, kind and spec")
    found = check(SimulatorDeployment, document, path="")
    if found.value is None:
        raise ConfigError(found.problems, name=source)
    return found.value


def read(path: Path) -> SimulatorDeployment:
    """Return the one resource in a file; raises UserError."""
    return parse(read_yaml(path), source=str(path))
