"""Write a container image without any container tool: an OCI layout in a tar file, as `ctr images import` reads it.

A layer is a directory or a file and the place where it lands. Owners are root and times are zero where we made the
content ourselves, so the same content gives the same image.
"""

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    """What to add, and where."""

    source: Path
    at: str = ""


def write_image(
    target: Path,
    *,
    name: str,
    layers: Sequence[Layer],
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    user: str = "",
) -> None:
    """Write the image. Its name needs a host part (`localhost/x:1`), else it is looked for in a public registry."""
    architecture = _ARCHITECTURES[platform.machine()]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        blobs = Path(scratch)
        packed = [_pack(layer, blobs) for layer in layers]
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **(environment or {})}
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(command),
                "Env": [f"{key}={value}" for key, value in variables.items()],
                "User": user,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in packed]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _put(config, blobs, media=f"{_OCI}.config.v1+json"),
            "layers": packed,
        }
        entry = _put(manifest, blobs, media=f"{_OCI}.manifest.v1+json") | {
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {"io.containerd.image.name": name},
        }
        _write(target, blobs, index={"schemaVersion": 2, "manifests": [entry]})


def _pack(layer: Layer, blobs: Path) -> dict[str, Any]:
    path = blobs / "layer"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        if layer.source.is_dir():
            for child in sorted(layer.source.iterdir()):
                tar.add(child, arcname=f"{layer.at}/{child.name}".strip("/"), filter=_plain if layer.at else None)
        else:
            tar.add(layer.source, arcname=layer.at.strip("/"), filter=_plain)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    path.rename(blobs / digest)
    return {"mediaType": f"{_OCI}.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _put(document: dict[str, Any], blobs: Path, *, media: str) -> dict[str, Any]:
    content = json.dumps(document, sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}


def _write(target: Path, blobs: Path, *, index: dict[str, Any]) -> None:
    with tarfile.open(target, "w") as tar:
        for name, document in (("oci-layout", {"imageLayoutVersion": "1.0.0"}), ("index.json", index)):
            content = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for blob in sorted(blobs.iterdir()):
            tar.add(blob, arcname=f"blobs/sha256/{blob.name}")
