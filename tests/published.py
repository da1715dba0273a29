"""Configurations that the two Go pickers' projects have published: files of Go modules, fetched when needed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.releases import fetched

GATEWAY = "sigs.k8s.io/gateway-api-inference-extension"
LLM_D = "github.com/llm-d/llm-d-inference-scheduler"
MODULES = (
    (GATEWAY, "v1.0.2"),
    (GATEWAY, "v1.1.0"),
    (GATEWAY, "v1.2.1"),
    (GATEWAY, "v1.3.1"),
    (GATEWAY, "v1.4.0"),
    (GATEWAY, "v1.5.0"),
    (LLM_D, "v0.3.2"),
    (LLM_D, "v0.4.0"),
)
"""Of llm-d's scheduler the module proxy has no later release."""

_KIND = "EndpointPickerConfig"
_FENCE = re.compile(r"^( *)```ya?ml\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Published:
    """One configuration, and where it stands."""

    where: str
    text: str


def published(module: str, version: str) -> list[Published]:
    """Return all configurations of a release, each once; skips the test where it cannot be fetched."""
    folder = fetched(module, version)
    found: dict[str, Published] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".yaml", ".yml", ".md"} and path.is_file():
            for text in _in_file(path):
                found.setdefault(text, Published(where=f"{path.relative_to(folder)}", text=text))
    return list(found.values())


def _in_file(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8", "replace")
    if _KIND not in text or "{{" in text:  # a template is none before it is rendered
        return
    blocks = [match[2] for match in _FENCE.finditer(text)] if path.suffix == ".md" else [text]
    for block in blocks:
        try:
            documents = list(yaml.safe_load_all(block))
        except yaml.YAMLError:
            continue
        for document in documents:
            yield from _in_value(document)


def _in_value(value: Any) -> Iterator[str]:
    """Yield the configurations in a document, also those that are the text of a ConfigMap."""
    if isinstance(value, dict):
        if value.get("kind") == _KIND:
            yield yaml.safe_dump(value, sort_keys=False)
            return
        for inner in value.values():
            yield from _in_value(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _in_value(inner)
    elif isinstance(value, str) and f"kind: {_KIND}" in value:
        try:
            yield from _in_value(yaml.safe_load(value))
        except yaml.YAMLError:
            return
