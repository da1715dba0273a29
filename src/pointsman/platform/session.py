"""One command against one cluster: reads the platform's file and folders, asks the cluster, and hands over to the
steps.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pointsman.core.errors import Unavailable, UserError
from pointsman.core.versions import find_version
from pointsman.kube import Object, connect
from pointsman.platform.cluster import Cluster, Ref, ref_of
from pointsman.platform.debug import collect
from pointsman.platform.deploy import Deployer, JournalStore, Rules
from pointsman.platform.helm import Helm, find_helm
from pointsman.platform.marks import component_of
from pointsman.platform.materials import missing_definitions, read_materials
from pointsman.platform.observed import ComponentStatus, component_status, is_of_release, table
from pointsman.platform.preflight import OLDEST_KUBERNETES, PreflightFacts, PreflightFinding, preflight
from pointsman.platform.prepare import Material, wanted_of
from pointsman.platform.providers import Provider, find_provider, node_facts
from pointsman.platform.pullsecret import DockerConfig, docker_config
from pointsman.platform.spec import ComponentChoice, Platform, chosen
from pointsman.platform.steps import Wanted, steps_of
from pointsman.platform.store import Sources
from pointsman.platform.survey import NODE, SERVICE_ACCOUNT, find_release, observe
from pointsman.platform.undeploy import Undeployer


@dataclass(frozen=True)
class Asked:
    """What a command was asked to work on."""

    platform: Platform
    root: Path
    sources: Sources
    names: Sequence[str] = ()
    everything: bool = False

    def choices(self) -> list[ComponentChoice]:
        """Return the components that are meant."""
        return chosen(self.platform, self.names, everything=self.everything)


class Session:
    """A cluster, and what is asked of it."""

    def __init__(self, asked: Asked, cluster: Cluster, kubeconfig: Path | None, say: Callable[[str], None]) -> None:
        self._asked = asked
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._say = say

    async def deploy(self, rules: Rules, *, only: Callable[[Wanted, ComponentStatus], bool] | None = None) -> int:
        """Deploy what is meant; return 1 when a component was left alone."""
        components = await self._wanted(needed=True)
        if only is not None:
            rows = [component_status(each, await observe(self._cluster, each)) for each in components]
            components = [each for each, row in zip(components, rows, strict=True) if only(each, row)]
        if not components:
            self._say("nothing to do")
            return 0
        deployer = Deployer(self._cluster, self._helm(), JournalStore(self._cluster), say=self._say, rules=rules)
        return await deployer.deploy(components)

    async def roll_back(self) -> int:
        """Bring the releases back to the revision before the last."""
        for wanted in await self._wanted(needed=False):
            release = await find_release(self._cluster, wanted)
            if release is None or not release.ours or release.revision < 2:
                self._say(f"{wanted.name}: there is nothing to go back to")
                continue
            await self._helm().rollback(wanted.release, wanted.namespace, revision=release.revision - 1)
            self._say(f"{wanted.name}: back to what was there before {release.version}; definitions stay as they are")
        return 0

    async def status(self) -> list[ComponentStatus]:
        """Return a line for each component of the file."""
        journal = await JournalStore(self._cluster).read()
        return [
            component_status(
                each, await observe(self._cluster, each, loops=True), noted=journal.versions.get(each.name, "")
            )
            for each in await self._wanted(needed=False)
        ]

    async def preflight(self) -> list[PreflightFinding]:
        """Return what stands in the way."""
        version = msgspec.json.decode(await self._cluster.request("/version"))["gitVersion"]
        nodes = await self._cluster.listed(NODE)
        materials = await self._materials(needed=False)
        secret = self._secret(materials)
        wanted = [wanted_of(each, self._asked.platform, docker_config=secret.text) for each in materials]
        return preflight(
            PreflightFacts(
                kubernetes=str(version),
                helm=await self._helm_version(),
                allowed=await self._may_all(),
                provider=find_provider(nodes, asked=self._asked.platform.provider),
                nodes=node_facts(nodes),
                pull_secret=secret,
                minimum=_minimum(materials),
                components=[(each, await observe(self._cluster, each)) for each in wanted],
            )
        )

    async def undeploy(self, *, cascade: bool) -> list[str]:
        """Remove what is ours; return what was left and why."""
        components = await self._wanted(needed=False)
        return await Undeployer(self._cluster, self._helm(), say=self._say, cascade=cascade).undeploy(components)

    async def pull_secret(self) -> int:
        """Put the credentials of now into every namespace of the platform; return 1 when there are none."""
        materials = await self._materials(needed=True)
        secret = self._secret(materials)
        if not secret.text:
            self._say("there are no credentials for the registries of the platform: log in first")
            return 1
        for material in materials:
            wanted = wanted_of(material, self._asked.platform, docker_config=secret.text)
            for step in steps_of(wanted):
                for document in step.objects if step.name == "pull-secret" else ():
                    await self._put_secret(document, wanted, secret)
        return 0

    async def _put_secret(self, document: Object, wanted: Wanted, secret: DockerConfig) -> None:
        place = document["metadata"]["namespace"]
        if await self._cluster.get(Ref("v1", "Namespace", "", place)) is None:
            self._say(f"{place}: there is no such namespace yet")
            return
        done = await self._cluster.put(document)
        told = "there is one that is not ours: left" if done == "foreign" else done
        self._say(f"{place}/{wanted.pull_secret}: {told}, for {', '.join(secret.registries)}")
        # Accounts may be older than the secret.
        for account in await self._cluster.listed(SERVICE_ACCOUNT, namespace=place):
            has = account.get("imagePullSecrets") or []
            mine = component_of(account) or is_of_release(account, wanted)
            if mine and {"name": wanted.pull_secret} not in has:
                body = {"imagePullSecrets": [*has, {"name": wanted.pull_secret}]}
                await self._cluster.merge(ref_of(account), body)
                self._say(f"{place}/{account['metadata']['name']}: has {wanted.pull_secret} now")

    async def collect(self) -> dict[str, str]:
        """Return the files of an archive for debugging."""
        findings = "".join(f"{each}\n" for each in await self.preflight())
        texts = {"status.txt": table(await self.status()), "preflight.txt": findings}
        return await collect(self._cluster, await self._wanted(needed=False), texts=texts)

    async def _wanted(self, *, needed: bool) -> list[Wanted]:
        materials = await self._materials(needed=needed, offline=not needed)
        provider = await self._provider()
        secret = self._secret(materials) if needed else DockerConfig(())
        if needed:
            for registry in secret.missing:
                self._say(f"note: no credentials for {registry}: its images must be public")
            materials = [
                replace(each, definitions=await missing_definitions(self._cluster, each, say=self._say))
                for each in materials
            ]
        return [
            wanted_of(each, self._asked.platform, provider=provider, docker_config=secret.text) for each in materials
        ]

    async def _materials(self, *, needed: bool, offline: bool = False) -> list[Material]:
        choices = [each for each in self._asked.choices() if each.use == "ours"]
        sources = replace(self._asked.sources, offline=offline)
        return read_materials(choices, self._asked.root, sources, say=self._say, needed=needed)

    def _secret(self, materials: Sequence[Material]) -> DockerConfig:
        mirror = self._asked.platform.image_mirror
        images = [f"{mirror}/image"] if mirror else [each for one in materials for each in one.images]
        return docker_config(images, source=self._asked.platform.pull_secret.from_, environment=os.environ)

    async def _provider(self) -> Provider:
        return find_provider(await self._cluster.listed(NODE), asked=self._asked.platform.provider)

    def _helm(self) -> Helm:
        return find_helm(self._kubeconfig)

    async def _helm_version(self) -> str:
        try:
            return await self._helm().version()
        except UserError:
            return ""

    async def _may_all(self) -> bool:
        asked = {"spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}}
        review = await self._cluster.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
        return bool((review.get("status") or {}).get("allowed"))


@asynccontextmanager
async def open_session(
    asked: Asked, *, kubeconfig: Path | None, timeout: float, say: Callable[[str], None]
) -> AsyncIterator[Session]:
    """Open the connection to the cluster."""
    async with connect(kubeconfig) as client:
        cluster = Cluster(client, patience=timeout, say=say)
        if not await cluster.answers():  # one that goes away later is waited for; one that never was there is not
            raise Unavailable("the API server does not answer: check --kubeconfig, or KUBECONFIG, and the network")
        yield Session(asked, cluster, kubeconfig, say)


def _minimum(materials: Sequence[Material]) -> str:
    """Return the newest version of Kubernetes that a bundle asks for."""
    asked = [each.bundle.csv.spec.min_kube_version for each in materials if each.bundle is not None]
    versions = [(found, each) for each in (*asked, OLDEST_KUBERNETES) if (found := find_version(each)) is not None]
    newest, text = versions[0]
    for version, each in versions[1:]:
        if newest < version:
            newest, text = version, each
    return text
