"""Filters: who may serve a request at all. Pure; an empty answer is an answer (the profile then has nobody)."""

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from pointsman.core.numbers import SAFE, whole
from pointsman.epp.plugins.api import BareName, Endpoints, Parameters
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.refusals import ServiceUnavailable
from pointsman.epp.request.request import Needs, Request

ROLE_LABEL = "llm-d.ai/role"


class _RoleFilter:
    roles: frozenset[str]
    unlabelled = False

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep the endpoints that have one of the roles."""
        roles, unlabelled = self.roles, self.unlabelled
        return [
            endpoint
            for endpoint in endpoints
            if (unlabelled if (role := endpoint.labels.get(ROLE_LABEL)) is None else role in roles)
        ]


class DecodeFilter(_RoleFilter):
    """Endpoints that decode; one without the label does everything, so it does that too."""

    roles = frozenset(("decode", "prefill-decode", "both", "encode-prefill-decode"))
    unlabelled = True


class PrefillFilter(_RoleFilter):
    """Endpoints that prefill."""

    roles = frozenset(("prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"))


class EncodeFilter(_RoleFilter):
    """Endpoints that encode images, video and audio."""

    roles = frozenset(("encode", "encode-prefill", "encode-prefill-decode"))


class Expression(Parameters):
    """One requirement of a Kubernetes label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _values_fit(self) -> "Expression":
        if self.operator in {"In", "NotIn"} and not self.values:
            raise ValueError(f"operator {self.operator} needs values")
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise ValueError(f"operator {self.operator} takes no values")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirement, as Kubernetes decides it."""
        has = self.key in labels
        if self.operator == "Exists":
            return has
        if self.operator == "DoesNotExist":
            return not has
        return (has and labels[self.key] in self.values) == (self.operator == "In")


class SelectorParameters(Parameters):
    """A Kubernetes LabelSelector; an empty one matches everything."""

    match_labels: Mapping[str, str] = Field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()


class LabelSelectorFilter:
    """Endpoints whose labels a Kubernetes label selector matches."""

    def __init__(self, parameters: SelectorParameters) -> None:
        self._labels = tuple(parameters.match_labels.items())
        self._expressions = parameters.match_expressions

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep those that match."""
        return [endpoint for endpoint in endpoints if self._matches(endpoint.labels)]

    def _matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self._labels) and all(
            expression.matches(labels) for expression in self._expressions
        )


class ByLabelParameters(Parameters):
    """What `by-label` takes."""

    label: str = Field(min_length=1)
    valid_values: tuple[str, ...] = ()
    allows_no_label: bool = False

    @model_validator(mode="after")
    def _lets_someone_through(self) -> "ByLabelParameters":
        if not self.valid_values and not self.allows_no_label:
            raise ValueError("it would drop every endpoint: give validValues, or set allowsNoLabel")
        return self


class ByLabelFilter:
    """Endpoints with a label of certain values (deprecated: `label-selector-filter` does more)."""

    def __init__(self, parameters: ByLabelParameters) -> None:
        self._parameters = parameters

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep those with a valid value, or without the label where that is allowed."""
        wanted = self._parameters
        return [
            endpoint
            for endpoint in endpoints
            if (
                wanted.allows_no_label
                if (value := endpoint.labels.get(wanted.label)) is None
                else value in wanted.valid_values
            )
        ]


class UtilizationLimit(Parameters):
    """One limit of the utilization filter."""

    metric: Literal["active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"]
    max_value: float


class UtilizationFilterParameters(Parameters):
    """What `utilization-filter` takes."""

    conditions: tuple[UtilizationLimit, ...] = ()
    fallback_on_empty: bool = False


_METRICS: Mapping[str, Callable[[EndpointView], float]] = {
    "active-requests": lambda endpoint: endpoint.inflight_requests,
    "running-requests": lambda endpoint: endpoint.running,
    "waiting-queue": lambda endpoint: endpoint.waiting,
    "kv-cache-utilization": lambda endpoint: endpoint.kv_usage,
}


class UtilizationFilter:
    """Endpoints below all limits."""

    def __init__(self, parameters: UtilizationFilterParameters) -> None:
        self._limits = tuple((_METRICS[each.metric], each.max_value) for each in parameters.conditions)
        self._fallback = parameters.fallback_on_empty

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Drop whoever is above a limit."""
        kept = [each for each in endpoints if not any(read(each) > limit for read, limit in self._limits)]
        return kept or (endpoints if self._fallback else kept)


_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "Equal": operator.eq,
    "NotEqual": operator.ne,
}


class Threshold(Parameters):
    """A comparison with a number."""

    operator: Literal["LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Equal", "NotEqual"]
    value: float


class ThresholdAlgorithm(Parameters):
    """The one algorithm of the attribute filter."""

    type: Literal["threshold"] = "threshold"
    threshold: Threshold


class AttributeFilterParameters(Parameters):
    """What `endpoint-attribute-filter` takes."""

    attribute: BareName
    producer: str = "core-metrics-extractor"
    on_missing: Literal["Pass", "Fail"] = "Pass"
    fallback_on_empty: bool = False
    algorithm: ThresholdAlgorithm


class EndpointAttributeFilter:
    """Endpoints with a custom metric that compares well."""

    def __init__(self, parameters: AttributeFilterParameters) -> None:
        self._attribute = parameters.attribute
        self._compare = _OPERATORS[parameters.algorithm.threshold.operator]
        self._value = parameters.algorithm.threshold.value
        self._missing = parameters.on_missing == "Pass"
        self._fallback = parameters.fallback_on_empty

    def filter(self, _request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep those whose attribute meets the threshold."""
        kept = [endpoint for endpoint in endpoints if self._keeps(endpoint.attributes.get(self._attribute))]
        return kept or (endpoints if self._fallback else kept)

    def _keeps(self, value: float | None) -> bool:
        return self._missing if value is None else self._compare(value, self._value)


class RangeParameters(Parameters):
    """What `context-length-aware` takes."""

    label: str = Field(default="llm-d.ai/context-length-range", min_length=1)
    enable_filtering: bool = False


class ContextLengthAware:
    """Endpoints for a range of prompt lengths, by a label `min-max`: as a filter when enabled, as a scorer always.

    A narrow range that has room left fits best; no label fits moderately; a range that the prompt is outside of fits
    the worse the farther away it is (`fit`).
    """

    def __init__(self, parameters: RangeParameters) -> None:
        self._label = parameters.label
        self._filters = parameters.enable_filtering

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt's length is wanted."""
        return Needs(body=True, prompt=True)

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep those whose range has the prompt, and those without a range."""
        if not self._filters:
            return endpoints
        tokens = _tokens(request)
        return [endpoint for endpoint in endpoints if self._allows(endpoint, tokens)]

    def _allows(self, endpoint: EndpointView, tokens: int) -> bool:
        text = endpoint.labels.get(self._label)
        span = None if text is None else parse_range(text)
        return text is None or (span is not None and span[0] <= tokens <= span[1])

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Return how well each range fits."""
        tokens = _tokens(request)
        return [fit(endpoint.labels.get(self._label), tokens) for endpoint in endpoints]


def parse_range(text: str) -> tuple[int, int] | None:
    """Return the bounds of `min-max`; None when it is not a range."""
    low, dash, high = text.partition("-")
    least, most = (whole(text.strip(), most=SAFE) for text in (low, high))
    if not dash or least is None or most is None or least > most:
        return None
    return least, most


def fit(label: str | None, tokens: int) -> float:
    """Return how well a prompt of so many tokens fits an endpoint with this label."""
    if label is None:
        return 0.5
    span = parse_range(label)
    if span is None:
        return 0.0
    low, high = span
    if low <= tokens <= high:
        width = high - low
        room = (high - tokens) / width if width else 1.0
        return 0.3 + 0.7 * (0.7 / (1 + width / 10_000) + 0.3 * room)
    distance = low - tokens if tokens < low else tokens - high
    return 0.3 / (1 + distance / 1000)


def _tokens(request: Request) -> int:
    return request.prompt.tokens if request.prompt is not None else 0


class ServedModelParameters(Parameters):
    """What `served-model-filter` takes."""

    on_missing: Literal["Pass", "Fail"] = "Pass"
    fallback_on_empty: bool = False


class ServedModelFilter:
    """Endpoints whose own list of models has the target; who gave no list passes, unless the target is an adapter."""

    wants_models = True  # so that endpoints are asked for theirs

    def __init__(self, parameters: ServedModelParameters) -> None:
        self._strict = parameters.on_missing == "Fail"
        self._fallback = parameters.fallback_on_empty
        self.outcomes: Counter[str] = Counter()
        self.candidates = 0
        self.unlisted = 0

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Drop who lacks it.

        Raises ServiceUnavailable when nobody has it.
        """
        model = request.target_model or request.model
        if not model:
            self.outcomes["not_applicable"] += 1
            return endpoints
        self.candidates += len(endpoints)
        self.unlisted += sum(each.metrics.models is None for each in endpoints)
        fails = self._strict or any(model in each.metrics.adapters for each in endpoints)
        kept = [each for each in endpoints if (not fails if (has := each.metrics.models) is None else model in has)]
        if kept:
            listed = any(model in (each.metrics.models or ()) for each in kept)
            self.outcomes["listed" if listed else "unlisted"] += 1
            return kept
        self.outcomes["fallback" if self._fallback else "empty"] += 1
        if self._fallback:
            return endpoints
        raise ServiceUnavailable(f"no endpoint serves the model {model!r}", dropped="rejected-no-endpoints")
