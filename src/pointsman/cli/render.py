"""`pointsman render` and `pointsman diff`: what a resource becomes on a cluster, printed or compared with one."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from pointsman.api import SCHEDULER_INSTALL, SimulatorDeployment, parse_any, parse_install, read
from pointsman.cli.policy import PolicyOptions
from pointsman.cli.serving import ServingOptions
from pointsman.core.documents import read_yaml, to_yaml
from pointsman.core.errors import PointsmanError, UserError, find_ours
from pointsman.core.values import nearest
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy
from pointsman.render.manifests.stack import Stack, stack
from pointsman.render.scheduler.install import Installed, Surroundings, install
from pointsman.render.serving.service import SHORTHAND, LLMStack, ServingCluster, llm_stack

_KINDS = ("SimulatorDeployment", "SchedulerInstall", "LLMInferenceService")
_CHOOSE = f": choose from {', '.join(_KINDS)}"
File = Annotated[Path, Parameter(name=["--file", "-f"])]
ABILITIES: Mapping[str, Mapping[str, Any]] = {
    "inference-pool": {"inference_pool": True},
    "gateway-api": {"gateway_api": True, "reference_grant": True},
    "istio": {
        "istio": True,
        "envoy_filter": True,
        "gateway_classes": frozenset({"istio"}),
        "istio_classes": frozenset({"istio"}),
    },
    "openshift": {"openshift": True},
    "cert-manager": {"cert_manager": True},
}


def render(
    *,
    file: File,
    with_: Annotated[str, Parameter(name="--with")] = "",
    options: PolicyOptions | None = None,
    serving: ServingOptions | None = None,
) -> int:
    """Print the objects that a cluster gets for one of our resources or an LLMInferenceService, as YAML.

    The certificate of a service is not among them: the operator makes it.

    Parameters
    ----------
    file
        File with the resource.
    with_
        What the cluster has, with commas between: inference-pool, gateway-api, istio, openshift, cert-manager.
    options
        The flags of the operator there that say how far a resource may go.
    serving
        The flags of the operator there about LLMInferenceServices.

    """
    made = _rendered(file, facts(with_), _policy(options), serving or ServingOptions())
    sys.stdout.write("---\n".join(to_yaml(document) for document in made.objects))
    for notice in made.notices:
        if not notice.holds or notice.reason == SHORTHAND:
            sys.stderr.write(f"note: {notice.message}\n")
    for breach in made.breaches:
        sys.stderr.write(f"refused: {breach.message}\n")
    return 0


def diff(*, file: File, kubeconfig: Path | None = None, options: PolicyOptions | None = None) -> int:
    """Print what would change on the cluster; exit 0 when nothing, 1 when something, 2 on an error.

    Parameters
    ----------
    file
        File with the SimulatorDeployment.
    kubeconfig
        Cluster to compare with; else KUBECONFIG or the home file, as kubectl takes them.
    options
        The flags of the operator there that say how far a resource may go.

    """
    try:
        differences = asyncio.run(_compare(read(file), kubeconfig=kubeconfig, policy=_policy(options)))
    except (PointsmanError, BaseExceptionGroup) as error:
        ours = find_ours(error)
        if ours is None:
            raise
        raise UserError(str(ours)) from None  # 1 would mean a difference
    sys.stdout.write("".join(differences))
    return 1 if differences else 0


def facts(text: str) -> Facts:
    """Return a cluster with these abilities; raises UserError for one that nobody knows."""
    found = Facts()
    for name in filter(None, (word.strip() for word in text.split(","))):
        if name not in ABILITIES:
            hint = nearest(name, ABILITIES) or f": choose from {', '.join(ABILITIES)}"
            raise UserError(f"--with {name} is nothing that a cluster has{hint}")
        found = replace(found, **ABILITIES[name])
    return found


def _rendered(file: Path, known: Facts, policy: Policy, serving: ServingOptions) -> Stack | Installed | LLMStack:
    document = read_yaml(file)
    if isinstance(document, Mapping) and document.get("kind") == SCHEDULER_INSTALL.kind:
        return install(parse_install(document, source=str(file)), Surroundings(facts=known), policy)
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if isinstance(kind, str) and kind not in _KINDS:
        raise UserError(f"{file}: kind: {kind[:80]!r} is rendered by nobody{nearest(kind, _KINDS) or _CHOOSE}")
    resource = parse_any(document, source=str(file))
    if isinstance(resource, SimulatorDeployment):
        return stack(resource, known, policy)
    cluster = ServingCluster(facts=known, policy=policy, settings=serving.to_settings())
    return llm_stack(resource, document, cluster, configs={})


def _policy(options: PolicyOptions | None) -> Policy:
    return (options or PolicyOptions()).to_policy()


async def _compare(resource: SimulatorDeployment, *, kubeconfig: Path | None, policy: Policy) -> list[str]:
    from pointsman.kube import connect
    from pointsman.operator.compare import compare

    async with connect(kubeconfig) as client:
        return await compare(client, resource, policy=policy)
