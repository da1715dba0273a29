"""Paths, selectors and media types, as the API server spells them."""

import pytest

from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION, LEASE, Key, Kind, Source, key_of

POD = Kind("", "v1", "Pod", "pods")
WIDGET = Kind("example.dev", "v1", "Widget", "widgets")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(POD.path(), "/api/v1/pods", id="core-collection"),
        pytest.param(POD.path("a", "b"), "/api/v1/namespaces/a/pods/b", id="core-object"),
        pytest.param(LEASE.path("a"), "/apis/coordination.k8s.io/v1/namespaces/a/leases", id="group"),
        pytest.param(
            WIDGET.path("a", "b", subresource="status"),
            "/apis/example.dev/v1/namespaces/a/widgets/b/status",
            id="subresource",
        ),
        pytest.param(
            CUSTOM_RESOURCE_DEFINITION.path("ignored", "x"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x",
            id="cluster-scoped",
        ),
    ],
)
def test_path(path: str, expected: str) -> None:
    assert path == expected


def test_a_kind_is_custom_when_the_server_does_not_bring_it() -> None:
    assert WIDGET.custom
    assert not POD.custom
    assert not LEASE.custom
    assert Kind("gateway.networking.k8s.io", "v1", "Gateway", "gateways").custom


def test_names() -> None:
    assert str(WIDGET) == "widgets.example.dev"
    assert WIDGET.api_version == "example.dev/v1"
    assert str(Key("a", "b")) == "a/b"
    assert str(Key("", "b")) == "b"
    assert key_of({"metadata": {"name": "b"}}) == Key("", "b")


def test_source_asks_only_for_what_it_was_told() -> None:
    assert Source(POD).parameters() == {}
    narrowed = Source(POD, labels="a=b", fields="metadata.name=x")
    assert narrowed.parameters() == {"labelSelector": "a=b", "fieldSelector": "metadata.name=x"}
    assert Source(POD).accept(many=True) == "application/json"
    assert "PartialObjectMetadataList" in Source(POD, metadata_only=True).accept(many=True)
