"""The metric families that are read off the parts as they run: plugins, streams, memory, configuration.

What is counted request by request is in `metrics`; here nothing is written, and a family costs whoever reads it. No
plugin is known by its class: one that has something to show has the attribute (`plugins.api`).
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from itertools import chain

from pointsman.core.budget import Budget
from pointsman.core.families import Family, Gauge, Labels, ReadHistogram, names
from pointsman.epp.assembly import Assembly
from pointsman.epp.body.tokenizer import Tokenizer
from pointsman.epp.config.build import Made
from pointsman.epp.config.follow import ConfigFollower
from pointsman.epp.metrics.pool import pool_families, source_families
from pointsman.epp.metrics.tracing import Tracer
from pointsman.epp.plugins.api import CountsStages, KeepsIndex
from pointsman.epp.schedule.director import Director
from pointsman.epp.schedule.explain import BOUNDS_SECONDS, Meters
from pointsman.wire.listener import Listener

_INDEX: Labels = ("plugin_name", "plugin_type")


def every_family(parts: Assembly, *, listener: Listener) -> Iterable[Family]:
    """Return what is read off a picker's parts, having said which version this is."""
    parts.metrics.info.cells["", version("pointsman")] = 1
    name, staleness = parts.settings.pool_name or "file", parts.settings.metrics_staleness_threshold
    yield from pool_families(parts.pool, name=name, clock=parts.clock, staleness=staleness)
    yield from source_families(parts.polls)
    yield from plugin_families(parts.builder.meters, made=lambda: parts.configuration.current.made)
    yield from picker_families(director=parts.director, listener=listener, bad_files=lambda: parts.bad_files)
    yield from memory_families(parts.budget)
    yield configuration_family(parts.configuration)
    yield token_family(parts.tokenizer)
    if parts.tracer is not None:
        yield span_family(parts.tracer)


def plugin_families(meters: Meters, *, made: Callable[[], Mapping[str, Made]]) -> Iterable[Family]:
    """Return what plugins cost, under llm-d's names, how often they failed, and how much they remember."""
    labels: Labels = ("extension_point", "plugin_type", "plugin_name")
    olds = ((f"{prefix}_plugin_duration_seconds", labels) for prefix in ("llm_d_router_epp", "inference_extension"))
    yield ReadHistogram(
        names("llm_d_epp_plugin_duration_seconds", labels, *olds),
        "Seconds in a plugin.",
        bounds=BOUNDS_SECONDS,
        read=lambda: [((one.point, one.type, one.name), one.buckets, one.nanos / 1e9) for one in meters],
    )
    yield _counter(
        "pointsman_plugin_errors_total",
        "Calls of a plugin that raised and lost its contribution.",
        labels,
        lambda: {(one.point, one.type, one.name): one.errors for one in meters},
    )

    decision: Labels = ("model_name", "decision_type")
    yield Gauge(
        names("llm_d_epp_disagg_decision_total", decision, ("llm_d_epp_pd_decision_total", decision)),
        "Requests by the stages that ran for them.",
        read=lambda: dict(
            chain.from_iterable(
                one.plugin.decisions.items() for one in made().values() if isinstance(one.plugin, CountsStages)
            )
        ),
        kind="counter",
    )
    olds = ((f"{prefix}_prefix_indexer_size", _INDEX) for prefix in ("llm_d_router_epp", "inference_extension"))
    yield Gauge(
        names("llm_d_epp_prefix_indexer_size", _INDEX, *olds),
        "Entries of a prefix index.",
        read=lambda: {
            (name, one.declared.type.name): len(one.plugin.index)
            for name, one in made().items()
            if isinstance(one.plugin, KeepsIndex)
        },
    )


def picker_families(*, director: Director, listener: Listener, bad_files: Callable[[], int]) -> Iterable[Family]:
    """Return the families that only we have."""
    tally, pool = director.tally, director.pool
    yield Gauge(
        names("pointsman_inflight_requests", ("endpoint",)),
        "Requests in flight.",
        read=lambda: {(member.endpoint.target,): member.inflight for member in pool.members},
    )
    yield _counter(
        "pointsman_picks_total",
        "Requests sent to an endpoint.",
        ("endpoint",),
        lambda: {(member.endpoint.target,): member.picks for member in pool.members},
    )
    for name, text, label, counts in (
        ("pointsman_refusals_total", "Requests answered by the picker itself.", "code", tally.refused),
        ("pointsman_requests_ended_total", "Requests by how they ended.", "cause", tally.ended),
        ("pointsman_wire_limits_total", "Limits that a peer hit.", "limit", listener.limit_hits),
    ):
        yield _counter(name, text, (label,), _one_label(counts))
    yield _counter(
        "pointsman_served_elsewhere_total",
        "Requests that Envoy could not deliver to the pick and gave to another.",
        (),
        lambda: {(): tally.served_elsewhere},
    )
    yield Gauge(names("pointsman_wire_connections", ()), "Open connections.", read=lambda: {(): len(listener.peers)})
    yield Gauge(names("pointsman_wire_streams", ()), "Open streams.", read=lambda: {(): listener.open_streams})
    yield _counter(
        "pointsman_bad_files_total", "Watched files that were refused after a change.", (), lambda: {(): bad_files()}
    )


def memory_families(budget: Budget) -> Iterable[Family]:
    """Return what is held for peers, and who had to make room."""
    yield Gauge(
        names("pointsman_held_bytes", ()),
        "Bytes held for peers: bodies, unsent answers.",
        read=lambda: {(): budget.held},
    )
    yield Gauge(
        names("pointsman_held_bytes_limit", ()), "What --max-held-bytes allows.", read=lambda: {(): budget.limit}
    )
    yield _counter(
        "pointsman_held_bytes_shed_total",
        "Holders that had to make room, by what held the memory.",
        ("holder",),
        _one_label(budget.shed),
    )


def configuration_family(configuration: ConfigFollower) -> Family:
    """Return how often a new version of the configuration was used, and how often refused."""
    return _counter(
        "pointsman_config_reloads_total",
        "New versions of the configuration file, by what became of them.",
        ("result",),
        lambda: {("used",): configuration.reloads, ("refused",): configuration.rejected},
    )


def token_family(tokenizer: Tokenizer) -> Family:
    """Return what became of questions for a prompt's tokens."""
    return _counter(
        "pointsman_tokenizations_total",
        "Prompts that a tokenizer service was asked about; those that it did not answer were estimated.",
        ("result",),
        _one_label(tokenizer.results),
    )


def span_family(tracer: Tracer) -> Family:
    """Return what became of spans."""
    return _counter(
        "pointsman_spans_total",
        "Spans by what became of them.",
        ("result",),
        lambda: {("exported",): tracer.exported, ("dropped",): tracer.dropped},
    )


def _counter(name: str, text: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]) -> Gauge:
    return Gauge(names(name, labels), text, read=read, kind="counter")


def _one_label(counts: Mapping[str, int]) -> Callable[[], Mapping[Labels, float]]:
    return lambda: {(value,): count for value, count in sorted(counts.items())}
