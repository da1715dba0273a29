"""The plugin types that a configuration may name, and what each is: where it may be referenced, what it takes."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import Field

from pointsman.core.values import Problem, check, nearest
from pointsman.epp.bbr.collector import CollectorParameters
from pointsman.epp.bbr.costs import CostParameters
from pointsman.epp.bbr.filters import ByField, ByFieldParameters, ByGroup
from pointsman.epp.bbr.pickers import AnyOne, MaxScore, WeightedRandom
from pointsman.epp.bbr.processors import MODEL_HEADER, BaseModelToHeader, FieldParameters, FieldToHeader, Tally
from pointsman.epp.bbr.scorers import (
    AwareParameters,
    Cost,
    CostGuard,
    CostGuardParameters,
    Inflight,
    QueueParameters,
    QueueTtft,
    TtftAware,
)
from pointsman.epp.bbr.sessions import SessionAffinity, SessionParameters
from pointsman.epp.bbr.ttft import TtftParameters
from pointsman.epp.plugins.api import Parameters

Role = Literal[
    "request",
    "selector",
    "filter",
    "scorer",
    "session",
    "picker",
    "response",
    "counter",
    "timer",
    "payer",
    "collector",
    "models",
    "profile picker",
]


class NoParameters(Parameters):
    """Nothing to be told."""


class EchoParameters(Parameters):
    """What `model-name-to-header` takes."""

    header_name: str = Field(default=MODEL_HEADER, min_length=1)


class SourceParameters(Parameters):
    """What `model-config-datasource` takes."""

    models_path: str = Field(min_length=1)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What plugins are given beside their parameters."""

    base_of: Callable[[str], str]
    tally: Tally
    rng: random.Random
    clock: Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One that was made: what it is, and itself, or its parameters where it is no more than these."""

    role: Role
    made: Any
    warning: str = ""


@dataclass(frozen=True)
class _Type:
    role: Role
    takes: type[Parameters]
    make: Callable[[Any, Surroundings], Any]


def _itself(parameters: Any, _around: Surroundings) -> Any:
    return parameters


def _drawing(kind: Callable[..., Any], _parameters: Any, around: Surroundings) -> Any:
    return kind(rng=around.rng)


def _told(kind: Callable[..., Any], parameters: Any, around: Surroundings) -> Any:
    return kind(parameters, rng=around.rng)


_QUEUE = _Type("scorer", QueueParameters, partial(_told, QueueTtft))
_COSTS = _Type("payer", CostParameters, _itself)
_TYPES: Mapping[str, _Type] = {
    "body-field-to-header": _Type("request", FieldParameters, lambda given, on: FieldToHeader(given, tally=on.tally)),
    "base-model-to-header": _Type("request", NoParameters, lambda _given, on: BaseModelToHeader(base_of=on.base_of)),
    "model-selector": _Type("selector", NoParameters, _itself),
    "by-field-filter": _Type("filter", ByFieldParameters, lambda given, _on: ByField(given)),
    "model-name-filter": _Type(
        "filter", NoParameters, lambda _given, _on: ByField(ByFieldParameters(field_name="model"))
    ),
    "model-group-name-filter": _Type("filter", NoParameters, lambda _given, _on: ByGroup()),
    "cost-scorer": _Type("scorer", NoParameters, lambda _given, _on: Cost()),
    "inflight-requests-scorer": _Type("scorer", NoParameters, lambda _given, _on: Inflight()),
    "queue-ttft-scorer": _QUEUE,
    "load-aware-ttft-scorer": _QUEUE,
    "load-aware-ttft": _QUEUE,
    "costguard": _Type("scorer", CostGuardParameters, partial(_told, CostGuard)),
    "ttft-aware-scorer": _Type("scorer", AwareParameters, partial(_told, TtftAware)),
    "session-affinity": _Type(
        "session", SessionParameters, lambda given, on: SessionAffinity(given, clock=on.clock, rng=on.rng)
    ),
    "max-score-picker": _Type("picker", NoParameters, partial(_drawing, MaxScore)),
    "random-picker": _Type("picker", NoParameters, partial(_drawing, AnyOne)),
    "weighted-random-picker": _Type("picker", NoParameters, partial(_drawing, WeightedRandom)),
    "single-profile-picker": _Type("profile picker", NoParameters, _itself),
    "model-name-to-header": _Type("response", EchoParameters, _itself),
    "request-metadata-extractor": _Type("counter", NoParameters, _itself),
    "ttft-percentile-extractor": _Type("timer", TtftParameters, _itself),
    "model-cost-extractor": _COSTS,
    "request-cost-metadata": _COSTS,
    "router-metrics-collector": _Type("collector", CollectorParameters, _itself),
    "model-config-datasource": _Type("models", SourceParameters, _itself),
}


def make(kind: str, parameters: Any, *, path: str, around: Surroundings) -> Plugin | tuple[Problem, ...]:
    """Return a plugin, or all that is wrong with its entry."""
    found = _TYPES.get(kind)
    if found is None:
        return (Problem(f"{path}.type", f"{kind!r} is not a plugin type{nearest(kind, _TYPES)}"),)
    warning = ""
    if found.takes is NoParameters and parameters:
        parameters, warning = {}, f"{path}.parameters: {kind} takes none: leave them out"
    checked = check(found.takes, parameters or {}, path=f"{path}.parameters")
    if checked.value is None:
        return checked.problems
    return Plugin(role=found.role, made=found.make(checked.value, around), warning=warning)
