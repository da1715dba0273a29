"""Our inference definitions say what the published ones say, field by field, and are the ones in the repository."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.releases import release

from pointsman.api.crd import Schema
from pointsman.api.inference import (
    ALPHA_POOL,
    BUNDLE,
    BUNDLE_VERSION,
    LAST_ALPHA_POOL,
    OBJECTIVES,
    POOL,
    POOL_IMPORT,
    REWRITES,
    inference_definitions,
)
from pointsman.api.inferencepool import InferencePool
from pointsman.core.documents import read_yaml

ROOT = Path(__file__).parents[3]
PORTS = "v1.spec.targetPorts"
# What a release had otherwise, by definition: a line for each place that differs, theirs against ours.
DIFFERENCES: dict[str, dict[str, set[str]]] = {
    "v1.5.0": {},
    "v1.4.0": {},
    "v1.3.1": {str(POOL): {"v1.spec.appProtocol"}},
    "v1.2.1": {
        str(POOL): {"v1.spec.appProtocol"},
        str(REWRITES[1]): {"v1alpha2.spec.rules[].split", "v1alpha2.spec.rules[].targets"},
    },
    "v1.1.0": {str(POOL): {"v1.spec.appProtocol"}},
    "v1.0.2": {
        str(POOL): {
            "v1.spec.appProtocol",
            f"{PORTS}.maxItems",
            f"{PORTS}.x-kubernetes-validations",
            "v1.status.parents[].controllerName",
        }
    },
}


def ours() -> dict[str, Schema]:
    return {document["metadata"]["name"]: document for document in inference_definitions()}


def plain(value: Any) -> Any:
    """Return the value without what people read: descriptions, and the sentences of rules."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    read = {"description"} if isinstance(value.get("description"), str) else set()
    read |= {"message"} if "rule" in value else set()
    found = {name: plain(inner) for name, inner in value.items() if name not in read}
    if isinstance(found.get("required"), list):
        found["required"] = sorted(found["required"])
    return found


def places(theirs: Any, own: Any, *, path: str) -> Iterator[str]:
    """Yield where two schemas differ, as people would name the place."""
    if isinstance(theirs, dict) and isinstance(own, dict):
        for name in sorted(theirs.keys() | own.keys()):
            inner = path if name == "properties" else f"{path}[]" if name == "items" else f"{path}.{name}"
            if name not in theirs or name not in own:
                yield inner
            else:
                yield from places(theirs[name], own[name], path=inner)
    elif theirs != own:
        yield path


def differences(published: Schema, own: Schema) -> set[str]:
    """Return where a published definition differs from ours."""
    theirs, mine = plain(published["spec"]), plain(own["spec"])
    found = set(places(theirs | {"versions": []}, mine | {"versions": []}, path="spec"))
    versions = [{version["name"]: version for version in spec["versions"]} for spec in (theirs, mine)]
    for name in sorted(versions[0].keys() | versions[1].keys()):
        sides = [version.get(name, {}) for version in versions]
        schemas = [side.pop("schema", {}).get("openAPIV3Schema", {}) for side in sides]
        found |= {*places(*sides, path=f"{name}.version"), *places(*schemas, path=name)}
    return found


@pytest.mark.parametrize("version", DIFFERENCES)
def test_schema_is_the_published_one(version: str) -> None:
    published, known = release(version), ours()
    assert set(published) <= set(known), "a definition that we do not have"
    found = {name: differences(document, known[name]) for name, document in published.items()}
    assert {name: places for name, places in found.items() if places} == DIFFERENCES[version]


def test_the_llm_d_group_follows_the_one_that_is_compared() -> None:
    """Its files cannot be fetched; so much is known that they are the older group's, but for one format."""
    own = ours()
    objective, rewrite = (differences(own[str(pair[1])], own[str(pair[0])]) for pair in (OBJECTIVES, REWRITES))
    assert objective == {"spec.group", "v1alpha2.spec.priority.format"}
    assert rewrite == {"spec.group"}


def test_annotations_are_the_published_ones() -> None:
    published, own = release(BUNDLE) | {str(ALPHA_POOL): release(LAST_ALPHA_POOL)[str(ALPHA_POOL)]}, ours()
    assert len(published) == 5
    for name, document in published.items():
        assert own[name]["metadata"]["annotations"] == document["metadata"]["annotations"], name


def test_a_comparison_finds_what_differs() -> None:
    (pool,) = (document for name, document in release(BUNDLE).items() if name == str(POOL))
    spec = pool["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["appProtocol"]["default"] = "h2c"
    spec["selector"]["properties"]["matchLabels"]["maxProperties"] = 63
    spec["targetPorts"]["x-kubernetes-list-type"] = "set"
    spec["targetPorts"]["x-kubernetes-validations"][0]["rule"] = "true"
    assert differences(pool, ours()[str(POOL)]) == {
        "v1.spec.appProtocol.default",
        "v1.spec.selector.matchLabels.maxProperties",
        f"{PORTS}.x-kubernetes-list-type",
        f"{PORTS}.x-kubernetes-validations",
    }


def test_newer_release_differs_in_one_thing() -> None:
    newer, own = release("v1.6.0"), ours()
    found = {name: differences(document, own[name]) for name, document in newer.items()}
    assert found == {str(POOL): {"v1.spec.required"}, str(POOL_IMPORT): set()}


def test_every_field_says_what_it_is_in_our_words() -> None:
    theirs = {text for version in ("v1.4.0", "v1.5.0") for text in _texts(list(release(version).values()))}
    mine = set(_texts(inference_definitions()))
    assert len(mine) > 50
    assert not mine & theirs


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("description"), str):
            yield value["description"].strip()
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def test_files_in_the_repository() -> None:
    """`tools/manifests --check` (in test_crd.py) says whether they are current; this says that they are all there."""
    directory = ROOT / "config" / "crd" / "inference"
    names = set(read_yaml(directory / "kustomization.yaml")["resources"])
    assert names == {path.name for path in directory.glob("*.yaml")} - {"kustomization.yaml"}
    assert {read_yaml(directory / name)["metadata"]["name"] for name in names} == set(ours())


def test_versions_are_said() -> None:
    assert {document["metadata"]["annotations"].get(BUNDLE_VERSION) for document in inference_definitions()} == {
        BUNDLE,
        LAST_ALPHA_POOL,
        None,  # llm-d's own have theirs
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"targetPorts": [{"number": 8000}, {"number": 8000}]}, "a number twice", id="port-twice"),
        pytest.param({"endpointPickerRef": {"name": "picker"}}, "port is required for a Service", id="no-port"),
        pytest.param({"selector": {"matchLabels": {}}}, "at least 1 item", id="no-labels"),
        pytest.param({"appProtocol": "h2"}, "kubernetes.io/h2c", id="protocol"),
    ],
)
def test_models_refuse_what_the_schema_refuses(change: dict[str, Any], says: str) -> None:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": "vllm"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    }
    assert InferencePool.model_validate({"spec": spec}).spec.app_protocol == "http"
    with pytest.raises(ValidationError, match=says):
        InferencePool.model_validate({"spec": spec | change})
