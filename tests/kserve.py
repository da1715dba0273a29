"""What KServe publishes: files of its Go module, fetched when a test needs them."""

from functools import cache
from pathlib import Path

from tests.releases import fetched

from pointsman.core.documents import read_yaml
from pointsman.core.kinds import Object

MODULE = "github.com/kserve/kserve"
RELEASES = ("v0.16.0", "v0.17.0")


def root(version: str) -> Path:
    """Return the folder of a release; skips the test where it cannot be had."""
    return fetched(MODULE, version)


@cache
def definitions(version: str) -> dict[str, Object]:
    """Return the definitions of LLMInferenceService and its config, by name."""
    folder = root(version) / "config" / "crd" / "full" / "llmisvc"
    found = [read_yaml(path) for path in sorted(folder.glob("serving.kserve.io_*.yaml"))]
    return {document["metadata"]["name"]: document for document in found}


def presets(version: str) -> dict[str, Object]:
    """Return the specs of the presets, by name."""
    folder = root(version) / "config" / "llmisvcconfig"
    found = [read_yaml(path) for path in sorted(folder.glob("config-llm-*.yaml"))]
    return {document["metadata"]["name"]: document["spec"] for document in found}
