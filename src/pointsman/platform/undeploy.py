"""Take down what was put up, and nothing else: by our labels, in the reverse order of the steps.

What the operator was told to run goes first, while the operator is there to take it down; then the release, then what
was there before it, then definitions, then namespaces. A definition with objects left, a namespace with things of
others in it and everything without our label stays, and is told with the reason.
"""

from collections.abc import Callable, Iterable, Sequence

from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION, Kind, Object
from pointsman.crds.marks import installer
from pointsman.platform.cluster import Cluster, Ref, ref_of
from pointsman.platform.helm import Helm
from pointsman.platform.journal import NAME
from pointsman.platform.marks import COMPONENT, component_of, step_of
from pointsman.platform.observed import is_of_release
from pointsman.platform.releases import Release
from pointsman.platform.steps import STEPS, Wanted
from pointsman.platform.survey import custom_objects, find_release

_LAST = ("definitions", "namespace")
# What every namespace has, what follows from something else, and what is only a record.
_OF_NOBODY = frozenset({"Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision", "PodMetrics"})
_OF_EVERYBODY = frozenset({("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")})


class Undeployer:
    """One run."""

    def __init__(self, cluster: Cluster, helm: Helm, *, say: Callable[[str], None], cascade: bool = False) -> None:
        self._cluster = cluster
        self._helm = helm
        self._say = say
        self._cascade = cascade
        self._left: list[str] = []

    async def undeploy(self, components: Sequence[Wanted]) -> list[str]:
        """Remove the components, the last deployed first; return what was left, each with its reason."""
        names = {each.name for each in components}
        marked = await self._marked()
        for wanted in reversed(components):
            await self._component(wanted, [each for each in marked if component_of(each) == wanted.name])
        await self._definitions([each for each in marked if component_of(each) in names])
        await self._foreign_definitions(components)
        await self._namespaces([each for each in marked if component_of(each) in names])
        others = {component_of(each) for each in marked} - names - {NAME}
        if not others:
            await self._journal(marked)
        return self._left

    async def _component(self, wanted: Wanted, mine: Sequence[Object]) -> None:
        release = await find_release(self._cluster, wanted)
        if release is not None and not release.ours:
            self._leave(f"Helm release {release.namespace}/{release.name}", "it is not ours")
            release = None
        if release is None and not mine:
            self._say(f"{wanted.name}: nothing of ours is there")
            return
        self._say(f"{wanted.name}: removing")
        await self._customs(wanted, release, mine)
        if release is not None:
            await self._helm.uninstall(wanted.release, wanted.namespace)
            self._say(f"    deleted Helm release {release.namespace}/{release.name}")
        for step in reversed([each for each in STEPS if each not in _LAST]):
            await self._delete(each for each in mine if step_of(each) == step)

    async def _customs(self, wanted: Wanted, release: Release | None, mine: Sequence[Object]) -> None:
        """Delete what the operator runs, and wait: without the operator nobody would let it go."""
        wanted_there = [await self._cluster.get(ref_of(each)) for each in custom_objects(wanted, release)]
        going = [each for each in mine if step_of(each) == "postsync"]
        known = {ref_of(each) for each in going}
        going += [each for each in wanted_there if each and ref_of(each) not in known and _is_of(each, wanted)]
        await self._delete(going)
        for each in going:
            await self._cluster.gone(ref_of(each))

    async def _delete(self, objects: Iterable[Object]) -> None:
        for live in objects:
            if await self._cluster.get(ref_of(live)) is None:
                continue
            await self._cluster.delete(live)
            self._say(f"    deleted {ref_of(live)}")

    async def _definitions(self, marked: Sequence[Object]) -> None:
        going = []
        for live in (each for each in marked if each["kind"] == "CustomResourceDefinition"):
            count = 0 if self._cascade else await self._objects_of(live)
            if count:
                self._leave(
                    f"definition {live['metadata']['name']}", f"{count} objects of it are there, which are not ours"
                )
            else:
                going.append(live)
        await self._delete(going)
        for live in going:
            await self._cluster.gone(ref_of(live))
        await self._cluster.forget()

    async def _objects_of(self, definition: Object) -> int:
        spec = definition["spec"]
        version = next(each["name"] for each in spec["versions"] if each.get("storage"))
        names = spec["names"]
        kind = Kind(spec["group"], version, names["kind"], names["plural"], namespaced=spec.get("scope") != "Cluster")
        return len(await self._cluster.listed(kind))

    async def _foreign_definitions(self, components: Sequence[Wanted]) -> None:
        wanted = {
            each["metadata"]["name"] for one in components for each in (*one.own_definitions, *one.shared_definitions)
        }
        groups = {group for one in components for group in one.groups}
        for live in await self._cluster.listed(CUSTOM_RESOURCE_DEFINITION):
            asked = live["metadata"]["name"] in wanted or live["spec"]["group"] in groups
            if asked and not component_of(live):
                self._leave(
                    f"definition {live['metadata']['name']}", f"it belongs to {installer(live) or 'somebody else'}"
                )

    async def _namespaces(self, marked: Sequence[Object]) -> None:
        kinds = [kind for kind in await self._cluster.kinds() if kind.namespaced and kind.kind not in _OF_NOBODY]
        going = []
        for live in (each for each in marked if each["kind"] == "Namespace"):
            name = live["metadata"]["name"]
            others = await self._residents(name, kinds)
            if others:
                more = f" and {len(others) - 5} more" if len(others) > 5 else ""
                self._leave(
                    f"namespace {name}", f"there is {', '.join(map(str, others[:5]))}{more} in it, which is not ours"
                )
                continue
            going.append(live)
        await self._delete(going)
        for live in going:
            await self._cluster.gone(ref_of(live))

    async def _residents(self, namespace: str, kinds: Sequence[Kind]) -> list[Ref]:
        """Return what would go with a namespace and is not ours to delete."""
        found = []
        for kind in kinds:
            there = await self._cluster.listed(kind, namespace=namespace)
            found += [ref_of(each) for each in there if not _follows(each) and not component_of(each)]
        return found

    async def _journal(self, marked: Sequence[Object]) -> None:
        for live in marked:
            if component_of(live) == NAME and live["kind"] == "Namespace":
                await self._cluster.delete(live)
                await self._cluster.gone(ref_of(live))

    async def _marked(self) -> list[Object]:
        """Return everything that carries our label."""
        found: dict[tuple[str, str, str], Object] = {}
        for kind in await self._cluster.kinds():
            for each in await self._cluster.listed(kind, labels=COMPONENT):
                metadata = each["metadata"]
                found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
        return list(found.values())

    def _leave(self, what: str, why: str) -> None:
        self._left.append(f"left {what}: {why}")


def _is_of(live: Object, wanted: Wanted) -> bool:
    """Say whether a resource belongs to the release, or carries our label."""
    return component_of(live) == wanted.name or is_of_release(live, wanted)


def _follows(live: Object) -> bool:
    """Say whether an object is in every namespace, or goes with another by itself."""
    metadata = live["metadata"]
    if metadata.get("ownerReferences"):
        return True
    if (live["kind"], metadata["name"]) in _OF_EVERYBODY:
        return True
    return live["kind"] == "Secret" and live.get("type") == "kubernetes.io/service-account-token"
