"""Metrics that are read, not kept: of the pool, of its endpoints, and of the scrapers that watch them.

llm-d's names where it has such a figure, `pointsman_*` where only we do: the age of each endpoint's metrics, who is
ejected, how often that happened. Averages are over endpoints whose metrics are not stale, as llm-d takes them.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping

from pointsman.core.families import Family, Gauge, Labels, names
from pointsman.epp.pool.ejection import StandingState
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Member, Pool

_FIGURES: tuple[tuple[str, str, Callable[[Member], float]], ...] = (
    ("kv_cache_utilization", "share of KV cache in use", lambda member: member.metrics.kv_usage),
    ("queue_size", "requests waiting in model servers", lambda member: member.metrics.waiting),
    ("running_requests", "requests running in model servers", lambda member: member.metrics.running),
)


def pool_families(pool: Pool, *, name: str, clock: Callable[[], float], staleness: float) -> Iterable[Family]:
    """Return the families about a pool."""

    def fresh() -> list[Member]:
        now = clock()
        return [member for member in pool.members if member.metrics.age(now) <= staleness]

    for figure, text, read in _FIGURES:
        yield _pool_gauge(f"average_{figure}", f"Average {text}.", name, _over(fresh, read, statistics.fmean))
        yield _pool_gauge(f"std_dev_{figure}", f"Standard deviation of {text}.", name, _over(fresh, read, _deviation))
    yield Gauge(
        names(
            "llm_d_epp_ready_endpoints",
            ("name",),
            ("inference_pool_ready_pods", ("name",)),
        ),
        "Endpoints that discovery knows to be ready.",
        read=lambda: {(name,): len(pool.members)},
    )
    yield Gauge(
        names(
            "llm_d_epp_per_endpoint_queue_size",
            ("name", "model_server_endpoint"),
            ("inference_pool_per_pod_queue_size", ("name", "model_server_pod=model_server_endpoint")),
        ),
        "Requests waiting in one model server.",
        read=lambda: {(name, member.endpoint.name): member.metrics.waiting for member in pool.members},
    )
    yield from _endpoint_families(pool, clock=clock)


def _deviation(figures: Iterable[float]) -> float:
    """Return the sample's standard deviation, as llm-d has it; 0 for one endpoint."""
    found = list(figures)
    return statistics.stdev(found) if len(found) > 1 else 0.0


def _over(
    fresh: Callable[[], list[Member]], read: Callable[[Member], float], together: Callable[[Iterable[float]], float]
) -> Callable[[], float | None]:
    def value() -> float | None:
        figures = [read(member) for member in fresh()]
        return together(figures) if figures else None

    return value


def _pool_gauge(figure: str, text: str, pool: str, value: Callable[[], float | None]) -> Gauge:
    def read() -> Mapping[Labels, float]:
        now = value()
        return {} if now is None else {(pool,): now}

    every = names(f"llm_d_epp_{figure}", ("name",), (f"inference_pool_{figure}", ("name",)))
    return Gauge(every, text, read=read)


def _endpoint_families(pool: Pool, *, clock: Callable[[], float]) -> Iterable[Family]:
    def each(read: Callable[[Member], float | None]) -> Callable[[], Mapping[Labels, float]]:
        def values() -> Mapping[Labels, float]:
            found = ((member.endpoint, read(member)) for member in pool.members)
            return {(one.name, one.namespace): value for one, value in found if value is not None}

        return values

    labels = ("endpoint_name", "namespace")
    yield Gauge(
        names("llm_d_epp_inflight_requests", labels), "Requests of ours in flight.", read=each(lambda m: m.inflight)
    )
    yield Gauge(
        names("llm_d_epp_inflight_tokens", labels), "Their tokens not prefilled yet.", read=each(lambda m: m.tokens)
    )
    yield Gauge(
        names("pointsman_metrics_age_seconds", labels),
        "Age of the endpoint's metrics; absent when it never gave any.",
        read=each(lambda m: None if m.metrics.updated_at is None else clock() - m.metrics.updated_at),
    )
    yield Gauge(
        names("pointsman_endpoint_ejected", labels),
        "Whether the endpoint is left alone because its requests failed.",
        read=each(lambda m: float(m.standing.state is StandingState.OUT)),
    )
    yield Gauge(
        names("pointsman_ejections_total", ()),
        "Endpoints ejected so far.",
        read=lambda: {(): pool.ejections},
        kind="counter",
    )


def source_families(tally: Polls) -> Iterable[Family]:
    """Return the families about reading endpoints."""
    yield Gauge(
        names("llm_d_epp_datalayer_poll_errors_total", ("source_type",)),
        "Questions to endpoints that were not answered properly.",
        read=lambda: {(source,): count for source, count in tally.poll_errors.items()},
        kind="counter",
    )
    yield Gauge(
        names("llm_d_epp_datalayer_extract_errors_total", ("source_type", "extractor_type")),
        "Figures that an endpoint's answer did not have.",
        read=lambda: {(source, extractor): count for (source, extractor), count in tally.extract_errors.items()},
        kind="counter",
    )
    yield Gauge(
        names("pointsman_polls_total", ("source_type",)),
        "Answers of endpoints that were used.",
        read=lambda: {(source,): count for source, count in tally.polls.items()},
        kind="counter",
    )
