"""The picker's HTTP port for people and Prometheus: `/metrics`, `/debug/endpoints`, `/debug/decisions`, `/healthz`.

Metrics are made into text when someone asks, so a request costs nothing extra here.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from pointsman.core.http import Request, Response
from pointsman.epp.director import Director
from pointsman.epp.health import Health
from pointsman.epp.listener import Listener
from pointsman.epp.metrics import Metrics
from pointsman.epp.metrics_families import Family, Gauge, Labels, names
from pointsman.epp.pool import Member

_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Admin:
    """Answers on the metrics port."""

    def __init__(self, *, director: Director, health: Health, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._director = director
        self._clock = clock
        self._routes: dict[str, Callable[[Request], Response]] = {
            "/metrics": lambda _: Response(200, metrics.render(), _TEXT),
            "/debug/endpoints": lambda _: _json({"endpoints": [self._endpoint(m) for m in director.pool.members]}),
            "/debug/decisions": self._decisions,
            "/healthz": lambda _: Response(
                200 if health.serving else 503, b"ok\n" if health.serving else b"no\n", _TEXT
            ),
        }

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        route = self._routes.get(request.path)
        if route is None:
            known = " ".join(self._routes)
            return Response(404, f"nothing is at {request.path}; there is {known}\n".encode(), _TEXT)
        if request.method not in {"GET", "HEAD"}:
            return Response(405, b"only GET is answered here\n", _TEXT)
        return route(request)

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
        wanted = parse_qs(request.query.decode("ascii", "replace")).get("id", [""])[0]
        return _json({"decisions": [record.to_json() for record in self._director.records.find(wanted)]})


def _json(document: Any) -> Response:
    return Response(200, json.dumps(document).encode() + b"\n")


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
    yield Gauge(names("pointsman_wire_connections", ()), "Open connections.", read=lambda: {(): len(listener.peers)})
    yield Gauge(names("pointsman_wire_streams", ()), "Open streams.", read=lambda: {(): listener.open_streams})
    yield _counter(
        "pointsman_bad_files_total", "Watched files that were refused after a change.", (), lambda: {(): bad_files()}
    )


def _counter(name: str, text: str, labels: Labels, read: Callable[[], Mapping[Labels, float]]) -> Gauge:
    return Gauge(names(name, labels), text, read=read, kind="counter")


def _one_label(counts: Mapping[str, int]) -> Callable[[], Mapping[Labels, float]]:
    return lambda: {(value,): count for value, count in sorted(counts.items())}
