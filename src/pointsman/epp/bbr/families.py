"""What the router shows: its own counts under the names of the body-based router and of the payload processor, and what
its plugins know, under the latter's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version

from pointsman.core.families import Family, Gauge, Labels, ReadHistogram, names
from pointsman.epp.bbr.collector import BOUNDS, Collector
from pointsman.epp.bbr.models import Models, PoolLoad
from pointsman.epp.bbr.processors import Tally
from pointsman.epp.bbr.sessions import SessionAffinity

Read = Callable[[], Mapping[Labels, float]]


def request_families(tally: Tally) -> Iterable[Family]:
    """Return what became of requests."""
    info: dict[Labels, float] = {("", version("pointsman")): 1}
    for who in ("bbr", "ipp"):  # both names, as whoever stands in for both
        yield Gauge(names(f"{who}_info", ("commit", "build_ref")), "The running build.", read=lambda: info)
        yield _counter(f"{who}_success_total", "Requests whose body was read.", (), lambda: {(): tally.success})
        for name, text, counts in (
            ("not_found", "Bodies without a member that was to become a header.", tally.not_found),
            ("empty", "Bodies in which it was empty.", tally.empty),
        ):
            yield _counter(f"{who}_body_field_{name}_total", text, ("field",), _by_label(counts))
    refused = _by_label(tally.refused)
    yield _counter("pointsman_bbr_refusals_total", "Requests answered by the router itself.", ("code",), refused)


def session_families(plugins: Sequence[SessionAffinity]) -> Iterable[Family]:
    """Return how often sessions were known."""
    stem = "ipp_session_affinity_cache"
    yield _counter(
        f"{stem}_hits_total", "Sessions whose model is known.", (), lambda: {(): sum(each.hits for each in plugins)}
    )
    yield _counter(
        f"{stem}_misses_total", "Sessions that are new.", (), lambda: {(): sum(each.misses for each in plugins)}
    )
    yield Gauge(
        names(f"{stem}_size", ()),
        "Sessions that are remembered.",
        read=lambda: {(): sum(len(each.sessions) for each in plugins)},
    )
    yield _counter(
        f"{stem}_evictions_total",
        "Sessions that were forgotten: too many, or too old.",
        (),
        lambda: {(): sum(each.sessions.evictions for each in plugins)},
    )


def pool_families(collector: Collector, *, models: Models) -> Iterable[Family]:
    """Return what was read of pools, and how reading went."""
    rows: tuple[tuple[str, str, Callable[[PoolLoad], float]], ...] = (
        ("utilization_ratio", "Of the pool's KV caches the fullest.", lambda load: load.kv_usage),
        ("cpu_usage_ratio", "Of the pool's KV caches in host memory the fullest.", lambda load: load.cpu_usage),
        ("queue_depth", "Requests that wait in the pool.", lambda load: load.waiting),
        ("running_requests", "Requests that run in the pool.", lambda load: load.running),
    )
    for name, text, value in rows:
        yield Gauge(names(f"ipp_kv_cache_{name}", ("model",)), text, read=_of_loads(models, value))
    yield ReadHistogram(
        names("ipp_kv_cache_scrape_duration_seconds", ("model",)),
        "Seconds that reading a pool's metrics took, also in vain.",
        bounds=BOUNDS,
        read=lambda: [((model,), cell.counts, cell.sum) for model, cell in collector.took.items()],
    )
    yield _counter(
        "ipp_kv_cache_scrape_failures_total",
        "Pages of a pool's metrics that could not be read.",
        ("model", "reason"),
        lambda: dict(collector.failures.items()),
    )


def _of_loads(models: Models, value: Callable[[PoolLoad], float]) -> Read:
    return lambda: {(each.name,): value(each.load) for each in models.candidates if each.load is not None}


def _counter(name: str, text: str, labels: Labels, read: Read) -> Gauge:
    return Gauge(names(name, labels), text, read=read, kind="counter")


def _by_label(counts: Mapping[str, int]) -> Read:
    return lambda: {(key,): count for key, count in counts.items()}
