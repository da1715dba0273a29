"""The picker's HTTP port for people and Prometheus: `/`, `/metrics`, `/debug/…`, `/healthz`.

Metrics are made into text when someone asks, so a request costs nothing extra here. Where no guard asks for a token, a
browser could be made to read this port for a stranger: a site's name can be pointed at this machine (DNS rebinding). So
what people read is answered only under a name that no stranger owns: an address, or one of this machine or cluster.
"""

import ipaddress
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from pointsman.core.families import CONTENT_TYPE
from pointsman.core.http import Request, Response
from pointsman.core.lines import cut
from pointsman.core.numbers import SAFE, whole
from pointsman.epp.extproc.health import Health
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.page.route import Answer, Route
from pointsman.epp.pool.pool import Member
from pointsman.epp.schedule.director import Director

if TYPE_CHECKING:
    from pointsman.kube.guard import Guard

_FOR_MACHINES = frozenset({"/metrics", "/healthz"})
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".svc")


class Admin:
    """Answers on the metrics port."""

    def __init__(
        self,
        *,
        director: Director,
        health: Health,
        metrics: PickerMetrics,
        clock: Callable[[], float],
        page: Mapping[str, Route] | None = None,
        guard: "Guard | None" = None,
    ) -> None:
        self._director = director
        self._clock = clock
        self._metrics = metrics
        self._guard = guard
        self._routes: dict[str, Route] = {
            "/metrics": Route(answer=lambda _: self._page()),
            "/debug/endpoints": Route(answer=lambda _: self._endpoints()),
            "/debug/decisions": Route(answer=self._decisions),
            "/healthz": Route(answer=lambda _: _health(health), open=True),
            **(page or {}),
        }

    def __call__(self, request: Request) -> Answer:
        """Answer one request."""
        route = self._routes.get(request.path)
        if route is None:
            known = " ".join(self._routes)
            return Response(404, f"nothing is at {request.path}; there is {known}\n".encode(), CONTENT_TYPE)
        if request.method != route.method and (request.method, route.method) != ("HEAD", "GET"):
            return Response(405, f"only {route.method} is answered here\n".encode(), CONTENT_TYPE)
        if self._guard is not None and not route.open:
            return self._guard.answer(request, partial(route.answer, request))
        if self._guard is None and request.path not in _FOR_MACHINES and not _is_ours(request):
            sentence = "open this page by its address, or as localhost: another name may be a stranger's\n"
            return Response(421, sentence.encode(), CONTENT_TYPE)
        return route.answer(request)

    async def _page(self) -> Response:
        return Response(200, await self._metrics.render_aside(), CONTENT_TYPE)

    def _endpoints(self) -> Response:
        return _json({"endpoints": [self._endpoint(member) for member in self._director.pool.members]})

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
            "ejected_because": member.standing.cause,
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
            return Response(400, f"last={cut(last, most=50)} is not a number of decisions\n".encode(), CONTENT_TYPE)
        found = self._director.records.find(wanted, last=most)
        return _json({"decisions": [record.to_json() for record in found]})


def _is_ours(request: Request) -> bool:
    """Return whether a stranger cannot own the name under which we were asked."""
    text = request.headers.get(b"host", b"").decode("latin-1").lower()
    host = text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]
    if "." not in host.strip("."):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").endswith(_LOCAL_NAMES)
    return True


def _health(health: Health) -> Response:
    if health.serving:
        return Response(200, b"ok\n", CONTENT_TYPE)
    return Response(503, f"no: {', '.join(health.obstacles)}\n".encode(), CONTENT_TYPE)


def _json(document: Any) -> Response:
    return Response(200, json.dumps(document).encode() + b"\n")
