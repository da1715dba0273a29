"""Endpoints by their labels: what a label says as an attribute, what a value is worth, and who is how near to whom."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from pointsman.epp.plugins.api import PEER_ENDPOINT, Context, Endpoints, Key, Parameters
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

LABEL_PRODUCER = "label-producer"
ENDPOINT_LABELS = "EndpointAttributes"
TOPOLOGY_EXTRACTOR = "topology-extractor"
TOPOLOGY = "Topology"

Places = Sequence[tuple[str, ...]]
"""The labels that say on which host, in which rack, zone and region an endpoint is."""

_WORTH = {"host": 1.0, "rack": 0.20, "zone": 0.05, "region": 0.02}
_PLACES: Places = (
    ("kubernetes.io/hostname", "llm-d.ai/host"),
    ("topology.kubernetes.io/rack", "llm-d.ai/rack"),
    ("topology.kubernetes.io/zone",),
    ("topology.kubernetes.io/region",),
)


class PublishedLabel(Parameters):
    """A label, and the attribute that it becomes."""

    label: str = Field(min_length=1)
    attribute_key: str = Field(min_length=1)


class LabelProducerParameters(Parameters):
    """What `label-producer` takes."""

    labels: tuple[PublishedLabel, ...] = Field(min_length=1)


class LabelProducer:
    """Makes labels of endpoints known as attributes."""

    def __init__(self, parameters: LabelProducerParameters, *, context: Context) -> None:
        self._labels = tuple((each.label, each.attribute_key) for each in parameters.labels)
        self._key = Key[Mapping[str, Mapping[str, str]]](ENDPOINT_LABELS, producer=context.name)
        self.produces = (self._key,)

    def produce(self, _request: Request, endpoints: Endpoints) -> Mapping[str, object]:
        """Return each attribute's value by target."""
        return {
            self._key.name: {
                key: {each.target: each.labels[label] for each in endpoints if label in each.labels}
                for label, key in self._labels
            }
        }


class AttributeWeightParameters(Parameters):
    """What `endpoint-attribute-weight-scorer` takes; an empty `producer` is the usual one."""

    attribute_key: str = Field(min_length=1)
    producer: str
    weights: Mapping[str, float] = Field(min_length=1)

    @field_validator("weights")
    @classmethod
    def _are_positive(cls, weights: Mapping[str, float]) -> Mapping[str, float]:
        if any(not math.isfinite(weight) or weight <= 0 for weight in weights.values()):
            raise ValueError("every weight must be a number above 0")
        return weights


class AttributeWeightScorer:
    """What an endpoint's attribute is worth: weight / largest weight; the least of them where no weight is given.

    With `max-score-picker` the largest takes all; with `weighted-random-picker` the weights are shares of the traffic.
    """

    def __init__(self, parameters: AttributeWeightParameters) -> None:
        most = max(parameters.weights.values())
        self._attribute = parameters.attribute_key
        self._scores = {value: weight / most for value, weight in parameters.weights.items()}
        self._else = min(self._scores.values())
        producer = parameters.producer or LABEL_PRODUCER
        self._labels = Key[Mapping[str, Mapping[str, str]]](ENDPOINT_LABELS, producer=producer)
        self.prefers: Sequence[Key[Any]] = (self._labels,)

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Look each endpoint's value up."""
        values = (self._labels.of(request) or {}).get(self._attribute, {})
        return [self._scores.get(values.get(each.target, ""), self._else) for each in endpoints]


class TopologyParameters(Parameters):
    """What `topology-affinity-scorer` takes."""

    topology_producer_name: str = ""


class TopologyFilterParameters(TopologyParameters):
    """What `topology-affinity-filter` takes."""

    min_affinity: Literal["host", "rack", "zone", "region"] = "host"


class TopologyExtractorParameters(Parameters):
    """What `topology-extractor` takes: the labels to read, where they are not the usual ones."""

    hostname: str = ""
    rack: str = ""
    zone: str = ""
    region: str = ""


class TopologyExtractor:
    """Reads where endpoints are from their labels; there is nothing to ask them."""

    kind = "extractor"

    def __init__(self, parameters: TopologyExtractorParameters, *, context: Context) -> None:
        given = (parameters.hostname, parameters.rack, parameters.zone, parameters.region)
        self._places: Places = [(own,) if own else usual for own, usual in zip(given, _PLACES, strict=True)]
        self._key = Key[Places](TOPOLOGY, producer=context.name)
        self.produces = (self._key,)

    def produce(self, _request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return which labels say it."""
        return {self._key.name: self._places}


def nearness(one: EndpointView, other: EndpointView, *, places: Places = _PLACES) -> float:
    """Return how near two endpoints are: on one host 1, then rack, zone, region, and 0 for no common place."""
    for labels, worth in zip(places, _WORTH.values(), strict=True):
        for label in labels:
            here = one.labels.get(label)
            if here and here == other.labels.get(label):
                return worth
    return 0.0


def _peer(request: Request) -> EndpointView | None:
    peer = request.attributes.get(PEER_ENDPOINT)
    return peer if isinstance(peer, EndpointView) else None


class _Topology:
    """What filter and scorer share: which labels say where endpoints are."""

    def __init__(self, parameters: TopologyParameters) -> None:
        named = parameters.topology_producer_name
        self._places = Key[Places](TOPOLOGY, producer=named or TOPOLOGY_EXTRACTOR)
        self.prefers: Sequence[Key[Any]] = (self._places,) if named else ()

    def _nearness(self, request: Request, peer: EndpointView, endpoints: Endpoints) -> list[float]:
        places = self._places.of(request) or _PLACES
        return [nearness(each, peer, places=places) for each in endpoints]


class TopologyAffinityScorer(_Topology):
    """The nearer to the endpoint of the stage before, the better: host 1, rack .2, zone .05, region .02."""

    def __init__(self, parameters: TopologyParameters) -> None:
        super().__init__(parameters)

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare each with the peer; 0 for everyone when there is none."""
        peer = _peer(request)
        return [0.0] * len(endpoints) if peer is None else self._nearness(request, peer, endpoints)


class TopologyAffinityFilter(_Topology):
    """Endpoints that are near enough to the endpoint of the stage before; all where none is, or nobody is known."""

    def __init__(self, parameters: TopologyFilterParameters) -> None:
        super().__init__(parameters)
        self._least = _WORTH[parameters.min_affinity]

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep the near ones."""
        peer = _peer(request)
        if peer is None:
            return endpoints
        near = self._nearness(request, peer, endpoints)
        return [each for each, worth in zip(endpoints, near, strict=True) if worth >= self._least] or endpoints
