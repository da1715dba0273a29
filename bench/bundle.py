"""What `pointsman bundle extract` costs, the whole command: start-up, reading, rendering, writing.

The baseline in the same run is a process that only loads and dumps the same files with PyYAML's C loader and dumper.
All take turns, and the least of each counts, because the machine is not quiet. Real bundles come from
`POINTSMAN_BUNDLES` or `POINTSMAN_DATA/bundles`; a bundle with more than 6 MB of definitions is made.

    python -m bench bundle [--runs 7]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PYYAML = """
import sys, yaml
for path in sys.argv[1:]:
    for document in yaml.load_all(open(path, "rb"), Loader=yaml.CSafeLoader):
        yaml.dump(document, sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False)
"""


@dataclass
class Cost:
    """The least of several runs."""

    wall: float = 1e9
    cpu: float = 1e9
    memory: float = 1e9

    def take(self, command: Sequence[str]) -> None:
        """Run a command once."""
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"bench: {' '.join(command)} ended with {status}")
        self.wall = min(self.wall, time.monotonic() - began)
        self.cpu = min(self.cpu, usage.ru_utime + usage.ru_stime)
        self.memory = min(self.memory, usage.ru_maxrss / 1024)

    def __str__(self) -> str:
        return f"{self.wall:.2f} | {self.cpu:.2f} | {self.memory:.0f}"


def definition(number: int) -> Mapping[str, Any]:
    """Return a definition of about 750 KB, with the many small fields that make real ones large."""
    field = {
        "type": "string",
        "description": "What the field means, in a sentence or two as generators write them.",
        "default": "",
    }
    parts = {f"part{at}": {"type": "object", "properties": {f"field{n}": field for n in range(60)}} for at in range(90)}
    schema = {"type": "object", "properties": parts}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things{number}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": f"Thing{number}", "plural": f"things{number}"},
            "versions": [version],
        },
    }


def make_large(folder: Path) -> Path:
    """Write a bundle with eight such definitions."""
    from pointsman.bundle.writer import write_document

    (folder / "manifests").mkdir(parents=True)
    (folder / "metadata").mkdir()
    labels = {"operators.operatorframework.io.bundle.package.v1": "large"}
    (folder / "metadata" / "annotations.yaml").write_text(json.dumps({"annotations": labels}))
    csv = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "large.v1.0.0"},
        "spec": {"installModes": [{"type": "AllNamespaces", "supported": True}]},
    }
    (folder / "manifests" / "csv.yaml").write_text(write_document(csv))
    for number in range(8):
        (folder / "manifests" / f"crd{number}.yaml").write_text(write_document(definition(number)))
    return folder


def real() -> Iterator[Path]:
    """Yield the folders of real bundles, smallest first."""
    data = os.environ.get("POINTSMAN_DATA")
    named = os.environ.get("POINTSMAN_BUNDLES") or (f"{data}/bundles" if data else "")
    if not named:
        print("no real bundles: set POINTSMAN_BUNDLES or POINTSMAN_DATA")
        return
    yield from sorted((path for path in Path(named).iterdir() if path.is_dir()), key=size)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = [*real(), make_large(Path(scratch) / "made-6-MB")]
        ours = [[sys.executable, "-m", "pointsman", "bundle", "extract", str(each), "-n", "there"] for each in folders]
        theirs = [
            [sys.executable, "-c", _PYYAML, *map(str, sorted((each / "manifests").iterdir()))] for each in folders
        ]
        help_ = [sys.executable, "-m", "pointsman", "--help"]
        costs = {tuple(command): Cost() for command in [help_, *ours, *theirs]}
        for _ in range(args.runs):
            for command, cost in costs.items():
                cost.take(command)
        print("| bundle | KB | wall s | CPU s | MB | PyYAML wall s | CPU s | MB |\n|---|--:|--:|--:|--:|--:|--:|--:|")
        for folder, own, other in zip(folders, ours, theirs, strict=True):
            print(f"| {folder.name} | {size(folder) // 1000} | {costs[tuple(own)]} | {costs[tuple(other)]} |")
        print(f"| `pointsman --help` | – | {costs[tuple(help_)]} | – | – | – |")


if __name__ == "__main__":
    main()
