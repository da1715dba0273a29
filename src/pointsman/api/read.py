"""Resources out of files: what the API server would check, checked without one, and every mistake in one message."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pointsman.api.llminferenceservice import LLMInferenceService
from pointsman.api.scheduler import SchedulerInstall
from pointsman.api.simulator import SimulatorDeployment
from pointsman.core.documents import read_yaml
from pointsman.core.errors import UserError
from pointsman.core.values import ConfigError, check

T = TypeVar("T")


def parse(document: Mapping[str, Any], *, source: str) -> SimulatorDeployment:
    """Return the SimulatorDeployment in a document that came from `source`.

    Raises UserError with each field that is wrong and what to do about it.
    """
    return _parse(SimulatorDeployment, document, source=source)


def parse_any(document: Mapping[str, Any], *, source: str) -> SimulatorDeployment | LLMInferenceService:
    """Return the resource in a document, of a kind that also runs on one machine; raises UserError as `parse` does."""
    if isinstance(document, Mapping) and document.get("kind") == "LLMInferenceService":
        return parse_service(document, source=source)
    return _parse(SimulatorDeployment, document, source=source, kinds=("SimulatorDeployment", "LLMInferenceService"))


def parse_service(document: Mapping[str, Any], *, source: str) -> LLMInferenceService:
    """Return the LLMInferenceService in a document; raises UserError as `parse` does."""
    return _parse(LLMInferenceService, document, source=source)


def parse_install(document: Mapping[str, Any], *, source: str) -> SchedulerInstall:
    """Return the SchedulerInstall in a document; raises UserError as `parse` does."""
    return _parse(SchedulerInstall, document, source=source)


def read(path: Path) -> SimulatorDeployment:
    """Return the one resource in a file; raises UserError."""
    return parse(read_yaml(path), source=str(path))


def _parse(kind: type[T], document: Mapping[str, Any], *, source: str, kinds: Sequence[str] = ()) -> T:
    if not isinstance(document, Mapping):
        raise UserError(f"{source}: not a {kind.__name__}: a resource is a mapping with apiVersion, kind and spec")
    said = document.get("kind")
    if (
        isinstance(said, str) and said != kind.__name__
    ):  # what is wrong with the fields of another kind is of no use to anybody
        wanted = " or ".join(repr(each) for each in kinds or (kind.__name__,))
        raise UserError(f"{source}: kind: input should be {wanted}, not {said[:100]!r}")
    found = check(kind, document, path="")
    if found.value is None:
        raise ConfigError(found.problems, name=source)
    return found.value
