"""The picker's HTTP port for people and Prometheus: `/metrics`, `/debug/endpoints`, `/debug/decisions`, `/healthz`.

Metrics are made into text when someone asks, so a request costs nothing extra here.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from pointsman.core.budget import Budget
from pointsman.core.http import Request, Response
from pointsman.core.logs import cut
from pointsman.core.numbers import SAFE, whole
from pointsman.epp.build import Made
from pointsman.epp.config_follow import ConfigFollower
from pointsman.epp.director import Director
from pointsman.epp.explain import BOUNDS_SECONDS, Meters
from pointsman.epp.health import Health
from pointsman.epp.metrics import Metrics
from pointsman.epp.metrics_families import Family, Gauge, Labels, ReadHistogram, names
from pointsman.epp.plugins.handlers import DisaggProfileHandler
from pointsman.epp.plugins.prefixes import ApproxPrefixCacheProducer
from pointsman.epp.pool import Member
from pointsman.epp.tokenizer import Tokenizer
from pointsman.epp.tracing import Tracer
from pointsman.wire.listener import Listener

_INDEX: Labels = ("plugin_name", "plugin_type")
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


if TYPE_CHECKING:
    from pointsman.kube.guard import Guard

Route = Callable[[Request], Response | Awaitable[Response]]


class Admin:
    """Answers on the metrics port."""

    def __init__(
        self,
        *,
        director: Director,
        health: Health,
        metrics: Metrics,
        clock: Callable[[], float],
        guard: "Guard | None" = None,
    ) -> None:
        self._director = director
        self._clock = clock
        self._metrics = metrics
        self._guard = guard
        self._routes: dict[str, Route] = {
            "/metrics": lambda _: self._page(),
            "/debug/endpoints": lambda _: _json({"endpoints": [self._endpoint(m) for m in director.pool.members]}),
            "/debug/decisions": self._decisions,
            "/healthz": lambda _: _health(health),
        }

    def __call__(self, request: Request) -> Response | Awaitable[Response]:
        """Answer one request."""
        route = self._routes.get(request.path)
        if route is None:
            known = " ".join(self._routes)
            return Response(404, f"nothing is at {request.path}; there is {known}\n".encode(), _TEXT)
        if request.method not in {"GET", "HEAD"}:
            return Response(405, b"only GET is answered here\n", _TEXT)
        if self._guard is not None and request.path != "/healthz":
            return self._guard.answer(request, partial(route, request))
        return route(request)

    async def _page(self) -> Response:
        return Response(200, await self._metrics.render_aside(), _TEXT)

    def _endpoint(self, member: Member) -> dict[str, Any]:
        metrics, view = member.metrics, member.view
        scraped = None
        if metrics.updated_at is not None:
            scraped = {
                "age_seconds": round(self._clock() - metrics.updated_at, 3),
                "waiting": metrics.waiting,
                "running": metrics.running,
                "kv_usage": metrics.kv_usage,
                "running_adapters": sorted(metrics.lora.running),
                "waiting_adapters": sorted(metrics.lora.waiting),
                "max_adapters": metrics.lora.max_active,
                "block_tokens": metrics.cache.block_tokens,
                "blocks": metrics.cache.blocks,
            }
        return {
            "name": member.endpoint.name,
            "namespace": member.endpoint.namespace,
            "address": member.endpoint.target,
            "labels": dict(member.endpoint.labels),
            "inflight": member.inflight,
            "inflight_tokens": member.tokens,
            "picks": member.picks,
            "standing": member.standing.state.value,
            "ranked_by": {"waiting": view.waiting, "running": view.running, "kv_usage": view.kv_usage},
            "scraped": scraped,
            "attributes": dict(member.attributes),
            "models": sorted(member.models),
        }

    def _decisions(self, request: Request) -> Response:
        query = parse_qs(request.query.decode("ascii", "replace"))
        wanted, last = query.get("id", [""])[0], query.get("last", [""])[0]
        most = whole(last, most=SAFE) if last else None
        if last and most is None:
            return Response(400, f"last={cut(last, most=50)} is not a number of decisions\n".encode(), _TEXT)
        found = self._director.records.find(wanted, last=most)
        return _json({"decisions": [record.to_json() for record in found]})


def _health(health: Health) -> Response:
    if health.serving:
        return Response(200, b"ok\n", _TEXT)
    return Response(503, f"no: {', '.join(health.obstacles)}\n".encode(), _TEXT)


def _json(document: Any) -> Response:
    return Response(200, json.dumps(document).encode() + b"\n")


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
                one.plugin.decisions.items() for one in made().values() if isinstance(one.plugin, DisaggProfileHandler)
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
            if isinstance(one.plugin, ApproxPrefixCacheProducer)
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
