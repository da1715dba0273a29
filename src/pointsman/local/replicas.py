"""The simulators of a stack, and who may know of them when. Pure: no process, no file.

The rule that keeps requests from failing while replicas come and go: Envoy knows an endpoint before the picker may
pick it, and for as long as a request of it may be under way. So a new replica goes to Envoy first and to the picker
once Envoy has it; one that is leaving goes from the picker first and from Envoy when it has nothing left to do; one
that died leaves the picker at once and stays with Envoy, whose retries then go to the next in the pick.

A few replicas are a process each, so that one can be killed; many share one, because a process costs what a hundred
replicas cost. A replica that leaves a process which others still need stays in it as a spare, known to nobody, and is
the first to be used again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pointsman.render.addresses import Address

ALONE_UP_TO = 8
"""Replicas of a stack in which each is a process."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One replica, as far as others need to know."""

    name: str
    address: Address
    healthy: bool
    leaving: bool


def for_envoy(members: Sequence[Member]) -> list[Address]:
    """Return the endpoints that Envoy may send to."""
    return [member.address for member in members]


def for_picker(members: Sequence[Member], *, known_to_envoy: Collection[Address]) -> list[Member]:
    """Return the endpoints that the picker may pick."""
    return [m for m in members if m.healthy and not m.leaving and m.address in known_to_envoy]


def surplus(names: Sequence[str], *, wanted: int) -> list[str]:
    """Return who has to leave, the youngest first."""
    return list(reversed(names[wanted:]))


def next_names(names: Collection[str], *, wanted: int) -> list[str]:
    """Return the names to add, filling the gaps from the lowest number."""
    missing = wanted - len(names)
    numbers = (n for n in range(len(names) + wanted) if f"simulator-{n}" not in names)
    return [f"simulator-{next(numbers)}" for _ in range(max(missing, 0))]


def shares(new: Sequence[str], *, wanted: int) -> list[list[str]]:
    """Return the new replicas by process, in a stack that grows to so many."""
    if wanted <= ALONE_UP_TO:
        return [[name] for name in new]
    return [list(new)] if new else []
