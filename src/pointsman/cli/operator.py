"""`pointsman operator`: reconcile our custom resources on a cluster, with controller-runtime's flags."""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pointsman.cli.policy import PolicyOptions
from pointsman.cli.serving import ServingOptions
from pointsman.core import loop
from pointsman.core.errors import UserError
from pointsman.core.logs import configure_logs


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperatorOptions(PolicyOptions, ServingOptions):
    """Everything that `pointsman operator` can be told."""

    leader_elect: bool = False
    "Of several replicas let one work; the others keep their caches warm."
    watch_namespaces: str = ""
    "Namespaces with commas between; empty for all. Roles in these namespaces are then enough."
    metrics_bind_address: str = ":8080"
    "Where /metrics is served; 0 for nowhere."
    metrics_endpoint_auth: bool = True
    "Serve metrics only to tokens that the API server knows and lets read them."
    health_probe_bind_address: str = ":8081"
    "Where /healthz and /readyz are served; 0 for nowhere."
    own_inference_crds: bool = False
    "Install and keep the inference definitions (config/crd/inference); needs the rights in config/inference-crds."
    llm_inference_services: bool = False
    "Look after LLMInferenceServices too, where KServe is not (config/crd/serving); needs the rights in config/llm."
    kubeconfig: Path | None = None
    "Cluster to work on; else the Pod's account, KUBECONFIG, or the home file."
    verbosity: Annotated[int, Parameter(name=["--v", "-v"])] = 2
    "Log verbosity: 2 default, 3 verbose, 4 debug, 5 trace."
    zap_encoder: Literal["json", "console"] = "console"
    "Log format."


def operator(options: OperatorOptions | None = None) -> None:
    """Reconcile SimulatorDeployments and SchedulerInstalls: make clusters hold what they ask for, and say so."""
    from pointsman.kube import connect
    from pointsman.kube.guard import Guard
    from pointsman.operator.process import OperatorProcess, ProcessPlan, split_address

    options = options or OperatorOptions()
    configure_logs(verbosity=options.verbosity, encoding=options.zap_encoder)
    metrics, health = (
        "" if address in {"", "0"} else address
        for address in (options.metrics_bind_address, options.health_probe_bind_address)
    )
    for address in filter(None, (metrics, health)):
        split_address(address)
    if metrics and metrics == health and not metrics.endswith(":0"):
        raise UserError("--metrics-bind-address and --health-probe-bind-address are the same: change one of them")
    namespaces = _namespaces(options.watch_namespaces)
    plan = ProcessPlan(
        namespaces=namespaces,
        lead=options.leader_elect,
        metrics_address=metrics,
        health_address=health,
        policy=options.to_policy(),
        own_inference_crds=options.own_inference_crds,
        llm=options.to_settings() if options.llm_inference_services else None,
    )

    async def main() -> None:
        async with connect(options.kubeconfig) as client, connect(options.kubeconfig, anonymous=True) as nobody:
            guard = Guard(nobody, clock=time.monotonic) if options.metrics_endpoint_auth else None
            await OperatorProcess(client, plan, guard=guard).serve()

    loop.serve(main())


def _namespaces(text: str) -> tuple[str, ...]:
    """Return the names in the text, each once; a wrong one would be watched for ever and never be there."""
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise UserError(
                f"--watch-namespaces: {name!r} is no namespace: write names of small letters, digits and hyphens, "
                "with commas between"
            )
    return tuple(names)
