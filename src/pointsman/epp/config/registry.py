"""Which class a plugin type of a configuration file is.

Three sources, in this order: our own table, under llm-d's names; entry points of the group `pointsman.plugins`, under
the names that packages give them; and `module:Class`, for a class that is simply importable. Types of llm-d that are
known but not there yet are refused with a sentence that says so: "unknown" would send people looking for a typo.

Owns names and classes; makes no instance. What a class can do is read off its methods
(`schedule.points`), never declared.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel

from pointsman.core.values import nearest
from pointsman.epp.plugins import (
    admitters,
    affinity,
    bursts,
    conformance,
    deciders,
    declared,
    detectors,
    embeddings,
    filters,
    handlers,
    labelled,
    latency,
    pickers,
    predicted,
    prefixes,
    producers,
    reporting,
    responders,
    scorers,
    session,
)
from pointsman.epp.schedule.points import IN_PROFILES, MAKES_A_PLUGIN, names_of

ENTRY_POINTS = "pointsman.plugins"

Stability = Literal["beta", "alpha", "deprecated", "custom"]


class UnknownType(Exception):
    """There is no such plugin type; the message is a clause that says what to do."""


@dataclass(frozen=True, kw_only=True)
class PluginType:
    """A class with the name that files give it."""

    name: str
    cls: type[Any]
    stability: Stability = "beta"
    instead: str = ""  # what to use instead of a deprecated type

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it can do, in words."""
        own = getattr(self.cls, "kind", "")
        return ((own,) if own else ()) + names_of(self.cls)

    @property
    def in_profiles(self) -> bool:
        """Whether a profile can name it."""
        return any(point.on(self.cls) for point in IN_PROFILES)

    @property
    def parameters(self) -> type[Any] | None:
        """The dataclass or model that its parameters are; None when it takes none."""
        return parameters_of(self.cls)


def parameters_of(cls: type[Any]) -> type[Any] | None:
    """Return the type of a plugin class's parameters.

    The class itself when it is a dataclass or a model, else what its `__init__` says about `parameters`.
    Raises UnknownType when it wants anything else.
    """
    if dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel):
        return cls
    signature = inspect.signature(cls)
    odd = [
        each.name
        for each in signature.parameters.values()
        if each.default is each.empty
        and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
        and each.name not in {"parameters", "_parameters", "context"}
    ]
    if odd:
        raise UnknownType(f"{cls.__name__}.__init__ wants {odd[0]!r}: it can have `parameters` and `context` only")
    hints = get_type_hints(cls.__init__)
    return next((hints[name] for name in ("parameters", "_parameters") if name in hints), None)


def _table(*rows: tuple[str, type[Any]], stability: Stability = "beta", instead: str = "") -> list[PluginType]:
    return [PluginType(name=name, cls=cls, stability=stability, instead=instead) for name, cls in rows]


_PARSERS = ("openai", "anthropic", "vllmhttp", "sglanghttp", "vllmgrpc", "vertexai", "passthrough")

_BUILT_IN: tuple[PluginType, ...] = (
    *_table(
        ("max-score-picker", pickers.MaxScorePicker),
        ("random-picker", pickers.RandomPicker),
        ("weighted-random-picker", pickers.WeightedRandomPicker),
        ("single-profile-handler", handlers.SingleProfileHandler),
        ("disagg-profile-handler", handlers.DisaggProfileHandler),
        ("data-parallel-profile-handler", handlers.DataParallelProfileHandler),
        ("prefix-based-pd-decider", deciders.PrefixBasedDecider),
        ("always-disagg-pd-decider", deciders.AlwaysPrefillDecider),
        ("always-disagg-multimodal-decider", deciders.MultimodalDecider),
        ("decode-filter", filters.DecodeFilter),
        ("prefill-filter", filters.PrefillFilter),
        ("encode-filter", filters.EncodeFilter),
        ("label-selector-filter", filters.LabelSelectorFilter),
        ("context-length-aware", filters.ContextLengthAware),
        ("prefix-cache-affinity-filter", affinity.PrefixCacheAffinityFilter),
        ("predicted-latency-producer", predicted.PredictedLatencyProducer),
        ("request-attribute-reporter", reporting.RequestAttributeReporter),
        ("outlen-bucket", producers.OutlenBucket),
        ("endpoint-notification-source", declared.NotificationSource),
        ("k8s-notification-source", declared.ClusterNotificationSource),
        ("slo-headroom-tier-filter", latency.HeadroomTierFilter),
        ("header-based-testing-filter", conformance.HeaderBasedTestingFilter),
        ("destination-endpoint-served-verifier", conformance.ServedVerifier),
        ("queue-scorer", scorers.QueueScorer),
        ("running-requests-size-scorer", scorers.RunningRequestsScorer),
        ("kv-cache-utilization-scorer", scorers.KvCacheUtilizationScorer),
        ("load-aware-scorer", scorers.LoadAwareScorer),
        ("active-request-scorer", scorers.ActiveRequestScorer),
        ("token-load-scorer", scorers.TokenLoadScorer),
        ("latency-scorer", latency.LatencyScorer),
        ("lora-affinity-scorer", affinity.LoraAffinityScorer),
        ("prefix-cache-scorer", affinity.PrefixCacheScorer),
        ("no-hit-lru-scorer", affinity.NoHitLru),
        ("mm-embeddings-cache-scorer", embeddings.EmbeddingsCacheScorer),
        ("token-producer", producers.TokenProducer),
        ("approx-prefix-cache-producer", prefixes.ApproxPrefixCacheProducer),
        ("mm-embeddings-cache-producer", embeddings.EmbeddingsCacheProducer),
        ("inflight-load-producer", producers.InflightLoadProducer),
        ("session-id-producer", session.SessionIdProducer),
        ("probabilistic-admitter", admitters.ProbabilisticAdmitter),
        ("latency-slo-admitter", latency.LatencySloAdmitter),
        ("utilization-detector", detectors.UtilizationDetector),
        ("concurrency-detector", detectors.ConcurrencyDetector),
        ("metrics-data-source", declared.MetricsSource),
        ("core-metrics-extractor", declared.CoreMetricsExtractor),
        ("models-data-source", declared.ModelsSource),
        ("models-data-extractor", declared.ModelsExtractor),
        ("file-discovery", declared.FileDiscovery),
        *((f"{api}-parser", declared.BodyParser) for api in _PARSERS),
    ),
    *_table(
        ("header-profile-handler", handlers.HeaderProfileHandler),
        ("session-affinity-scorer", session.SessionAffinityScorer),
        ("session-affinity-filter", session.SessionAffinityFilter),
        ("utilization-filter", filters.UtilizationFilter),
        ("endpoint-attribute-filter", filters.EndpointAttributeFilter),
        ("endpoint-attribute-scorer", scorers.EndpointAttributeScorer),
        ("header-label-affinity-scorer", affinity.HeaderLabelAffinityScorer),
        ("label-producer", labelled.LabelProducer),
        ("endpoint-attribute-weight-scorer", labelled.AttributeWeightScorer),
        ("topology-affinity-filter", labelled.TopologyAffinityFilter),
        ("topology-affinity-scorer", labelled.TopologyAffinityScorer),
        ("topology-extractor", labelled.TopologyExtractor),
        ("agent-identity", reporting.AgentIdentity),
        ("served-model-filter", filters.ServedModelFilter),
        ("models-responder", responders.ModelsResponder),
        ("reserve-endpoint", responders.ReserveEndpoint),
        ("burst-prefix-cache-producer", bursts.BurstPrefixCacheProducer),
        ("dcgm-data-source", declared.DcgmSource),
        ("dcgm-extractor", declared.DcgmExtractor),
        stability="alpha",
    ),
    *_table(
        ("by-label", filters.ByLabelFilter),
        ("by-label-selector", filters.LabelSelectorFilter),
        stability="deprecated",
        instead="label-selector-filter",
    ),
    *_table(("tokenizer", producers.TokenProducer), stability="deprecated", instead="token-producer"),
    *_table(
        ("kv-cache-scorer", scorers.KvCacheUtilizationScorer),
        stability="deprecated",
        instead="kv-cache-utilization-scorer",
    ),
    *_table(
        ("model-server-protocol-metrics", declared.CoreMetricsExtractor),
        stability="deprecated",
        instead="core-metrics-extractor",
    ),
    *_table(
        ("pd-profile-handler", handlers.PdProfileHandler),
        ("disagg-headers-handler", handlers.StageHeadersHandler),
        ("prefill-header-handler", handlers.StageHeadersHandler),
        stability="deprecated",
        instead="disagg-profile-handler",
    ),
)

BUILT_IN: Mapping[str, PluginType] = {each.name: each for each in _BUILT_IN}

_LATER: Mapping[str, tuple[str, ...]] = {
    "flow control": (
        "global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness",
        "fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy", "static-usage-limit-policy",
        "priority-holdback-policy", "soft-reflective-ceiling-policy", "sheddable-eviction-filter",
        "priority-then-time-eviction-order-policy",
    ),
    "the precise prefix cache": ("precise-prefix-cache-producer", "precise-prefix-cache-scorer"),
    "KV transfer between peers": ("p2p-source-producer",),
    "multi-cluster scheduling": (
        "multicluster-queue-scorer", "multicluster-kv-cache-utilization-scorer", "multicluster-prefix-cache-scorer",
        "multicluster-session-affinity-filter", "multicluster-approx-prefix-cache-producer",
        "multicluster-file-discovery", "multicluster-metrics-data-source", "multicluster-metrics-extractor",
    ),
    "DisaggregatedSet roll-outs": ("disaggregatedset-rollout-screener",),
}  # fmt: skip

LATER: Mapping[str, str] = {name: feature for feature, names in _LATER.items() for name in names}


def find_type(name: str) -> PluginType:
    """Return the plugin type of that name.

    Raises UnknownType, whose message is the rest of a sentence about the type.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in LATER:
        raise UnknownType(f"{name!r} belongs to {LATER[name]}, which this version does not implement yet: leave it out")
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            return _custom(name, _import(entry.module, entry.attr))
    module, colon, attribute = name.partition(":")
    if colon:
        return _custom(name, _import(module, attribute))
    known = [*BUILT_IN, *LATER]
    raise UnknownType(f"{name!r} is not a plugin type{nearest(name, known)} (a class of yours is written module:Class)")


def _import(module: str, attribute: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise UnknownType(f"module {module!r} cannot be imported: {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UnknownType(f"module {module!r} has no {attribute!r}{nearest(attribute, vars(found))}")
        found = getattr(found, part)
    return found


def _custom(name: str, cls: Any) -> PluginType:
    if not isinstance(cls, type):
        raise UnknownType(f"{name!r} is not a class")
    found = PluginType(name=name, cls=cls, stability="custom")
    if not found.kinds:
        methods = ", ".join(point.method for point in MAKES_A_PLUGIN)
        raise UnknownType(f"{name!r} has none of the methods of a plugin: {methods}")
    _ = found.parameters  # a class that cannot be built is refused here
    return found
