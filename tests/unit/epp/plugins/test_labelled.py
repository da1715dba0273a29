"""Endpoints by their labels."""

import pytest
from tests.unit.epp.plugins.making import endpoint, make, names, request

from pointsman.core.values import check
from pointsman.epp.plugins.api import PEER_ENDPOINT
from pointsman.epp.plugins.labelled import AttributeWeightParameters

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def test_a_label_becomes_an_attribute_and_its_values_have_weights() -> None:
    views = [endpoint(name, labels={"gpu": gpu}) for name, gpu in (("a", "h100"), ("b", "a100"), ("c", "t4"))]
    views.append(endpoint("d"))
    producer = make("label-producer", labels=[{"label": "gpu", "attributeKey": "gpu-type"}])
    known = request(attributes=producer.produce(request(), views))
    scorer = make(
        "endpoint-attribute-weight-scorer", attributeKey="gpu-type", producer="", weights={"h100": 4, "a100": 1}
    )
    assert scorer.score(known, views) == [1.0, 0.25, 0.25, 0.25], "who has no weight has the least"
    assert scorer.score(request(), views) == [0.25] * 4
    assert [key.producer for key in scorer.prefers] == ["label-producer"]


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": -1}, {"a": float("inf")}])
def test_weights_must_be_above_zero(weights: dict[str, float]) -> None:
    raw = {"attributeKey": "k", "producer": "", "weights": weights}
    assert check(AttributeWeightParameters, raw, path="p").problems


def test_the_near_are_preferred_to_the_far() -> None:
    peer = endpoint("p", labels={HOST: "n1", ZONE: "z1"})
    views = [
        endpoint("same-host", labels={HOST: "n1", ZONE: "z1"}),
        endpoint("same-zone", labels={HOST: "n2", ZONE: "z1"}),
        endpoint("elsewhere", labels={HOST: "n3", ZONE: "z2"}),
        endpoint("unknown"),
    ]
    known = request(attributes={PEER_ENDPOINT: peer})
    assert make("topology-affinity-scorer").score(known, views) == [1.0, 0.05, 0.0, 0.0]
    assert names(make("topology-affinity-filter").filter(known, views)) == ["same-host"]
    assert names(make("topology-affinity-filter", minAffinity="zone").filter(known, views)) == [
        "same-host",
        "same-zone",
    ]
    assert make("topology-affinity-filter").filter(request(), views) == views, "without a peer nobody is dropped"
    assert make("topology-affinity-filter").filter(known, views[2:]) == views[2:], "and never everybody"


def test_an_extractor_says_which_labels_are_places() -> None:
    peer, other = endpoint("p", labels={"node": "n1", HOST: "x"}), endpoint("o", labels={"node": "n2", HOST: "x"})
    same = endpoint("s", labels={"node": "n1", HOST: "y"})
    extractor = make("topology-extractor", hostname="node")
    known = request(attributes={PEER_ENDPOINT: peer, **extractor.produce(request(), [])})
    assert make("topology-affinity-scorer").score(known, [same, other]) == [1.0, 0.0]
    assert names(make("topology-affinity-filter").filter(known, [same, other])) == ["s"]
    named = make("topology-affinity-scorer", topologyProducerName="another")
    assert named.score(known, [same, other]) == [0.0, 1.0], "it reads another extractor, which is not there"
    assert [key.producer for key in named.prefers] == ["another"]
