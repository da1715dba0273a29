"""What a cluster has of one component, and what that means: whose it is, how it is, what to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pointsman.core.kinds import Object
from pointsman.core.versions import find_version
from pointsman.crds.marks import installer
from pointsman.kube.conditions import truth_of
from pointsman.platform.marks import component_of
from pointsman.platform.releases import Release
from pointsman.platform.steps import Wanted
from pointsman.platform.webhooks import WebhookState

_HELM_NAME, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
HEAD = ("COMPONENT", "VERSION", "INSTALLED BY", "HEALTH", "UPGRADE")


@dataclass(frozen=True)
class Observed:
    """What is there, for one component."""

    release: Release | None = None
    definitions: Mapping[str, Object] = field(default_factory=dict, repr=False)
    deployments: Sequence[Object] = field(default=(), repr=False)
    """Every Deployment of the cluster that has a name of the bundle's, or is in the component's namespace."""
    namespaces: Mapping[str, Object] = field(default_factory=dict, repr=False)
    customs: Sequence[Object] = field(default=(), repr=False)
    """The resources by which the operator is told what to run."""
    pods: Sequence[Object] = field(default=(), repr=False)
    """Those in the component's namespace."""
    beside: Sequence[Object] = field(default=(), repr=False)
    """What comes before the release and after it."""
    webhooks: Sequence[WebhookState] = ()
    loops: Sequence[WebhookState] = ()


@dataclass(frozen=True)
class ComponentStatus:
    """One line of the table, and what needs more than a line."""

    name: str
    version: str
    by: str
    problems: tuple[str, ...]
    upgrade: str = ""

    @property
    def installed(self) -> bool:
        return self.by not in {"", "–"}

    def cells(self) -> tuple[str, ...]:
        """Return the columns."""
        health = self.problems[0] if self.problems else "healthy" if self.installed else "–"
        return (self.name, self.version or "–", self.by or "–", health, self.upgrade or "–")


def foreign(wanted: Wanted, found: Observed) -> list[str]:
    """Return what of the same operator somebody else has installed, and who that is."""
    told = []
    mine = {each["metadata"]["name"] for each in wanted.own_definitions}
    for name, live in sorted(found.definitions.items()):
        if name in mine and not component_of(live):
            told.append(f"definition {name} belongs to {installer(live) or 'somebody else'}")
    if found.release is not None and not found.release.ours:
        told.append(f"Helm release {found.release.namespace}/{found.release.name} is not ours")
    for live in found.deployments:
        where = live["metadata"]
        if where["name"] in wanted.deployments and not is_of_release(live, wanted):
            told.append(
                f"Deployment {where['namespace']}/{where['name']} belongs to {installer(live) or 'somebody else'}"
            )
    return told


def unready(wanted: Wanted, found: Observed) -> list[str]:
    """Return why the release does not run as it should."""
    mine = [each for each in found.deployments if is_of_release(each, wanted)]
    if not mine and wanted.deployments:
        return ["its Deployments are not there"]
    problems = [problem for each in mine if (problem := _deployment(each))]
    return [*problems, *(told for each in found.pods if (told := _pod(each)))] if problems else []


def component_status(wanted: Wanted, found: Observed, *, noted: str = "") -> ComponentStatus:
    """Return one line: what is installed, by whom, how it is, and what it could be upgraded to."""
    strange = foreign(wanted, found)
    marked = any(component_of(each) == wanted.name for each in (*found.definitions.values(), *found.beside))
    ours = marked or (found.release is not None and found.release.ours)
    if not ours and strange:
        return ComponentStatus(wanted.name, "", _whose(strange), tuple(strange))
    if not ours:
        return ComponentStatus(wanted.name, "", "", ())
    version = (found.release.version if found.release else "") or noted
    problems = [*_release_problems(wanted, found), *strange]
    return ComponentStatus(
        wanted.name, version, "pointsman", tuple(problems), _upgrade(version, wanted.version) if wanted.installs else ""
    )


def table(rows: Sequence[ComponentStatus]) -> str:
    """Return the table and, below it, what did not fit in."""
    cells = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    notes = [f"{row.name}: {problem}" for row in rows for problem in row.problems[1:]]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _release_problems(wanted: Wanted, found: Observed) -> list[str]:
    told: list[str] = []
    if wanted.installs and found.release is None:
        told.append("there is no Helm release: deploy it again")
    elif found.release is not None and found.release.status != "deployed":
        told.append(f"its Helm release is {found.release.status}: deploy it again")
    told += [f"namespace {name} is being deleted" for name, live in found.namespaces.items() if _going(live)]
    told += [
        f"definition {name} is not served"
        for name, live in found.definitions.items()
        if component_of(live) and truth_of(live, "Established") != "True"
    ]
    told += unready(wanted, found) if found.release is not None else []
    told += [problem for each in found.customs if (problem := _custom(each))]
    told += [f"{each} is written to in a loop: deploy it again to end that" for each in found.loops]
    told += [
        f"{each} lacks the annotation that keeps the operator from looping: deploy it again"
        for each in found.webhooks
        if not each.ignored and each not in found.loops
    ]
    return told


def _whose(strange: Sequence[str]) -> str:
    return strange[0].partition(" belongs to ")[2] or "somebody else"


def _upgrade(installed: str, wanted: str) -> str:
    one, other = find_version(installed), find_version(wanted)
    if one is None or other is None or not one < other:
        return ""
    return wanted


def is_of_release(live: Object, wanted: Wanted) -> bool:
    """Say whether Helm has marked an object as the component's release's."""
    annotations = live["metadata"].get("annotations") or {}
    return (annotations.get(_HELM_NAME), annotations.get(_HELM_NAMESPACE)) == (wanted.release, wanted.namespace)


def _deployment(live: Object) -> str:
    """Return why a Deployment is not as it should be; nothing when it is."""
    metadata, status = live["metadata"], live.get("status") or {}
    asked = (live.get("spec") or {}).get("replicas", 1)
    if status.get("observedGeneration", 0) < metadata.get("generation", 1):
        return f"Deployment {metadata['name']} has not been looked at yet"
    ready, updated = status.get("availableReplicas", 0), status.get("updatedReplicas", 0)
    if ready >= asked and updated >= asked:
        return ""
    failing = [
        str(each.get("message"))
        for each in status.get("conditions") or []
        if each.get("type") == "ReplicaFailure" or (each.get("type") == "Progressing" and each.get("status") == "False")
    ]
    return "; ".join([f"Deployment {metadata['name']} has {min(ready, updated)} of {asked} Pods ready", *failing])


def _pod(live: Object) -> str:
    """Return why a Pod does not run, in the words of who knows it: the scheduler, or the kubelet."""
    status = live.get("status") or {}
    for each in status.get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"Pod {live['metadata']['name']}: {each.get('message')}"
    for each in status.get("containerStatuses") or []:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return f"Pod {live['metadata']['name']}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _custom(live: Object) -> str:
    """Return what a resource says is wrong with it."""
    for each in (live.get("status") or {}).get("conditions") or []:
        if each.get("type") in {"Ready", "Available"} and each.get("status") == "False":
            return f"{live['kind']} {live['metadata']['name']}: {each.get('message') or each.get('reason')}"
        if each.get("type") == "Degraded" and each.get("status") == "True":
            return f"{live['kind']} {live['metadata']['name']}: {each.get('message') or each.get('reason')}"
    return ""


def _going(live: Object) -> bool:
    return "deletionTimestamp" in live["metadata"]
