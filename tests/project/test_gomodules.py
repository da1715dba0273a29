"""The Go programs that tests use are built from the same versions of what they share.

Go compiles a package once for all of them then. With other versions of golang.org/x/net it would compile every package
above it once more, and a first `make test` would take a quarter longer.
"""

import re
from collections import defaultdict
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
SHARING = ("conformance/proxy", "conformance/suite", "istio", "kube", "node/coredns", "node/kubelet")
OWN = {("conformance/suite", "sigs.k8s.io/gateway-api")}  # a release of the suite names the version that it tests
HOW = "name the modules of tools/ in a go.work of yours, run `go work sync`, and `go mod tidy` in each"


def test_one_version_of_each_module() -> None:
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for folder in SHARING:
        required = re.findall(r"^\s+(\S+) (v\S+)", (TOOLS / folder / "go.mod").read_text(), re.MULTILINE)
        assert required, folder
        for module, version in required:
            if (folder, module) not in OWN:
                versions[module][version].append(folder)
    several = {module: dict(found) for module, found in versions.items() if len(found) > 1}
    assert not several, HOW
