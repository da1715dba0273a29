"""Probes and metrics over real sockets."""

import httpx2
import pytest

from pointsman.core.health import Routes, serve, text
from pointsman.core.http import Response


def broken() -> Response:
    raise RuntimeError("cache is gone")


ROUTES: Routes = {
    "/healthz": lambda: text(200, "ok\n"),
    "/readyz": lambda: text(503, "pods: forbidden\n"),
    "/bad": broken,
}


@pytest.mark.parametrize(
    ("method", "path", "code", "body"),
    [
        ("GET", "/healthz", 200, "ok\n"),
        ("GET", "/readyz?verbose", 503, "pods: forbidden\n"),
        ("GET", "/", 404, "there is /bad, /healthz, /readyz\n"),
        ("POST", "/healthz", 405, "only GET\n"),
        ("GET", "/bad", 500, "RuntimeError('cache is gone')\n"),
    ],
)
async def test_routes(method: str, path: str, code: int, body: str) -> None:
    async with serve(ROUTES, host="127.0.0.1", port=0) as port, httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.request(method, f"http://127.0.0.1:{port}{path}")
        assert (answer.status_code, answer.text) == (code, body)
