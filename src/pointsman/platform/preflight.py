"""Before anything is changed: can this platform be installed on this cluster? Pure: facts in, findings out.

Each check is a function that returns a finding; the list below is their order, and says why each is there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pointsman.core.versions import find_version
from pointsman.platform.observed import Observed, foreign
from pointsman.platform.providers import NodeFacts, Provider
from pointsman.platform.pullsecret import DockerConfig
from pointsman.platform.steps import Wanted, too_large

Verdict = Literal["ok", "note", "fail"]
OLDEST_KUBERNETES = "1.28.0"
OLDEST_HELM = "3.17.0"


@dataclass(frozen=True)
class PreflightFacts:
    """What was found out about the cluster and this machine."""

    kubernetes: str
    helm: str
    allowed: bool
    provider: Provider
    nodes: NodeFacts
    pull_secret: DockerConfig
    minimum: str = OLDEST_KUBERNETES
    components: Sequence[tuple[Wanted, Observed]] = field(default=(), repr=False)


@dataclass(frozen=True)
class PreflightFinding:
    """One answer: what was looked at, how it is, and what to do if it is not well."""

    check: str
    verdict: Verdict
    message: str

    def __str__(self) -> str:
        return f"{self.verdict:5} {self.check}: {self.message}"


def preflight(facts: PreflightFacts) -> list[PreflightFinding]:
    """Return what every check says, in their order."""
    return [finding for check in CHECKS for finding in check(facts)]


def _kubernetes(facts: PreflightFacts) -> list[PreflightFinding]:
    found, least = find_version(facts.kubernetes), find_version(facts.minimum)
    if found is None or least is None or found < least:
        return [PreflightFinding("kubernetes", "fail", f"{facts.kubernetes} is older than {facts.minimum}: upgrade it")]
    return [PreflightFinding("kubernetes", "ok", facts.kubernetes)]


def _helm(facts: PreflightFacts) -> list[PreflightFinding]:
    found, least = find_version(facts.helm), find_version(OLDEST_HELM)
    if facts.helm.startswith("embedded"):
        return [PreflightFinding("helm", "ok", facts.helm)]
    if found is None or least is None or found < least:
        return [PreflightFinding("helm", "fail", f"{facts.helm or 'none'} is older than {OLDEST_HELM}: upgrade it")]
    return [PreflightFinding("helm", "ok", facts.helm)]


def _rights(facts: PreflightFacts) -> list[PreflightFinding]:
    if facts.allowed:
        return [PreflightFinding("rights", "ok", "this account may do everything")]
    return [PreflightFinding("rights", "fail", "this account is no administrator: operators bring rights of their own")]


def _provider(facts: PreflightFacts) -> list[PreflightFinding]:
    name = facts.provider.name
    if name == "other":
        return [PreflightFinding("provider", "note", "neither AKS nor CoreWeave by its nodes: set `provider` if it is")]
    return [PreflightFinding("provider", "ok", f"{name}; monitoring by {facts.provider.monitoring}")]


def _gpus(facts: PreflightFacts) -> list[PreflightFinding]:
    nodes = facts.nodes
    if not nodes.gpus:
        return [
            PreflightFinding("gpus", "note", f"none on {nodes.total} nodes: models that need one will stay pending")
        ]
    return [PreflightFinding("gpus", "ok", f"{nodes.gpus} on {nodes.gpu_nodes} of {nodes.total} nodes")]


def _instances(facts: PreflightFacts) -> list[PreflightFinding]:
    if not facts.provider.instances:
        return []
    known = facts.nodes.known_instances(facts.provider)
    if known:
        return [PreflightFinding("instances", "ok", ", ".join(known))]
    has = ", ".join(facts.nodes.instances) or "unnamed machines"
    return [PreflightFinding("instances", "note", f"{has}: none of {', '.join(facts.provider.instances)}")]


def _pull_secret(facts: PreflightFacts) -> list[PreflightFinding]:
    secret = facts.pull_secret
    found = [PreflightFinding("pull secret", "ok", f"for {', '.join(secret.registries)}")] if secret.registries else []
    found += [
        PreflightFinding("pull secret", "note", f"nothing for {each}: log in there, unless it is public")
        for each in secret.missing
    ]
    return found


def _namespaces(facts: PreflightFacts) -> list[PreflightFinding]:
    return [
        PreflightFinding("namespace", "fail", f"{name} is being deleted: wait for it, or look what holds it")
        for _, observed in facts.components
        for name, live in observed.namespaces.items()
        if "deletionTimestamp" in live["metadata"]
    ]


def _foreign(facts: PreflightFacts) -> list[PreflightFinding]:
    return [
        PreflightFinding(wanted.name, "fail", f"{each}: remove it, or write `use: existing`")
        for wanted, observed in facts.components
        for each in foreign(wanted, observed)
    ]


def _sizes(facts: PreflightFacts) -> list[PreflightFinding]:
    return [PreflightFinding(wanted.name, "fail", each) for wanted, _ in facts.components for each in too_large(wanted)]


CHECKS: tuple[Callable[[PreflightFacts], list[PreflightFinding]], ...] = (
    _kubernetes,  # operators say which they need, and fail late and oddly on an older one
    _helm,  # older ones lose large definitions
    _rights,  # a run that stops half way for want of a right is worse than none
    _provider,  # the load balancer and monitoring differ
    _gpus,  # no reason not to install, but better known now
    _instances,  # the same
    _pull_secret,  # without it Pods wait for images that nobody gives them
    _namespaces,  # nothing can be made in one that goes
    _foreign,  # two operators over one definition fight
    _sizes,  # the API server would refuse them half way
)
