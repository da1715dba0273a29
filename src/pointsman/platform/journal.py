"""How far a run got: pure. Kept on the cluster, so that an interrupted run goes on from any machine.

A step is noted when it is done. The next run skips what the interrupted one has done with the same fingerprint; once a
run has finished, the next one does every step again, which changes nothing where nothing differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pointsman.platform.steps import Step

NAMESPACE = NAME = "pointsman-platform"
KEY = "journal.json"


@dataclass(frozen=True)
class Journal:
    """The steps that are done, and whether the run that did them came to its end."""

    finished: bool = True
    done: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def begun(self) -> "Journal":
        """Return the journal of a run that begins: one that goes on where the last was cut, or a new one."""
        return replace(self, finished=False, done=self.done if not self.finished else {})

    def has(self, step: Step) -> bool:
        """Say whether the interrupted run has done this very step."""
        return self.done.get(str(step)) == step.fingerprint

    def with_done(self, step: Step, *, version: str) -> "Journal":
        """Return the journal with a step noted."""
        versions = {**self.versions, step.component: version} if step.name == "install" else self.versions
        return replace(self, done={**self.done, str(step): step.fingerprint}, versions=versions)

    def without(self, component: str) -> "Journal":
        """Return the journal without a component that was taken down."""
        done = {step: each for step, each in self.done.items() if not step.startswith(f"{component}: ")}
        versions = {name: each for name, each in self.versions.items() if name != component}
        return replace(self, done=done, versions=versions)

    def ended(self) -> "Journal":
        """Return the journal of a run that came to its end."""
        return replace(self, finished=True)


def write_journal(journal: Journal) -> dict[str, str]:
    """Return the journal as the data of a ConfigMap."""
    return {KEY: msgspec.json.encode(journal, order="deterministic").decode()}


def read_journal(data: Any) -> Journal:
    """Return the journal in a ConfigMap's data; an empty one when somebody has made nonsense of it."""
    try:
        return msgspec.json.decode(str((data or {}).get(KEY, "{}")), type=Journal)
    except (msgspec.MsgspecError, AttributeError):
        return Journal()
