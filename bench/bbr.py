"""What the body-based router costs beside Envoy: CPU per request as a share of Envoy's own in the same run.

Envoy asks the router about every request, in full duplex and with no response shown to it, and chooses the route by the
header that comes back; it writes no access log, has one worker, and 8 model servers that answer from memory. The
model stands before the prompt, where the answer is given as soon as it has been seen, and behind it, where all of the
body must be. Both processes are measured by the scheduler's account, so that others on the machine matter little.

    python -m bench bbr [--seconds 4] [--rounds 3] [--connections 64] [--sizes 1024 16384]
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import wrk
from bench.gateway import Stage, here, measure, median, options
from bench.parts import Part, wait_for
from pointsman.local.http import get
from pointsman.render.envoy import clusters, filters, listeners
from pointsman.render.envoy.addresses import Address, socket_address
from pointsman.render.envoy.gateway import FilePool, Gateway, PickerPulse
from pointsman.render.envoy.pools import MODEL_HEADER, ROUTER, ask_router

_HEAD = "| body | model | requests/s | router µs/req | Envoy µs/req | router ÷ Envoy | errors |"


def document(gateway: Gateway, *, router: Address) -> dict[str, Any]:
    """Return Envoy's configuration: ask the router, then route by its header."""
    (pool,) = clusters.model_servers(gateway, fallback="round_robin")
    del pool["load_balancing_policy"]  # nobody picks
    asked = clusters.asked(ROUTER, (router,), tls=False, pulse=PickerPulse())
    named = {"prefix": "/", "headers": [{"name": MODEL_HEADER, "string_match": {"exact": "bench"}}]}
    routes = [listeners.to_model_servers(gateway, match=match) for match in (named, {"prefix": "/v1/models"})]
    ask = {"name": "bbr", "typed_config": ask_router({"cluster_name": ROUTER})}
    public = listeners.listener(
        gateway,
        name="gateway",
        where={"address": socket_address(gateway.listen)},
        routes=listeners.routes("gateway", paths=routes),
        filters=[ask, filters.router()],
    )
    del public["filter_chains"][0]["filters"][0]["typed_config"]["access_log"]
    return {
        "node": {"id": "bench", "cluster": "bench"},
        "admin": {"address": socket_address(gateway.admin)},
        "static_resources": {"listeners": [public], "clusters": [pool, asked]},
    }


def start(stage: Stage, *, folder: Path) -> tuple[str, Part, Part]:
    """Start the router and its Envoy; return the URL, Envoy and the router."""
    address, grpc = here(), here()
    command = [
        *(sys.executable, "-m", "pointsman", "bbr", "--host", "127.0.0.1", "--secure-serving=false"),
        *("--grpc-port", str(grpc.port), "--grpc-health-port", str(here().port), "--metrics-port", str(here().port)),
    ]
    router = stage.start("router", command)
    gateway = Gateway(listen=address, admin=here(), pickers=(), pool=FilePool(str(folder / "eds.json")))
    proxy = stage.start_envoy("gateway", document(gateway, router=grpc))

    async def answers() -> bool:
        answer = await get(address, "/v1/models")
        return answer is not None and answer.status == 200

    wait_for("the gateway", answers, parts=stage.parts)
    return f"http://{address}/", proxy, router


def main() -> None:
    args = options(__doc__, seconds=4.0).parse_args()
    wrk.require()
    print(f"{args.connections} connections, {args.rounds} rounds of {args.seconds:g} s, {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as name:
        stage = Stage(Path(name), replicas=8)
        try:
            compare(stage, folder=Path(name), args=args)
        finally:
            stage.end()


def compare(stage: Stage, *, folder: Path, args: argparse.Namespace) -> None:
    url, proxy, router = start(stage, folder=folder)
    print(_HEAD, "|--:|---|--:|--:|--:|--:|--:|", sep="\n")
    for size in args.sizes:
        for last in (False, True):
            script = wrk.write_script(folder, size=size, model_last=last)
            load = {"proxy": proxy, "picker": router, "script": script, "connections": args.connections}
            measure(url, seconds=1.0, **load)  # warms up
            row = median([measure(url, seconds=args.seconds, **load) for _ in range(args.rounds)])
            print(
                f"| {size} | {'last' if last else 'first'} | {row.rate:.0f} | {row.picker:.0f} | {row.envoy:.0f} "
                f"| {row.picker / row.envoy:.2f} | {row.errors} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
