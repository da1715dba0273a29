"""Definitions in files: one sentence for each mistake, whatever the file holds."""

from typing import Any

import pytest
from tests.unit.crds.schemas import definition, version

from pointsman.core.errors import UserError
from pointsman.crds import our_definitions, read_definitions


def changed(**change: Any) -> dict[str, Any]:
    document = definition().document
    return {**document, **change}


def spec(**change: Any) -> dict[str, Any]:
    document = definition().document
    return {**document, "spec": {**document["spec"], **change}}


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        pytest.param([], "no CustomResourceDefinition in it", id="empty"),
        pytest.param([None, 3, [], {"kind": "Service"}], "no CustomResourceDefinition in it", id="other-things"),
        pytest.param([changed(apiVersion="apiextensions.k8s.io/v1beta1")], "write apiextensions.k8s.io/v1", id="beta"),
        pytest.param([changed(metadata=None)], "metadata.name is missing", id="no-metadata"),
        pytest.param([changed(spec="x")], "spec.group and spec.names", id="no-spec"),
        pytest.param([spec(names={"kind": "Thing"})], "spec.names.plural is missing", id="no-plural"),
        pytest.param([spec(versions=[])], "at least one version", id="no-versions"),
        pytest.param([spec(versions=[version(), version()])], "no two the same", id="twice-a-version"),
        pytest.param([spec(versions=[version(storage=False)])], "exactly one", id="no-storage"),
        pytest.param([spec(versions=[version() | {"schema": 1}])], "schema of version v1", id="no-schema"),
        pytest.param([changed(metadata={"name": "x", "annotations": ["x"]})], "annotations is no mapping", id="marks"),
        pytest.param([definition().document] * 2, "stands there twice", id="twice"),
    ],
)
def test_mistakes(documents: list[Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        read_definitions(documents, source="crds.yaml")
    assert str(caught.value).startswith("crds.yaml")
    assert "\n" not in str(caught.value)


def test_ours_are_all_there_and_whole() -> None:
    names = [one.name for one in our_definitions()]
    assert len(names) == 7
    assert [one.name for one in read_definitions([o.document for o in our_definitions()], source="ours")] == names
    assert {one.kind.version for one in our_definitions()} == {"v1", "v1alpha1", "v1alpha2"}
