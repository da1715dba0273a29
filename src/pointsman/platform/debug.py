"""Everything that helps to find out what is wrong, in one archive for others: no Secret's content is in it.

Owns what is collected and what is taken out. A part that cannot be had is a line in the archive, never the end of it.
"""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from pointsman.core.errors import PointsmanError, UserError
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION, Kind, Object
from pointsman.platform.cluster import Cluster
from pointsman.platform.steps import Wanted
from pointsman.platform.survey import NODE, POD

_LINES = 500
_MOST_LOG = 1 << 20
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def redacted(document: Object) -> Object:
    """Return an object without what nobody else should read, and without what nobody does."""
    metadata = dict(document.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = {key: each for key, each in (metadata.get("annotations") or {}).items() if key != _APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    elif "annotations" in metadata:
        del metadata["annotations"]
    kept = {**document, "metadata": metadata}
    if kept.get("kind") == "Secret":
        for field in ("data", "stringData"):
            if field in kept:
                kept[field] = dict.fromkeys(kept[field], "REDACTED")
    return kept


async def collect(cluster: Cluster, components: Sequence[Wanted], *, texts: dict[str, str]) -> dict[str, str]:
    """Return the files of the archive: the given texts, nodes and definitions, and every namespace of ours."""
    files = dict(texts)
    files["nodes.json"] = await _listed(cluster, NODE)
    files["definitions.json"] = await _listed(cluster, CUSTOM_RESOURCE_DEFINITION, only_metadata=True)
    kinds = [kind for kind in await cluster.kinds() if kind.namespaced]
    for namespace in dict.fromkeys(name for wanted in components for name in wanted.namespaces):
        for kind in kinds:
            text = await _listed(cluster, kind, namespace=namespace)
            if text != "[]\n":
                files[f"{namespace}/{kind.plural}.json"] = text
        for name, text in (await _logs(cluster, namespace)).items():
            files[f"{namespace}/logs/{name}.log"] = text
    return files


def write_archive(files: dict[str, str], target: Path) -> None:
    """Write the archive, which only its owner may read; raises UserError when it cannot be written."""
    try:
        target.touch(mode=0o600)
        with tarfile.open(target, "w:gz") as archive:
            for path, text in sorted(files.items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"{target.name.removesuffix('.tar.gz')}/{path}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror}") from None


async def _listed(cluster: Cluster, kind: Kind, *, namespace: str = "", only_metadata: bool = False) -> str:
    try:
        found = [redacted(each) for each in await cluster.listed(kind, namespace=namespace)]
    except PointsmanError as error:
        return f"{error}\n"
    if only_metadata:
        found = [{"metadata": each["metadata"], "status": each.get("status")} for each in found]
    return json.dumps(found, indent=1) + "\n" if found else "[]\n"


async def _logs(cluster: Cluster, namespace: str) -> dict[str, str]:
    logs = {}
    for pod in await cluster.listed(POD, namespace=namespace):
        name = pod["metadata"]["name"]
        for container in (pod.get("spec") or {}).get("containers") or []:
            path = f"{POD.path(namespace, name)}/log"
            limits = {"container": container["name"], "tailLines": str(_LINES), "limitBytes": str(_MOST_LOG)}
            try:
                text = (await cluster.request(path, parameters=limits)).decode(errors="replace")
            except PointsmanError as error:
                text = f"{error}\n"
            logs[f"{name}-{container['name']}"] = text
    return logs
