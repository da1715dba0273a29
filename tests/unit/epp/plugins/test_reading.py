"""What a plugin reads of a request is there, also when no other plugin asked for it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.epp.plugins.making import endpoint

from pointsman.core.documents import to_yaml
from pointsman.epp.body.payload import BodyReading
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import load
from pointsman.epp.config.registry import BUILT_IN
from pointsman.epp.plugins.api import Picked
from pointsman.epp.request.request import Needs, Prompt, Request
from pointsman.epp.schedule.points import POINTS

# What a type must be told before it can be made at all.
PARAMETERS: dict[str, dict[str, Any]] = {
    "label-producer": {"labels": [{"label": "gpu", "attributeKey": "gpu-type"}]},
    "request-attribute-reporter": {"attributes": [{"key": {"name": "n"}, "expression": "usage.prompt_tokens"}]},
    "session-id-producer": {"headerName": "x-session-id"},
    "by-label": {"label": "a", "validValues": ["b"]},
    "header-label-affinity-scorer": {"headerName": "x-zone", "labelKey": "zone"},
    "file-discovery": {"path": "endpoints.yaml"},
    "context-length-aware": {"enableFiltering": True},
    "prefix-based-pd-decider": {"nonCachedTokens": 1},
    "inflight-load-producer": {"addEstimatedOutputTokens": True},
    "endpoint-attribute-filter": {
        "attribute": "power",
        "algorithm": {"type": "threshold", "threshold": {"operator": "LessThan", "value": 1}},
    },
    "endpoint-attribute-scorer": {
        "attributeKey": "power",
        "algorithm": {"type": "linear_lower_is_better", "normalization": {"adaptiveRange": {}}},
    },
}
PARAMETERS["endpoint-attribute-weight-scorer"] = {"attributeKey": "gpu-type", "producer": "", "weights": {"h100": 2}}
BESIDE = {
    "endpoint-attribute-weight-scorer": [{"type": "label-producer", "parameters": PARAMETERS["label-producer"]}],
}
READERS = {
    "hints": "hints",
    "prompt": "prompt",
    "tokens": "prompt",
    "multimodal": "prompt",
    "blocks": "block_tokens",
    "items": "media",
}


class Watched:
    """Stands for a request or its prompt, and notes what is read of it."""

    def __init__(self, real: Any, seen: set[str]) -> None:
        self._real = real
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if name in READERS:
            self._seen.add(name)
        return Watched(value, self._seen) if isinstance(value, Prompt) else value


def alone(name: str) -> Built:
    """Build a configuration that has this plugin, and what llm-d adds by itself."""
    document = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": name, "parameters": PARAMETERS.get(name, {})}, *BESIDE.get(name, ())],
    }
    builder = Builder(clock=lambda: 0.0, rng=random.Random(7))
    return builder.build(load(to_yaml(document), allow_experimental=True))


def arguments(request: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield every method of a plugin that is given a request, with what it is given."""
    views = [endpoint("a"), endpoint("b")]
    picked = Picked(endpoints=views[:1], candidates=views, scores=[1.0, 0.0])
    given: dict[str, tuple[Any, ...]] = {
        "score": (request, views),
        "filter": (request, views),
        "pick": (request, views, [1.0, 0.5]),
        "produce": (request, views),
        "admit": (request, views),
        "wants": (request, views[0]),
        "next_profiles": (request, {}),
        "conclude": (request, {"default": picked, "decode": picked}),
        "before_send": (request, {"default": picked, "decode": picked}, "default"),
        "on_response": (request, views[0]),
    }
    yield from ((point.method, given[point.method]) for point in POINTS if point.method in given)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_what_a_plugin_reads_is_read_for_it_when_it_is_alone(name: str) -> None:
    built = alone(name)
    needs: Needs = built.scheduler.needs([])
    seen: set[str] = set()
    prompt = Prompt(tokens=5, block_tokens=64, blocks=[1, 2], multimodal=True)
    real = Request(id="r", headers={}, model="m", target_model="m", priority=-1, prompt=prompt)
    watched = Watched(real, seen)
    for made in list(built.made.values()):
        for method, given in arguments(watched):
            if hasattr(made.plugin, method):
                getattr(made.plugin, method)(*given)
    missing = {field for field in seen if not getattr(needs, READERS[field])}
    assert not missing, f"{name} reads {sorted(missing)} of a request, and nobody asked for it"


@pytest.mark.parametrize("name", ["context-length-aware", "always-disagg-multimodal-decider"])
def test_a_reader_alone_sees_the_prompt(name: str) -> None:
    needs = alone(name).scheduler.needs([])
    body = b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"12345678"},{"type":"image_url",'
    body += b'"image_url":{"url":"https://example.com/cat.png"}}]}]}'
    prompt = BodyReading(body, needs=needs).prompt()
    assert prompt is not None
    assert prompt.multimodal
    assert prompt.tokens > 2
