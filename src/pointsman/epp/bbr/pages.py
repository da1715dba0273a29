"""What the router shows on its metrics port: `/metrics`, behind the guard where there is one, and `/healthz`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pointsman.core.families import CONTENT_TYPE, Family
from pointsman.core.http import Request, Response
from pointsman.epp.bbr.collector import Collector
from pointsman.epp.bbr.families import pool_families, request_families, session_families
from pointsman.epp.bbr.processors import Tally
from pointsman.epp.bbr.program import Program

if TYPE_CHECKING:  # imported where a cluster is used
    from pointsman.kube.guard import Guard


def families(*, tally: Tally, program: Program, collector: Collector | None) -> Iterable[Family]:
    """Return the metrics of a router: those of what its configuration has."""
    yield from request_families(tally)
    if program.sessions:
        yield from session_families(program.sessions)
    if collector is not None:
        yield from pool_families(collector, models=program.models)


def answer(request: Request, *, shown: Callable[[], Iterable[Family]], guard: "Guard | None") -> Response:
    """Answer a request to the metrics port."""
    if request.path == "/healthz":
        return Response(200, b"ok\n", CONTENT_TYPE)
    if request.path != "/metrics":
        return Response(404, b"there is /metrics and /healthz\n", CONTENT_TYPE)

    def page() -> Response:
        return Response(200, "".join(line for each in shown() for line in each.render()).encode(), CONTENT_TYPE)

    return page() if guard is None else guard.answer(request, page)  # type: ignore[return-value] # awaited by the server
