"""Plugins as people write them: every way in which a class can be one, and some in which it cannot."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from pointsman.epp.plugins.api import Context, Endpoints
from pointsman.epp.request.request import Request


@dataclass(frozen=True)
class ByName:
    """A dataclass is its own parameters."""

    prefer: str = "a"
    max_waiting: int = 8

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        return [1.0 if each.name == self.prefer else 0.0 for each in endpoints]


@dataclass
class Counting:
    """… also one that remembers."""

    step: int = 1
    seen: int = field(default=0, init=False)

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        self.seen += self.step
        return [0.0] * len(endpoints)


class ByModel(BaseModel):
    """A pydantic model is its own parameters too."""

    limit: int

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        return [each for each in endpoints if each.waiting < self.limit]


@dataclass(frozen=True)
class Inner:
    share: float = 0.5


@dataclass(frozen=True)
class Options:
    inner: Inner = Inner()
    needed: str = "x"


class WithContext:
    """A plain class is given its parameters and, if it asks, clock, random numbers and its own name."""

    def __init__(self, parameters: Options, *, context: Context) -> None:
        self.parameters = parameters
        self.context = context

    def score(self, _request: Request, endpoints: Endpoints) -> Sequence[float]:
        return [self.parameters.inner.share] * len(endpoints)


class Plain:
    """… or nothing at all."""

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        return endpoints


class Useless:
    """Has no method of a plugin."""


class Demanding:
    """Wants what nobody gives."""

    def __init__(self, database: str) -> None:
        self.database = database

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        return endpoints


class Fails:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no such luck")

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        return endpoints


def function() -> None:
    """Is not a class."""
