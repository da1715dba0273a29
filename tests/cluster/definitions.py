"""`pointsman crds` on a control plane, and documents that tests of it need."""

import asyncio
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.controlplane import DEFINITION_PATIENCE, ControlPlane
from tests.cluster.live import written
from tests.cluster.packages import ROOT
from tests.waiting import eventually

from pointsman import cli
from pointsman.api.inference import ALPHA_POOL, OBJECTIVES, POOL, POOL_IMPORT, REWRITES
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from pointsman.crds import Definition
from pointsman.kube import Client, Key, Kind, Object, connect
from pointsman.kube.conditions import truth_of
from pointsman.kube.errors import ApiError

T = TypeVar("T")

ALL = [str(kind) for kind in (POOL, ALPHA_POOL, POOL_IMPORT, *OBJECTIVES, *REWRITES)]
V1, ALPHA = str(POOL), str(ALPHA_POOL)
# Most tests need one definition, and an API server takes its time over each.
ONE = ("--file", str(ROOT / "config" / "crd" / "inference" / "inference.networking.k8s.io_inferencepools.yaml"))


@dataclass(frozen=True)
class Ran:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Console:
    """Someone with a kubeconfig and our command line."""

    plane: ControlPlane
    config: Path

    def crds(self, *words: str, seconds: float = 30) -> Ran:
        """Run `pointsman crds` and return how it ended; never a traceback."""
        out, err = io.StringIO(), io.StringIO()
        flags = ("--kubeconfig", str(self.config), "--timeout", str(seconds))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli._run(["crds", *words, *flags])
        return Ran(code, out.getvalue(), err.getvalue())

    def process(self, *words: str, seconds: float = 30) -> Ran:
        """Run `pointsman crds` as a process of its own, while this one does something else."""
        flags = ("--kubeconfig", str(self.config), "--timeout", str(seconds))
        command = [sys.executable, "-m", "pointsman", "crds", *words, *flags]
        run = subprocess.run(command, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
        return Ran(run.returncode, run.stdout, run.stderr)

    def get(self, name: str) -> Object:
        """Return a definition as the server has it."""
        return self._ask(lambda client: client.get(CRD, Key("", name)))

    def written(self, name: str) -> Object:
        """Return what of a definition somebody wrote."""
        return written(self.get(name))

    def there(self) -> list[str]:
        """Return the names of all definitions."""
        return sorted(self.all_written())

    def all_written(self) -> dict[str, Object]:
        """Return by name what of all definitions somebody wrote."""
        items = json.loads(self._ask(lambda client: client.request("GET", CRD.path())))["items"]
        return {item["metadata"]["name"]: written(item) for item in items}

    def apply(self, *documents: Object, manager: str = "someone") -> None:
        """Apply documents on behalf of another; kinds that are new may take a moment to be served."""

        async def applied(client: Client) -> None:
            for document in documents:
                await eventually(partial(_applied, client, document, manager=manager))

        self._ask(applied)

    def patch(self, name: str, body: Object, *, kind: Kind = CRD) -> None:
        """Merge a change into an object."""
        key = Key("default" if kind.namespaced else "", name)
        self._ask(lambda client: client.patch(kind, key, body, how="merge"))

    def delete(self, kind: Kind, *names: str, namespace: str = "default") -> None:
        """Delete objects."""

        async def deleted(client: Client) -> None:
            for name in names:
                await client.delete(kind, Key(namespace if kind.namespaced else "", name))

        self._ask(deleted)

    def count(self, kind: Kind) -> int:
        """Return how many objects of a kind there are."""
        return len(json.loads(self._ask(lambda client: client.request("GET", kind.path())))["items"])

    def fill_caches(self) -> None:
        """Ask for objects of every definition.

        An API server that is told to delete a definition before it has filled its cache of the kind takes minutes over
        it.
        """

        async def asked(client: Client) -> None:
            for item in json.loads(await client.request("GET", CRD.path()))["items"]:
                if truth_of(item, "Established") == "True" and "deletionTimestamp" not in item["metadata"]:
                    path = Definition(item).kind.path()
                    cached = partial(client.request, "GET", path, parameters={"resourceVersion": "0"})
                    with contextlib.suppress(ApiError):  # its webhook may be down
                        await eventually(cached, within=5)

        self._ask(asked)

    def clear(self) -> None:
        """Delete every definition that a test left, and wait until they are gone."""

        async def gone(client: Client) -> None:
            async def empty() -> None:
                assert json.loads(await client.request("GET", CRD.path()))["items"] == []

            await eventually(empty, within=DEFINITION_PATIENCE)

        self.fill_caches()
        self.delete(CRD, *self.there())
        self._ask(gone)

    def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with connect(self.plane.kubeconfig("admin")) as client:
                return await question(client)

        return asyncio.run(asked())


async def _applied(client: Client, document: Object, *, manager: str) -> Object:
    metadata = document["metadata"]
    key = Key(metadata.get("namespace", ""), metadata["name"])
    parameters = {"fieldManager": manager, "force": "true"}
    return await client.patch(_kind(document), key, document, how="apply", parameters=parameters)


def _kind(document: Object) -> Kind:
    group, _, version = document["apiVersion"].rpartition("/")
    name = document["kind"]
    cluster = name in {"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding"}
    return Kind(group, version, name, f"{name.lower()}s", namespaced=not cluster)


def write(path: Path, documents: Iterable[Object]) -> str:
    """Write documents into a file and return its name."""
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    return str(path)


def pool(name: str, *, namespace: str = "default", **spec: Any) -> Object:
    """Return an InferencePool."""
    return {
        "apiVersion": POOL.api_version,
        "kind": POOL.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "vllm"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
            **spec,
        },
    }


def definition(kind: Kind, *versions: Object, **spec: Any) -> Object:
    """Return a definition of a kind with these versions."""
    names = {"kind": kind.kind, "plural": kind.plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind)},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": list(versions), **spec},
    }


def version(name: str, *, storage: bool = True, spec: Object | None = None) -> Object:
    """Return a version that takes any spec, or one of this schema."""
    inner = spec or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": inner}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def deployment(name: str, image: str, *args: str, namespace: str = "default", labels: Object | None = None) -> Object:
    """Return a Deployment without Pods."""
    marks = labels or {"app": name}
    pod = {"containers": [{"name": "main", "image": image, "args": list(args)}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": marks},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }
