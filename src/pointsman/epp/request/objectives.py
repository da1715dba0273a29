"""InferenceObjectives: the priority that a request's header names. An unknown name is an ordinary request.

Pure data that discovery replaces as a whole; whoever directs a request asks for a name's priority.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One name and what it is worth."""

    name: str
    priority: int = 0  # below 0: may be shed


class Objectives:
    """The objectives that discovery knows now."""

    def __init__(self) -> None:
        self._by_name: dict[str, Objective] = {}

    def replace(self, objectives: Iterable[Objective]) -> None:
        """Take a new list."""
        self._by_name = {objective.name: objective for objective in objectives}

    def get(self, name: str) -> Objective | None:
        """Return the objective of this name."""
        return self._by_name.get(name)

    def priority(self, name: str) -> int:
        """Return the priority that a request with this name has."""
        found = self._by_name.get(name)
        return found.priority if found is not None else 0

    def __len__(self) -> int:
        return len(self._by_name)
