"""Our definitions of LLMInferenceService against KServe's: every field that both have is the same field."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests import kserve

from pointsman.api.serving import serving_definitions

Schema = dict[str, Any]
OURS = {document["metadata"]["name"]: document for document in serving_definitions()}
# What the documents of requirement and KServe differ in, and why ours is so.
LAXER = {
    "spec.router.scheduler.config.ref": "a key that is left out is epp, as KServe's controller takes it",
}


def versions(document: Schema) -> dict[str, Schema]:
    return {one["name"]: one for one in document["spec"]["versions"]}


def schema(version: Schema) -> Schema:
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def both(ours: Schema, theirs: Schema, path: str) -> Iterator[tuple[str, Schema, Schema]]:
    """Yield the fields that both have, from the outermost on."""
    yield path, ours, theirs
    for name, field in ours.get("properties", {}).items():
        if name in theirs.get("properties", {}):
            yield from both(field, theirs["properties"][name], f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in ours and inner in theirs:
            yield from both(ours[inner], theirs[inner], f"{path}[]")


@pytest.mark.parametrize("release", kserve.RELEASES)
@pytest.mark.parametrize("name", OURS)
def test_fields_that_both_have_are_the_same(release: str, name: str) -> None:
    published = versions(kserve.definitions(release)[name])
    compared = 0
    for version, theirs in published.items():
        for path, our, their in both(schema(versions(OURS[name])[version]), schema(theirs), "spec"):
            compared += 1
            for word in ("type", "format", "enum", "pattern", "minLength", "maxLength"):
                if their.get(word) is not None:
                    assert our.get(word) == their[word], (path, word)
            assert our.get("minimum", -(2**31)) <= their.get("minimum", -(2**31)), path
            assert our.get("maximum", 2**31 - 1) >= their.get("maximum", 2**31 - 1), path
            if path not in LAXER and "properties" in our:  # what is opaque is checked by whoever gets it
                assert set(our.get("required", ())) == set(their.get("required", ())), path
    assert compared > 20


@pytest.mark.parametrize("release", kserve.RELEASES)
def test_what_people_see_is_the_same(release: str) -> None:
    theirs, ours = (
        kserve.definitions(release)["llminferenceservices.serving.kserve.io"],
        OURS["llminferenceservices.serving.kserve.io"],
    )
    assert ours["spec"]["names"] == theirs["spec"]["names"]
    for name, version in versions(theirs).items():
        columns = [(one["name"], one["type"]) for one in version["additionalPrinterColumns"]]
        assert [(one["name"], one["type"]) for one in versions(ours)[name]["additionalPrinterColumns"]] == columns


def test_the_same_version_is_stored() -> None:
    theirs = versions(kserve.definitions("v0.17.0")["llminferenceservices.serving.kserve.io"])
    ours = versions(OURS["llminferenceservices.serving.kserve.io"])
    assert {name: one["storage"] for name, one in ours.items()} == {
        name: one["storage"] for name, one in theirs.items()
    }


def test_every_field_that_only_kserve_has_is_kept() -> None:
    """Each block whose fields we do not all have keeps what it does not know."""
    theirs = schema(versions(kserve.definitions("v0.17.0")["llminferenceservices.serving.kserve.io"])["v1alpha2"])
    ours = schema(versions(OURS["llminferenceservices.serving.kserve.io"])["v1alpha2"])
    for path, our, their in both(ours, theirs, "spec"):
        if set(their.get("properties", {})) - set(our.get("properties", {})):
            assert our.get("x-kubernetes-preserve-unknown-fields") is True, path
