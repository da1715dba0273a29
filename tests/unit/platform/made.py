"""A small platform on disk: one component with an overlay, and bundles of several versions for it."""

import json
from pathlib import Path
from typing import Any

from tests.unit.bundle.made import RULES, crd, deployment, files

from pointsman.platform.folder import ComponentFolder, read_folder
from pointsman.platform.steps import Wanted

IMAGE = "registry.example.com/team/thing-bundle:v1.2.3"
NOTE = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operand"}}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "first"}, "y": "x"}
PERMISSIONS = [{"serviceAccountName": "manager", "rules": RULES}]


def bundle_folder(root: Path, *, version: str = "1.2.3", name: str = "", **parts: Any) -> Path:
    """Write a bundle, and return its folder."""
    made = {"crds": [crd()], "cluster_permissions": PERMISSIONS, "name": f"thing.v{version}", **parts}
    spec = {"version": version, **parts.get("spec", {})}
    folder = root / (name or f"thing-{version}")
    for path, data in files(**{**made, "spec": spec}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def image_of(version: str) -> dict[str, Any]:
    """Return a Deployment whose image is of this version."""
    return deployment(containers=[{"name": "main", "image": f"quay.io/example/manager:v{version}"}])


def component(root: Path, *, name: str = "thing", pin: dict[str, str] | None = None, **spec: Any) -> Path:
    """Write the folder of a component, and return it."""
    folder = root / name
    overlay: dict[str, Any] = {
        "component.yaml": {"namespace": "thing-system", "packages": ["thing"], **spec},
        "bundle.yaml": pin or {"image": IMAGE, "version": "1.2.3"},
        "manifests-presync/account.yaml": NOTE,
        "overlay/values.yaml": {"extra": {"on": True}},
        "overlay/values.schema.json": {"extra": {"type": "object"}},
    }
    for path, document in overlay.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(document))
    (folder / "templates").mkdir(exist_ok=True)
    (folder / "templates" / "extra.yaml").write_text(
        "{{- if .Values.extra.on }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n{{- end }}\n"
    )
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / "scripts" / "update-bundle.sh").write_text("#!/bin/sh\n")
    return folder


def read(root: Path, **spec: Any) -> ComponentFolder:
    return read_folder(component(root, **spec))


def wanted(**parts: Any) -> Wanted:
    """Return what is wanted of a small component."""
    return Wanted(
        **{
            "name": "thing",
            "namespace": "thing-system",
            "release": "thing",
            "version": "1.2.3",
            "chart": {"Chart.yaml": "name: thing\n"},
            "own_definitions": [crd()],
            "deployments": ["manager"],
            **parts,
        }
    )
