"""The metric families that are read off the parts as they run: plugins, streams, memory, configuration.

What is counted request by request is in `metrics`; here nothing is written, and a family costs whoever reads it. No
plugin is known by its class: one that has something to show has the attribute (`plugins.api`).
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from pointsman.core.budget import Budget
from pointsman.core.families import Family, Gauge, Labels, ReadHistogram, names
from pointsman.epp.assembly import Assembly
from pointsman.epp.body.tokenizer import Tokenizer
from pointsman.epp.config.build import Made
from pointsman.epp.config.follow import ConfigFollower
from pointsman.epp.metrics.pool import pool_families, source_families
from pointsman.epp.metrics.tracing import Tracer
from pointsman.epp.plugins.api import (
    RATIOS,
    CountsAffinity,
    CountsLookups,
    CountsStages,
    CountsUnlisted,
    Covers,
    KeepsIndex,
    Trains,
)
from pointsman.epp.prediction.questions import Predictor
from pointsman.epp.schedule.director import Director
from pointsman.epp.schedule.explain import BOUNDS_SECONDS, Meters
from pointsman.epp.settings import Settings
from pointsman.wire.listener import Listener

_INDEX: Labels = ("plugin_name", "plugin_type")
_POD = re.compile(r"(.+)-[a-z0-9]+-[a-z0-9]+")  # the name of a Deployment's Pod


def every_family(parts: Assembly, *, listener: Listener) -> Iterable[Family]:
    """Return what is read off a picker's parts, having said which version this is."""
    parts.metrics.info.cells["", version("pointsman")] = 1
    name, staleness = pool_label(parts.settings, os.environ), parts.settings.metrics_staleness_threshold
    yield from pool_families(parts.pool, name=name, clock=parts.clock, staleness=staleness)
    yield from source_families(parts.polls)
    yield from plugin_families(parts.builder.meters, made=lambda: parts.configuration.current.made)
    yield from picker_families(director=parts.director, listener=listener, bad_files=lambda: parts.bad_files)
    yield from memory_families(parts.budget)
    yield configuration_family(parts.configuration)
    yield token_family(parts.tokenizer)
    yield prediction_family(parts.predictor)
    if parts.tracer is not None:
        yield span_family(parts.tracer)


def pool_label(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return what the pool is called in metrics: an InferencePool's name, or as in llm-d our own Deployment's."""
    if settings.pool_name:
        return settings.pool_name
    found = _POD.fullmatch(environ.get("POD_NAME", "")) if settings.endpoint_selector else None
    return found[1] if found else "file"


def plugin_families(meters: Meters, *, made: Callable[[], Mapping[str, Made]]) -> Iterable[Family]:
    """Return what plugins cost, under llm-d's names, how often they failed, and how much they remember."""
    labels: Labels = ("extension_point", "plugin_type", "plugin_name")
    yield ReadHistogram(
        names("llm_d_epp_plugin_duration_seconds", labels, ("inference_extension_plugin_duration_seconds", labels)),
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

    def named(kind: type[Any]) -> Iterator[tuple[Labels, Any]]:
        """Return the plugins that have something of a kind to show, with the labels that name them."""
        for name, one in made().items():
            if isinstance(one.plugin, kind):
                yield (name, one.declared.type.name), one.plugin

    decision: Labels = ("model_name", "decision_type")
    for stem in ("disagg", "pd"):
        yield _counter(
            f"llm_d_epp_{stem}_decision_total",
            "Requests by the stages that ran for them.",
            (*_INDEX, *decision),
            lambda: {(*by, *key): count for by, one in named(CountsStages) for key, count in one.decisions.items()},
            (f"llm_d_inference_scheduler_{stem}_decision_total", decision),
        )
    yield Gauge(
        names("llm_d_epp_prefix_indexer_size", _INDEX, ("inference_extension_prefix_indexer_size", ())),
        "Entries of a prefix index.",
        read=lambda: {by: len(one.index) for by, one in named(KeepsIndex)},
    )
    yield from encoder_families(lambda: named(CountsLookups))
    yield from served_model_families(lambda: named(CountsUnlisted))
    yield _counter(
        "llm_d_epp_prefix_cache_affinity_filter_decisions_total",
        "Decisions whether a request stays where its prompt is cached.",
        ("plugin_name", "outcome"),
        lambda: {
            (by[0], outcome): count
            for by, one in named(CountsAffinity)
            for outcome, count in one.affinity_outcomes.items()
        },
    )
    yield Gauge(
        names("pointsman_prediction_coverage", (*_INDEX, "type")),
        "Share of responses that were no slower than predicted.",
        read=lambda: {(*by, kind): share for by, one in named(Covers) for kind, share in one.coverage.items()},
    )
    yield _counter(
        "pointsman_training_samples_total",
        "Samples for a training sidecar, by what became of them.",
        (*_INDEX, "result"),
        lambda: {(*by, what): count for by, one in named(Trains) for what, count in one.samples.results.items()},
    )


def encoder_families(plugins: Callable[[], Iterable[tuple[Labels, CountsLookups]]]) -> Iterable[Family]:
    """Return how often images, videos and sounds were looked for, and found, in memories of what is encoded where."""
    by: Labels = ("plugin_name", "plugin_type")
    yield _counter(
        "llm_d_epp_encoder_cache_queries_total",
        "Images, videos and sounds that were looked for.",
        (*by, "modality"),
        lambda: {(*name, kind): count for name, one in plugins() for kind, count in one.queries.items()},
    )
    yield _counter(
        "llm_d_epp_encoder_cache_hits_total",
        "… and found, by endpoint.",
        (*by, "pod", "modality"),
        lambda: {(*name, *key): count for name, one in plugins() for key, count in one.hits.items()},
    )
    yield ReadHistogram(
        names("llm_d_epp_encoder_cache_hit_ratio", by),
        "Share of a request's images, videos and sounds that an endpoint has.",
        bounds=RATIOS,
        read=lambda: [(name, one.ratios.counts, one.ratios.sum) for name, one in plugins()],
    )


def served_model_families(plugins: Callable[[], Iterable[tuple[Labels, CountsUnlisted]]]) -> Iterable[Family]:
    """Return how often endpoints were passed over because they do not list the model."""
    by: Labels = ("plugin_name",)
    stem = "llm_d_epp_served_model_filter"
    yield _counter(
        f"{stem}_decisions_total",
        "Decisions about which endpoints serve a request's model.",
        (*by, "outcome"),
        lambda: {(name[0], outcome): count for name, one in plugins() for outcome, count in one.outcomes.items()},
    )
    yield _counter(
        f"{stem}_candidates_total",
        "Endpoints that were asked whether they list the model.",
        by,
        lambda: {name[:1]: one.candidates for name, one in plugins()},
    )
    yield _counter(
        f"{stem}_unlisted_candidates_total",
        "… and had given no list of their models.",
        by,
        lambda: {name[:1]: one.unlisted for name, one in plugins()},
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


def prediction_family(predictor: Predictor) -> Family:
    """Return what became of questions for predictions."""
    return _counter(
        "pointsman_predictions_total",
        "Requests about which a prediction sidecar was to be asked; what it did not answer was predicted here.",
        ("result",),
        _one_label(predictor.results),
    )


def span_family(tracer: Tracer) -> Family:
    """Return what became of spans."""
    return _counter(
        "pointsman_spans_total",
        "Spans by what became of them.",
        ("result",),
        lambda: {("exported",): tracer.exported, ("dropped",): tracer.dropped},
    )


def _counter(
    name: str, text: str, labels: Labels, read: Callable[[], Mapping[Labels, float]], *olds: tuple[str, Labels]
) -> Gauge:
    return Gauge(names(name, labels, *olds), text, read=read, kind="counter")


def _one_label(counts: Mapping[str, int]) -> Callable[[], Mapping[Labels, float]]:
    return lambda: {(value,): count for value, count in sorted(counts.items())}
