"""Our manifests and our chart as tests see them: rendered by the real kubectl and the real helm."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.controlplane import ControlPlane

from pointsman.kube import Object

ROOT = Path(__file__).parents[2]
DEFAULT = ROOT / "config" / "default"
CHART = ROOT / "charts" / "pointsman"
SYSTEM = "pointsman-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:pointsman-operator"
# What helm adds to say that an object is its own.
HELMS = frozenset(
    {
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/version",
        "helm.sh/chart",
        "helm.sh/resource-policy",
    }
)


@dataclass(frozen=True, slots=True)
class Helm:
    """helm, with a home of its own and the control plane's administrator."""

    program: Path
    plane: ControlPlane

    def __call__(self, *arguments: str) -> str:
        """Run helm and return what it prints; raises AssertionError with what it complains of."""
        environment = {
            "HOME": str(self.plane.directory),
            "PATH": os.environ.get("PATH", ""),
            "KUBECONFIG": str(self.plane.kubeconfig("admin")),
        }
        run = subprocess.run(
            [self.program, *arguments], capture_output=True, text=True, timeout=170, env=environment, check=False
        )
        if run.returncode:
            raise AssertionError(f"helm {' '.join(arguments)}: {run.stderr.strip()}")
        return run.stdout

    def template(self, **values: object) -> list[Object]:
        """Render the chart under the names that config/default has."""
        return documents(self("template", "pointsman", str(CHART), "--namespace", SYSTEM, *settings(values)))


def overlay(directory: Path, *, components: Iterable[str]) -> Path:
    """Return a folder that kubectl can build: a copy of config/default with components, named as from its side."""
    shutil.copytree(ROOT / "config", directory / "config")
    mine = directory / "config" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(json.dumps({"resources": ["../default"], "components": list(components)}))
    return mine


def settings(values: Mapping[str, object]) -> list[str]:
    """Return helm's flags for values; `__` stands for the dot in a path."""
    return [f"--set-json={name.replace('__', '.')}={json.dumps(value)}" for name, value in values.items()]


def documents(text: str) -> list[Object]:
    """Return the documents of a YAML text."""
    return [document for document in yaml.safe_load_all(text) if document]


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str, str], Object]:
    """Return objects by kind, namespace and name."""
    keyed = {}
    for one in objects:
        metadata = one["metadata"]
        keyed[one["kind"], metadata.get("namespace", ""), metadata["name"]] = one
    return keyed


def plain(document: Any) -> Any:
    """Return a document without the marks that helm puts on its own."""
    if isinstance(document, dict):
        kept = {name: plain(value) for name, value in document.items() if name not in HELMS}
        return {name: value for name, value in kept.items() if name not in {"labels", "annotations"} or value}
    if isinstance(document, list):
        return [plain(one) for one in document]
    return document
