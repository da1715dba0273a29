"""What asking a picker costs: Envoy alone, with our picker (plaintext and TLS), with a grpcio picker, in one run.

All gateways are up during the whole run and take turns, so that a slow minute of the machine hits each of them; every
figure is the median of the rounds. All pickers make the same pick but for the last row, which is what ours does by
default. Envoy has one worker: where Envoy is the limit, its column of cores is near one and
the picker's is not. The model servers are a second Envoy that answers from memory.

    python -m bench gateway [--seconds 3] [--rounds 3] [--connections 64] [--sizes 1024 16384]
"""

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import wrk
from bench.parts import Part, wait_for
from bench.yardstick import smallest
from pointsman.core.certificates import self_signed
from pointsman.core.documents import to_yaml
from pointsman.local import envoy
from pointsman.local.http import get
from pointsman.local.ports import any_free
from pointsman.local.programs import picker_endpoints
from pointsman.render.envoy.addresses import Address, socket_address
from pointsman.render.envoy.bootstrap import bootstrap
from pointsman.render.envoy.clusters import endpoints
from pointsman.render.envoy.filters import EXT_PROC, router
from pointsman.render.envoy.gateway import FailureMode, FilePool, Gateway
from pointsman.render.envoy.listeners import listener, routes

REPLICAS = 4
ANSWER = '{"choices": []}'
_METRICS = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0\n"
# What the grpcio picker does, and no more: least in flight, ties at random, one more endpoint for a retry; bodies are
# passed on unread, nobody is scraped.
SAME_PICK = """\
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: active-request-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 2}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}]
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
dataLayer: {injectDefaults: false}
"""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to be a gateway."""

    name: str
    picker: str = ""
    tls: bool = False
    shows_answer: bool = True
    """Whether the response body passes through the picker too."""
    failure_mode: FailureMode = "FailClose"
    config: str = SAME_PICK
    """The picker's configuration; empty is its own default, with prefix cache and metrics."""
    python: str = sys.executable
    """What runs our picker."""
    smallest: bool = False
    """Whether Envoy does no more than it must, instead of what our gateway does."""


VARIANTS = (
    Variant(name="Envoy alone"),
    Variant(name="Pointsman", picker="ours"),
    Variant(name="Pointsman, TLS", picker="ours", tls=True),
    Variant(name="grpcio", picker="grpcio"),
    Variant(name="Pointsman, request only", picker="ours", shows_answer=False),
    Variant(name="grpcio, request only", picker="grpcio", shows_answer=False),
    Variant(name="Pointsman, FailOpen", picker="ours", failure_mode="FailOpen"),
    Variant(name="Pointsman, default profile", picker="ours", config=""),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """The figures of one variant with one size of body."""

    rate: float
    p50: float
    p99: float
    picker: float
    """CPU microseconds per request."""
    envoy: float
    picker_cores: float
    envoy_cores: float
    errors: int


class Stage:
    """Everything that runs during the comparison."""

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int = REPLICAS,
        page: str = _METRICS,
        answer: str = ANSWER,
        first: Sequence[str] = (),
    ) -> None:
        self._first = first  # what every command begins with
        self._folder = folder
        self._page = page
        self._answer = answer
        self._envoy = str(envoy.find(os.environ, say=print))
        self.parts: list[Part] = []
        self.servers = [here() for _ in range(replicas)]
        (folder / "tls").mkdir()
        certificate, key = self_signed()
        (folder / "tls/tls.crt").write_bytes(certificate)
        (folder / "tls/tls.key").write_bytes(key)
        rows = [(f"s{n}", address) for n, address in enumerate(self.servers)]
        (folder / "endpoints.yaml").write_text(to_yaml(picker_endpoints(rows)))
        (folder / "eds.json").write_text(json.dumps(endpoints(self.servers, version="1")))
        self.start_envoy("model-servers", self._model_servers())

    def start(self, name: str, command: Sequence[str]) -> Part:
        part = Part([*self._first, *command], log=self._folder / f"{name}.log")
        self.parts.append(part)
        return part

    def start_envoy(self, name: str, document: dict[str, Any]) -> Part:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(document))
        flags = ["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]
        return self.start(name, [self._envoy, "--config-path", str(path), *flags])

    def _model_servers(self) -> dict[str, Any]:
        gateway = Gateway(listen=here(), admin=here(), pickers=(), pool=FilePool(""))
        paths = [
            {
                "match": {"prefix": "/metrics"},
                "direct_response": {"status": 200, "body": {"inline_string": self._page}},
            },
            {
                "match": {"prefix": "/"},
                "direct_response": {"status": 200, "body": {"inline_string": self._answer}},
            },
        ]
        listeners = [
            listener(
                gateway,
                name=f"server-{number}",
                where={"address": socket_address(address)},
                routes=routes("all", paths=paths) | {"max_direct_response_body_size_bytes": 1 << 20},
                filters=[router()],
            )
            for number, address in enumerate(self.servers)
        ]
        return {"static_resources": {"listeners": listeners}}

    def gateway(self, variant: Variant) -> "tuple[str, Part, Part | None]":
        """Start one variant; return its URL, its Envoy and its picker."""
        address, grpc, metrics = here(), here(), here()
        name = variant.name.replace(" ", "-").replace(",", "").lower()
        picker = None
        if variant.picker:
            command = self._ours(grpc, metrics, variant) if variant.picker == "ours" else self._grpcio(grpc, variant)
            picker = self.start(f"{name}-picker", command)
        proxy = self.start_envoy(name, self._proxy(variant, listen=address, grpc=grpc))

        async def answers() -> bool:
            answer = await get(address, "/v1/models")
            return answer is not None and answer.status == 200

        wait_for(variant.name, answers, parts=self.parts)
        return f"http://{address}/", proxy, picker

    def _proxy(self, variant: Variant, *, listen: Address, grpc: Address) -> dict[str, Any]:
        if variant.smallest:
            return smallest(listen, picker=grpc if variant.picker else None, servers=self.servers)
        rendered = bootstrap(
            Gateway(
                listen=listen,
                admin=here(),
                pickers=(grpc,),
                picker_tls=variant.tls,
                failure_mode=variant.failure_mode,
                pool=FilePool(str(self._folder / "eds.json")),
            )
        )
        return adapt(rendered, variant=variant)

    def _ours(self, grpc: Address, metrics: Address, variant: Variant) -> list[str]:
        return [
            *(variant.python, "-m", "pointsman", "epp", "--host", "127.0.0.1", "--grpc-port", str(grpc.port)),
            *("--grpc-health-port", str(here().port), "--metrics-port", str(metrics.port)),
            *("--endpoints-file", str(self._folder / "endpoints.yaml")),
            *(("--cert-path", str(self._folder / "tls")) if variant.tls else ("--secure-serving=false",)),
            *(("--config-text", variant.config) if variant.config else ()),
        ]

    def _grpcio(self, grpc: Address, variant: Variant) -> list[str]:
        listed = ",".join(str(address) for address in self.servers)
        command = [sys.executable, "-m", "bench.grpcio_picker", "--port", str(grpc.port), "--endpoints", listed]
        return [*command, "--cert-path", str(self._folder / "tls")] if variant.tls else command

    def end(self) -> None:
        for part in reversed(self.parts):
            part.end()


_given_out: set[int] = set()


def here() -> Address:
    """Return an address that was not returned before."""
    port = any_free(given_out=_given_out)
    _given_out.add(port)
    return Address("127.0.0.1", port)


def adapt(document: dict[str, Any], *, variant: Variant) -> dict[str, Any]:
    """Return the gateway's document as the variant needs it."""
    document = copy.deepcopy(document)
    resources = document["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    if not variant.picker:
        manager["http_filters"] = manager["http_filters"][-1:]
        resources["clusters"] = [c for c in resources["clusters"] if c["name"] != "pickers"]
        del resources["clusters"][0]["load_balancing_policy"]
    elif not variant.shows_answer:
        (asks,) = (each for each in manager["http_filters"] if each["name"] == EXT_PROC)
        asks["typed_config"]["processing_mode"] |= {"response_body_mode": "NONE", "response_trailer_mode": "SKIP"}
    return document


def measure(
    url: str,
    *,
    proxy: Part,
    picker: Part | None,
    script: Path,
    seconds: float,
    connections: int,
    first: Sequence[str] = (),
) -> Row:
    before = proxy.cpu(), picker.cpu() if picker else 0.0
    load = wrk.run(url, script=script, seconds=seconds, connections=connections, first=first)
    spent = proxy.cpu() - before[0], (picker.cpu() if picker else 0.0) - before[1]
    if not load.requests:
        raise SystemExit(f"bench: no request to {url} was answered within {seconds:g} s: is the machine that busy?")
    return Row(
        rate=load.requests / load.seconds,
        p50=load.p50,
        p99=load.p99,
        envoy=spent[0] / load.requests * 1e6,
        picker=spent[1] / load.requests * 1e6,
        envoy_cores=spent[0] / load.seconds,
        picker_cores=spent[1] / load.seconds,
        errors=load.errors,
    )


def median(rows: Sequence[Row]) -> Row:
    def middle(field: str) -> float:
        return float(statistics.median(getattr(row, field) for row in rows))

    names = ("rate", "p50", "p99", "picker", "envoy", "picker_cores", "envoy_cores")
    return Row(**{name: middle(name) for name in names}, errors=sum(row.errors for row in rows))


def table(size: int, rows: dict[str, Row]) -> str:
    head = "| gateway | requests/s | p50 ms | p99 ms | picker µs/req | Envoy µs/req | cores picker / Envoy | errors |"
    lines = [f"Bodies of {size} bytes:", "", head, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name, row in rows.items():
        picker, cores = ("–", "–") if not row.picker else (f"{row.picker:.0f}", f"{row.picker_cores:.2f}")
        lines.append(
            f"| {name} | {row.rate:.0f} | {row.p50:.1f} | {row.p99:.1f} | {picker} | {row.envoy:.0f} "
            f"| {cores} / {row.envoy_cores:.2f} | {row.errors} |"
        )
    return "\n".join(lines)


def ratios(rows: dict[str, Row]) -> str:
    ours, tls, theirs, alone = (rows[v] for v in ("Pointsman", "Pointsman, TLS", "grpcio", "Envoy alone"))
    ours_request, theirs_request = rows["Pointsman, request only"], rows["grpcio, request only"]
    cpu = theirs.picker / ours.picker, theirs.picker / tls.picker, theirs_request.picker / ours_request.picker
    rate = ours.rate / theirs.rate, ours.rate / alone.rate
    share = ours.picker_cores / ours.envoy_cores, theirs.picker_cores / theirs.envoy_cores
    lines = (
        f"- Picker CPU per request: 1/{cpu[0]:.1f} of grpcio's (TLS 1/{cpu[1]:.1f}; request only 1/{cpu[2]:.1f})",
        f"- Requests per second: {rate[0]:.1f}× grpcio's, {rate[1]:.2f}× those of Envoy alone",
        f"- The picker used {share[0]:.2f} of what Envoy used (grpcio: {share[1]:.2f})",
    )
    return "\n".join(lines)


def options(text: str | None, *, seconds: float, sizes: Sequence[int] = (1024, 16384)) -> argparse.ArgumentParser:
    """Return the flags that every comparison of gateways has."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(sizes))
    return parser


def main() -> None:
    args = options(__doc__, seconds=3.0).parse_args()
    wrk.require()
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as name:
        stage = Stage(Path(name))
        try:
            compare(stage, args=args, folder=Path(name))
        finally:
            stage.end()


def compare(stage: Stage, *, args: argparse.Namespace, folder: Path) -> None:
    gateways = {variant.name: stage.gateway(variant) for variant in VARIANTS}
    print(f"{args.connections} connections, {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores\n")
    for size in args.sizes:
        script = wrk.write_script(folder, size=size)
        rows: dict[str, list[Row]] = {name: [] for name in gateways}
        for turn in range(args.rounds + 1):
            for name, (url, proxy, picker) in gateways.items():
                seconds = args.seconds if turn else 1.0  # the first turn only warms up
                row = measure(
                    url, proxy=proxy, picker=picker, script=script, seconds=seconds, connections=args.connections
                )
                if turn:
                    rows[name].append(row)
        medians = {name: median(measured) for name, measured in rows.items()}
        print(table(size, medians), ratios(medians), sep="\n\n", end="\n\n", flush=True)


if __name__ == "__main__":
    main()
