"""Helm's records are read without Helm, and a record that is none, or a bomb, tells nothing and costs nothing."""

import base64
import gzip
import json
import tracemalloc
from typing import Any

import pytest

from pointsman.platform import releases
from pointsman.platform.releases import newest


def secret(revision: int = 1, *, status: str = "deployed", text: bytes | None = None, **content: Any) -> dict[str, Any]:
    whole = {
        "config": {"global": {"managedBy": "pointsman-platform"}},
        "chart": {"metadata": {"name": "thing", "version": "1.0.0", "appVersion": "1.2.3"}},
        "manifest": "kind: Widget\n",
        **content,
    }
    packed = gzip.compress(json.dumps(whole).encode()) if text is None else text
    labels = {"owner": "helm", "name": "thing", "version": str(revision), "status": status}
    return {
        "metadata": {"name": f"sh.helm.release.v1.thing.v{revision}", "namespace": "x", "labels": labels},
        "data": {"release": base64.b64encode(base64.b64encode(packed)).decode()},
    }


def test_the_newest_revision_is_the_release() -> None:
    (found,) = newest([secret(1, status="superseded"), secret(10), secret(9, status="failed")])
    assert (found.revision, found.status, found.version, found.ours) == (10, "deployed", "1.2.3", True)
    assert found.manifest == "kind: Widget\n"
    assert found.last_deployed == 10
    assert not found.pending


def test_a_release_of_others_is_not_ours() -> None:
    (found,) = newest([secret(config={})])
    assert not found.ours


@pytest.mark.parametrize(("status", "back_to"), [("pending-install", 0), ("pending-upgrade", 3)])
def test_a_release_that_helm_died_at_is_pending(status: str, back_to: int) -> None:
    earlier = [secret(3)] if back_to else []
    (found,) = newest([*earlier, secret(4, status=status)])
    assert found.pending
    assert found.last_deployed == back_to


@pytest.mark.parametrize(
    "text",
    [b"", b"\x1f\x8b\x00nonsense", gzip.compress(b"[1]", mtime=0), gzip.compress(b"{", mtime=0)],
    ids=["empty", "nonsense", "a list", "cut off"],
)
def test_a_record_that_is_none_has_only_its_labels(text: bytes) -> None:
    (found,) = newest([secret(text=text)])
    assert (found.name, found.status, found.ours) == ("thing", "deployed", False)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MOST", 1 << 20)
    bomb = secret(text=gzip.compress(b'{"manifest": "' + b"0" * (64 << 20) + b'"}'))
    tracemalloc.start()
    try:
        (found,) = newest([bomb])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not found.manifest
    assert peak < 8 << 20
