"""The definition is structural, complete and the one in the repository."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from pointsman.api.crd import Schema, simulator_definition, structural_of

ROOT = Path(__file__).parents[3]
INT_OR_STRING = "x-kubernetes-int-or-string"


def schema() -> Schema:
    (version,) = simulator_definition()["spec"]["versions"]
    whole: Schema = version["schema"]["openAPIV3Schema"]
    return whole


def fields(of: Schema, *, path: str) -> Iterator[tuple[str, Schema]]:
    for name, field in of.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, path=f"{path}.{name}")
        yield from fields(field.get("items", {}), path=f"{path}.{name}[]")


def everything() -> dict[str, Schema]:
    properties = schema()["properties"]
    return {path: field for part in ("spec", "status") for path, field in fields(properties[part], path=part)}


def test_files_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "manifests", "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_every_field_says_what_it_is() -> None:
    found = everything()
    assert len(found) > 70
    assert not [path for path, field in found.items() if not field.get("description")]


def test_structural() -> None:
    def keys(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert not {"anyOf", "allOf", "$ref", "$defs", "title", "const"} & set(keys(schema()))
    assert not [path for path, field in everything().items() if "type" not in field]


def test_null_is_refused_only_where_the_server_puts_a_default() -> None:
    required = {"name", "type", "status"}  # keys of lists
    found = {path: field for path, field in everything().items() if path.rpartition(".")[2] not in required}
    assert not [path for path, field in found.items() if ("default" in field) == bool(field.get("nullable"))]


def test_numbers_quantities_and_lists() -> None:
    found = everything()
    assert found["spec.replicas"] == {
        "type": "integer",
        "format": "int32",
        "description": "Simulator Pods when neither prefill nor decode is enabled.",
        "minimum": 0,
        "maximum": 1_000_000,
        "default": 2,
    }
    assert found["status.observedGeneration"]["format"] == "int64"
    assert found["spec.epp.resources.limits"]["additionalProperties"][INT_OR_STRING] is True
    assert found["status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert found["spec.resources.claims"]["x-kubernetes-list-type"] == "map"
    lists = {path: field for path, field in found.items() if field["type"] == "array" and path.startswith("spec")}
    assert not [path for path, field in lists.items() if "maxItems" not in field or "maxLength" in field]


def test_defaults_apply_to_a_resource_without_spec() -> None:
    assert schema()["properties"]["spec"]["default"] == {}


def test_what_people_type() -> None:
    spec = simulator_definition()["spec"]
    (version,) = spec["versions"]
    assert spec["names"]["shortNames"] == ["simdep"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Replicas", "Ready", "Age"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"


def test_empty_defaults_are_not_written() -> None:
    class Inner(BaseModel):
        value: int = Field(default=3, description="v")

    class Outer(BaseModel):
        text: str = Field(default="", description="t")
        inner: Inner | None = Field(default=None, description="i")

    properties = structural_of(Outer)["properties"]
    assert properties["text"] == {"description": "t", "type": "string", "nullable": True}
    assert properties["inner"]["nullable"] is True
    assert properties["inner"]["properties"]["value"]["default"] == 3
