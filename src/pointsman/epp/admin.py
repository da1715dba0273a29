"""The picker's HTTP port for people and Prometheus: `/metrics`, `/debug/endpoints`, `/debug/decisions`, `/healthz`.

Metrics are read from the picker's own counters when someone asks, so a request costs nothing extra.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pointsman.core.http import Request, Response
from pointsman.epp.director import Director
from pointsman.epp.health import Health
from pointsman.epp.listener import Listener

_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Admin:
    """Answers on the metrics port."""

    def __init__(self, *, director: Director, health: Health, listener: Listener, bad_files: Callable[[], int]) -> None:
        self._director = director
        self._health = health
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_PickerMetrics(director=director, listener=listener, bad_files=bad_files))
        self._routes: dict[str, Callable[[Request], Response]] = {
            "/metrics": lambda _: Response(200, generate_latest(self._registry), _TEXT),
            "/debug/endpoints": lambda _: _json(self._endpoints()),
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

    def _endpoints(self) -> dict[str, Any]:
        rows = [
            {
                "name": member.endpoint.name,
                "address": member.endpoint.target,
                "inflight": member.inflight,
                "picks": member.picks,
            }
            for member in self._director.pool.members
        ]
        return {"endpoints": rows}

    def _decisions(self, request: Request) -> Response:
        wanted = parse_qs(request.query.decode("ascii", "replace")).get("id", [""])[0]
        return _json({"decisions": [record.to_json() for record in self._director.records.find(wanted)]})


def _json(document: Any) -> Response:
    return Response(200, json.dumps(document).encode() + b"\n")


class _PickerMetrics(Collector):
    """The picker's counters as Prometheus families."""

    def __init__(self, *, director: Director, listener: Listener, bad_files: Callable[[], int]) -> None:
        self._director = director
        self._listener = listener
        self._bad_files = bad_files

    def collect(self) -> Iterable[Metric]:
        """Yield every family, read now."""
        tally, members = self._director.tally, self._director.pool.members
        yield GaugeMetricFamily("llm_d_epp_ready_endpoints", "Endpoints that can be picked.", value=len(members))
        inflight = GaugeMetricFamily("pointsman_inflight_requests", "Requests in flight.", labels=["endpoint"])
        picks = CounterMetricFamily("pointsman_picks", "Requests sent to an endpoint.", labels=["endpoint"])
        for member in members:
            inflight.add_metric([member.endpoint.target], member.inflight)
            picks.add_metric([member.endpoint.target], member.picks)
        yield inflight
        yield picks
        yield _counts("pointsman_refusals", "Requests answered by the picker itself.", "code", tally.refused)
        yield _counts("pointsman_requests_ended", "Requests by how they ended.", "cause", tally.ended)
        yield _counts("pointsman_wire_limits", "Limits that a peer hit.", "limit", self._listener.limit_hits)
        yield GaugeMetricFamily("pointsman_wire_connections", "Open connections.", value=len(self._listener.peers))
        yield GaugeMetricFamily("pointsman_wire_streams", "Open streams.", value=self._listener.open_streams)
        bad = CounterMetricFamily("pointsman_bad_files", "Watched files that were refused after a change.")
        bad.add_metric([], self._bad_files())
        yield bad


def _counts(name: str, text: str, label: str, counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
