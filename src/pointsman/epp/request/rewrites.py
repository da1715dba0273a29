"""InferenceModelRewrites: which model a request for another model is sent to, by weight.

Which rule holds is decided once, when the rules change: a rule that names the model before one for all models, then the
older resource, then the rule that comes first. What is left per request is a look into a dictionary and one draw. Of
targets with and without weights only those with weights are drawn; without any weights all are equal.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model to send to."""

    model: str
    weight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRule:
    """Models and what to send instead; no models means all."""

    models: tuple[str, ...] = ()
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One resource."""

    name: str
    created: str = ""  # RFC 3339 in UTC, which sorts by time
    rules: tuple[RewriteRule, ...] = ()


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule made of a model; one is made for every request, which is why it is a struct."""

    rewrite: str
    model: str


class _Draw:
    """A rule, ready to be drawn from."""

    __slots__ = ("_edges", "_models", "_name")

    def __init__(self, name: str, rule: RewriteRule) -> None:
        weighted = [target for target in rule.targets if target.weight]
        drawn = weighted or list(rule.targets)
        self._name = name
        self._models = [target.model for target in drawn]
        self._edges = list(accumulate(target.weight or 1 for target in drawn))

    def draw(self, random: float) -> Rewritten:
        """Return a target; `random` is from 0 up to 1."""
        at = bisect_right(self._edges, random * self._edges[-1])
        return Rewritten(rewrite=self._name, model=self._models[min(at, len(self._models) - 1)])


class Rewrites:
    """The rules that discovery knows now."""

    def __init__(self) -> None:
        self._exact: dict[str, _Draw] = {}
        self._generic: _Draw | None = None
        self.models: frozenset[str] = frozenset()

    def replace(self, rewrites: Iterable[Rewrite]) -> None:
        """Take new resources."""
        exact: dict[str, _Draw] = {}
        generic: _Draw | None = None
        names: set[str] = set()
        for rewrite in sorted(rewrites, key=lambda one: (one.created, one.name)):
            for rule in rewrite.rules:
                if not rule.targets:
                    continue
                draw = _Draw(rewrite.name, rule)
                names.update(rule.models, (target.model for target in rule.targets))
                generic = generic or (draw if not rule.models else None)
                for model in rule.models:
                    exact.setdefault(model, draw)
        self._exact, self._generic, self.models = exact, generic, frozenset(names)

    def rewrite(self, model: str, *, random: Callable[[], float]) -> Rewritten | None:
        """Return what the model becomes; None when no rule holds for it."""
        draw = self._exact.get(model) or self._generic
        return None if draw is None else draw.draw(random())
