"""A change of an EnvoyFilter is live in Envoy within a second: real API server, istiod, Envoy and requests."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.istio.mesh import Mesh, fetch
from tests.waiting import wait_until

URL = "http://127.0.0.1:28888/"
HOST = "web.example"
GATEWAY: dict[str, Any] = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    # Without this istiod waits for a load balancer that nobody brings.
    "metadata": {
        "name": "gw",
        "namespace": "default",
        "annotations": {"networking.istio.io/service-type": "ClusterIP"},
    },
    "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 28888, "protocol": "HTTP"}]},
}
ROUTE: dict[str, Any] = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "parentRefs": [{"name": "gw"}],
        "hostnames": [HOST],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080, "name": "http"}]},
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "example.invalid/none:1"}]},
        },
    },
}


def envoyfilter(mark: str) -> dict[str, Any]:
    """Return an EnvoyFilter that adds a header to every answer of the gateway."""
    script = f'function envoy_on_response(handle) handle:headers():add("x-mark", "{mark}") end'
    manager = "envoy.filters.network.http_connection_manager"
    lua = {
        "name": "test.lua",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
            "default_source_code": {"inline_string": script},
        },
    }
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": "mark", "namespace": "default"},
        "spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}],
            "configPatches": [
                {
                    "applyTo": "HTTP_FILTER",
                    "match": {
                        "context": "GATEWAY",
                        "listener": {
                            "filterChain": {
                                "filter": {"name": manager, "subFilter": {"name": "envoy.filters.http.router"}}
                            }
                        },
                    },
                    "patch": {"operation": "INSERT_BEFORE", "value": lua},
                }
            ],
        },
    }


class Backend(http.server.BaseHTTPRequestHandler):
    """Say at which address the request arrived."""

    def do_GET(self) -> None:
        body = json.dumps({"served_by": self.connection.getsockname()[0]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def gateway(mesh: Mesh) -> Iterator[list[str]]:
    """A Gateway with a route to two Pods; yields their addresses, at which real servers listen."""
    mesh.apply(SERVICE, DEPLOYMENT, GATEWAY, ROUTE)
    wait_until(lambda: len(mesh.pods("app=web")) == 2)
    addresses = [pod["status"]["podIP"] for pod in mesh.pods("app=web")]
    servers = [http.server.ThreadingHTTPServer((address, 8080), Backend) for address in addresses]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    mesh.plane.kubectl("wait", "--for=condition=Programmed", "gateway/gw", "--timeout=60s")
    mesh.pose("gw")
    wait_until(lambda: fetch(URL, host=HOST)[0] == 200)
    yield addresses
    for server in servers:
        server.shutdown()


def test_requests_reach_the_pods(gateway: list[str]) -> None:
    wait_until(lambda: {json.loads(fetch(URL, host=HOST)[2])["served_by"] for _ in range(20)} == set(gateway))


def marked(mark: str) -> bool:
    return fetch(URL, host=HOST)[1].get("x-mark") == mark


def test_a_change_is_live_within_a_second(mesh: Mesh, gateway: list[str]) -> None:
    assert "x-mark" not in fetch(URL, host=HOST)[1]
    taken = []
    for mark in ("one", "two", "three"):
        mesh.apply(envoyfilter(mark))
        began = time.monotonic()
        wait_until(partial(marked, mark))
        taken.append(time.monotonic() - began)
    print("live after", [f"{seconds:.2f} s" for seconds in taken])
    assert min(taken) < 1.0, taken
    mesh.plane.kubectl("delete", "envoyfilter", "mark")
    wait_until(lambda: "x-mark" not in fetch(URL, host=HOST)[1])
