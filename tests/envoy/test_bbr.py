"""Two pools behind one real Envoy: the model in the body decides which picker is asked, and whose Pod answers."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.envoy.harness import Part, here
from tests.ports import fresh_port

from pointsman.core.documents import to_yaml
from pointsman.render.envoy.addresses import Address

TYPE = "type.googleapis.com/envoy.extensions"
DUPLEX = {
    "request_header_mode": "SEND",
    "response_header_mode": "SKIP",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
}
SHOWN = DUPLEX | {
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
MODELS = {"a": "base-a", "b": "base-b"}
SELECTING = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: model-selector}
- {type: model-group-name-filter}
- {type: inflight-requests-scorer}
- {type: session-affinity}
- {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
- {type: model-name-to-header, parameters: {headerName: x-chosen}}
- {type: request-metadata-extractor}
- {type: model-config-datasource, parameters: {modelsPath: MODELS}}
profiles:
- name: default
  plugins:
    request:
    - {pluginRef: model-selector}
    - {pluginRef: model-group-name-filter}
    - {pluginRef: inflight-requests-scorer, weight: 1}
    - {pluginRef: session-affinity, weight: 5}
    - {pluginRef: body-field-to-header}
    response: [{pluginRef: session-affinity}]
postProcessing: {plugins: [{pluginRef: model-name-to-header}]}
datalayer:
  extractors: [{pluginRef: request-metadata-extractor}]
  datasources: [{pluginRef: model-config-datasource}]
"""


class Gateway:
    """An Envoy with the router before it chooses a route, and a picker behind each route."""

    def __init__(self, folder: Path, *, envoy: Path, config: str = "") -> None:
        self._folder = folder
        self._config = config
        self.listen, self._admin = here(fresh_port()), here(fresh_port())
        self._bbr, self._bbr_metrics = here(fresh_port()), here(fresh_port())
        self._pickers = {pool: here(fresh_port()) for pool in MODELS}
        self._sims = {pool: here(fresh_port()) for pool in MODELS}
        self.parts = [*map(self._sim, MODELS), *map(self._picker, MODELS), self._router(), self._envoy(envoy)]

    async def start(self) -> None:
        for part in self.parts:
            part.launch()
        for part in self.parts:
            await part.healthy()

    def close(self) -> None:
        for part in self.parts:
            part.kill()

    def _part(self, name: str, *arguments: str, health: tuple[Address, str], **more: Any) -> Part:
        command = [sys.executable, "-m", "pointsman", *arguments]
        return Part(name=name, command=command, health=health, log=self._folder / f"{name}.log", **more)

    def _sim(self, pool: str) -> Part:
        address = self._sims[pool]
        slow = ("--inter-token-latency", "100ms")  # a stream lasts until nobody wants it
        flags = ("--port", str(address.port), "--model", MODELS[pool], "--max-model-len", "1000000", *slow)
        pod = {"POD_NAME": f"pod-{pool}"}
        return self._part(f"sim-{pool}", "sim", *flags, health=(address, "/health"), environment=pod)

    def _picker(self, pool: str) -> Part:
        listed = self._folder / f"endpoints-{pool}.yaml"
        sim = self._sims[pool]
        listed.write_text(to_yaml({"endpoints": [{"name": f"pod-{pool}", "address": sim.host, "port": sim.port}]}))
        metrics = here(fresh_port())
        flags = (
            *("--host", "127.0.0.1", "--grpc-port", str(self._pickers[pool].port), "--secure-serving=false"),
            *("--grpc-health-port", str(fresh_port()), "--metrics-port", str(metrics.port)),
            *("--endpoints-file", str(listed)),
        )
        return self._part(f"picker-{pool}", "epp", *flags, health=(metrics, "/healthz"))

    def _router(self) -> Part:
        flags = (
            *("--host", "127.0.0.1", "--grpc-port", str(self._bbr.port), "--secure-serving=false"),
            *("--grpc-health-port", str(fresh_port()), "--metrics-port", str(self._bbr_metrics.port), "--streaming"),
            *(("--config-text", self._config) if self._config else ()),
        )
        return self._part("bbr", "bbr", *flags, health=(self._bbr_metrics, "/healthz"))

    def _envoy(self, program: Path) -> Part:
        config = self._folder / "envoy.json"
        config.write_text(json.dumps(self._bootstrap()))
        flags = ("--config-path", str(config), "--concurrency", "1", "--log-level", "warning", "--use-dynamic-base-id")
        log = self._folder / "envoy.log"
        return Part(name="envoy", command=[str(program), *flags], health=(self._admin, "/ready"), log=log)

    def _bootstrap(self) -> dict[str, Any]:
        filters = [
            _ext_proc("bbr", cluster="bbr", modes=SHOWN if self._config else DUPLEX),
            _ext_proc("picker", cluster="picker-a", modes=DUPLEX),
            {"name": "router", "typed_config": {"@type": f"{TYPE}.filters.http.router.v3.Router"}},
        ]
        manager = {
            "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "gateway",
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": list(map(_route, MODELS))}]},
            "http_filters": filters,
        }
        listener = {
            "name": "gateway",
            "address": _address(self.listen),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }
        picked = {
            "name": "picked",
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "original_dst_lb_config": {
                "use_http_header": True,
                "http_header_name": "x-gateway-destination-endpoint",
            },
        }
        grpc = {"bbr": self._bbr, **{f"picker-{pool}": address for pool, address in self._pickers.items()}}
        clusters = [picked, *(_cluster(name, address) for name, address in grpc.items())]
        return {
            "admin": {"address": _address(self._admin)},
            "static_resources": {"listeners": [listener], "clusters": clusters},
        }


def _address(address: Address) -> dict[str, Any]:
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def _ext_proc(name: str, *, cluster: str, modes: dict[str, str]) -> dict[str, Any]:
    config = {
        "@type": f"{TYPE}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
        "processing_mode": modes,
        "message_timeout": "10s",
    }
    return {"name": name, "typed_config": config}


def _route(pool: str) -> dict[str, Any]:
    per_route = {
        "@type": f"{TYPE}.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {"grpc_service": {"envoy_grpc": {"cluster_name": f"picker-{pool}"}}},
    }
    header = {"name": "x-gateway-model-name", "string_match": {"exact": MODELS[pool]}}
    return {
        "match": {"prefix": "/", "headers": [header]},
        "route": {"cluster": "picked"},
        "typed_per_filter_config": {"picker": per_route},
    }


def _cluster(name: str, address: Address) -> dict[str, Any]:
    options = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    endpoint = {"endpoint": {"address": _address(address)}}
    return {
        "name": name,
        "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": options,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


@pytest.fixture
async def gateway(request: pytest.FixtureRequest, envoy: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    listed = tmp_path / "models.json"
    listed.write_text(json.dumps({"models": [{"name": model} for model in MODELS.values()]}))
    config = str(getattr(request, "param", "")).replace("MODELS", str(listed))
    made = Gateway(tmp_path, envoy=envoy, config=config)
    try:
        await made.start()
        yield made
    finally:
        made.close()


async def test_the_model_in_the_body_decides_which_pool_answers(gateway: Gateway) -> None:
    url = f"http://{gateway.listen}/v1/completions"
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        for size in (100, 1000, 100_000):
            for pool, model in MODELS.items():
                prompt = "x" * size
                for document in ({"model": model, "prompt": prompt}, {"prompt": prompt, "model": model}):
                    answer = await client.post(url, json={**document, "max_tokens": 1})
                    assert answer.status_code == 200, answer.text
                    assert answer.headers["x-inference-pod"] == f"pod-{pool}"
                    assert answer.json()["model"] == model
        nobody = await client.post(url, json={"model": "unknown", "prompt": "x"})
        assert nobody.status_code == 404, "no route is for it"
        bad = await client.post(url, content=b"no JSON")
        assert bad.status_code == 400
        assert bad.text.startswith("inference error: BadRequest - failed to parse request body")
        for model in ("base-a\nx-evil: 1", "m" * 70_000):
            unfit = await client.post(url, json={"model": model, "prompt": "x"})
            assert (unfit.status_code, "model has " in unfit.text) == (400, True), "no fault of the gateway's"


@pytest.mark.parametrize("gateway", [SELECTING], indirect=True)
async def test_a_selector_sends_each_request_to_the_idler_model(gateway: Gateway) -> None:
    """Streams that are still running keep their model busy: the next one goes to the other, and so on by turns."""
    url = f"http://{gateway.listen}/v1/completions"
    body = {"prompt": "x " * 2000, "model": "auto", "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client, AsyncExitStack() as streams:
        chosen = []
        for _ in range(4):
            answer = await streams.enter_async_context(client.stream("POST", url, json=body))
            assert answer.status_code == 200
            pool = answer.headers["x-inference-pod"].removeprefix("pod-")
            assert answer.headers["x-chosen"] == MODELS[pool], "told to the client, and served by its pool"
            chosen.append(pool)
        assert sorted(chosen) == ["a", "a", "b", "b"] and chosen[0] != chosen[1], "by turns"
        named = await client.post(url, json={**body, "model": "base-b", "max_tokens": 1, "stream": False})
        assert (named.json()["model"], named.headers["x-inference-pod"]) == ("base-b", "pod-b")
        nobody = await client.post(url, json={**body, "model": "auto/none"})
        assert (nobody.status_code, "no models available after filtering" in nobody.text) == (429, True)


@pytest.mark.parametrize("gateway", [SELECTING], indirect=True)
async def test_a_session_stays_with_its_model_however_busy_that_is(gateway: Gateway) -> None:
    url = f"http://{gateway.listen}/v1/completions"
    short = {"prompt": "x", "model": "auto", "max_tokens": 1}
    long = {**short, "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client, AsyncExitStack() as streams:
        first = await client.post(url, json=short)
        session, pod = {"x-session-id": first.headers["x-session-id"]}, first.headers["x-inference-pod"]
        for _ in range(3):
            stream = await streams.enter_async_context(client.stream("POST", url, json=long, headers=session))
            assert (stream.status_code, stream.headers["x-inference-pod"]) == (200, pod)
            assert stream.headers["x-session-id"] == session["x-session-id"]
        whole = await client.post(url, json=short, headers=session)
        assert (whole.headers["x-inference-pod"], whole.json()["model"]) == (pod, whole.headers["x-chosen"])
        other = await client.post(url, json=short)
        assert other.headers["x-inference-pod"] != pod, "who has no session goes where it is idle"
        assert other.headers["x-session-id"] != session["x-session-id"]
