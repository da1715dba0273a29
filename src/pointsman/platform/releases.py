"""Helm's own record of a release → what we need of it. Pure.

A release is a Secret for each revision; its content is JSON, compressed and encoded twice. Reading it here needs no
helm and works for releases of others, which is how a foreign installation is found. What unpacks to more than any
release can have is refused.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pointsman.core.kinds import Object
from pointsman.platform.marks import is_our_release

MOST = 64 << 20


@dataclass(frozen=True)
class Release:
    """The newest revision of one release."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str = ""
    version: str = ""
    ours: bool = False
    manifest: str = field(default="", repr=False)
    last_deployed: int = 0
    """The newest revision that was once deployed; 0 when none was."""

    @property
    def pending(self) -> bool:
        """Say whether a helm died at work on it."""
        return self.status.startswith("pending") or self.status == "uninstalling"


def newest(secrets: Iterable[Object]) -> list[Release]:
    """Return the newest revision of each release among Helm's Secrets; what cannot be read has only its labels."""
    revisions: dict[tuple[str, str], dict[int, Object]] = {}
    for secret in secrets:
        labels = secret["metadata"].get("labels") or {}
        if labels.get("owner") == "helm" and str(labels.get("version", "")).isdigit():
            key = (secret["metadata"].get("namespace", ""), str(labels.get("name", "")))
            revisions.setdefault(key, {})[int(labels["version"])] = secret
    return [_release(*key, found) for key, found in sorted(revisions.items())]


def _release(namespace: str, name: str, revisions: dict[int, Object]) -> Release:
    last = max(revisions)
    labels = revisions[last]["metadata"]["labels"]
    content = _content(revisions[last])
    metadata = (content.get("chart") or {}).get("metadata") or {}
    statuses = {number: str(each["metadata"]["labels"].get("status", "")) for number, each in revisions.items()}
    deployed = [number for number, status in statuses.items() if status in {"deployed", "superseded"}]
    return Release(
        name=name,
        namespace=namespace,
        revision=last,
        status=str(labels.get("status", "")),
        chart=str(metadata.get("name", "")),
        version=str(metadata.get("appVersion") or metadata.get("version") or ""),
        ours=is_our_release(content.get("config") or {}),
        manifest=str(content.get("manifest", "")),
        last_deployed=max(deployed, default=0),
    )


def _content(secret: Object) -> dict[str, Any]:
    try:
        packed = base64.b64decode(base64.b64decode((secret.get("data") or {}).get("release", "")))
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        text = inflate.decompress(packed, MOST)
        found = msgspec.json.decode(text) if not inflate.unconsumed_tail else {}
    except (binascii.Error, zlib.error, msgspec.DecodeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
