"""Any mix of our plugins over any endpoints picks one of them, or refuses in words; never anything else."""

import os
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.core.documents import to_yaml
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.config.registry import BUILT_IN
from pointsman.epp.pool.view import EndpointMetrics, EndpointView, Lora
from pointsman.epp.request.refusals import ResourceExhausted
from pointsman.epp.request.request import Prompt, Request
from pointsman.epp.schedule.explain import Meters, Trace

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "40"))

NEEDED: dict[str, dict[str, Any]] = {
    "by-label": {"label": "gpu", "allowsNoLabel": True},
    "endpoint-attribute-filter": {
        "attribute": "t", "algorithm": {"threshold": {"operator": "LessThan", "value": 1}},
    },
    "endpoint-attribute-scorer": {
        "attributeKey": "t",
        "algorithm": {"type": "linear_lower_is_better", "normalization": {"adaptiveRange": {}}},
    },
    "header-label-affinity-scorer": {"headerName": "x-gpu", "labelKey": "gpu"},
}  # fmt: skip
PAIRED = {"endpoint-attribute-weight-scorer"}  # needs a producer that has to be configured
IN_PROFILES = [name for name, kind in BUILT_IN.items() if kind.in_profiles and name not in PAIRED]
PLUGINS = [name for name in IN_PROFILES if not hasattr(BUILT_IN[name].cls, "pick")]
PICKERS = [name for name, kind in BUILT_IN.items() if hasattr(kind.cls, "pick")]

roles = st.sampled_from(["decode", "prefill", "encode", "both"])
labels = st.fixed_dictionaries({}, optional={"llm-d.ai/role": roles, "gpu": st.sampled_from(["h100", "a100"])})
counts = st.integers(0, 50)


@st.composite
def endpoints(draw: st.DrawFn) -> list[EndpointView]:
    views = []
    for number in range(draw(st.integers(1, 6))):
        metrics = EndpointMetrics(
            waiting=draw(counts),
            kv_usage=draw(st.floats(0, 1)),
            lora=Lora(running=frozenset(draw(st.sets(st.sampled_from("mn")))), max_active=draw(st.integers(0, 3))),
            updated_at=draw(st.none() | st.just(0.0) | st.just(-9.0)),
        )
        view = EndpointView(
            name=f"e{number}",
            target=f"10.0.0.{number}:80",
            address=f"10.0.0.{number}",
            port=80,
            labels=draw(labels),
            waiting=draw(counts),
            running=draw(counts),
            kv_usage=draw(st.floats(0, 1)),
            inflight_requests=draw(counts),
            inflight_tokens=draw(counts) * 100,
            metrics=metrics,
            attributes=draw(st.just({}) | st.just({"t": 0.5})),
        )
        views.append(view)
    return views


requests = st.builds(
    Request,
    id=st.just("r"),
    headers=st.fixed_dictionaries({}, optional={"x-gpu": st.just("h100"), "x-session-token": st.text(max_size=4)}),
    model=st.sampled_from(["m", "x"]),
    priority=st.integers(-1, 1),
    prompt=st.none()
    | st.builds(Prompt, tokens=counts, block_tokens=st.just(64), blocks=st.lists(st.integers(0, 9), max_size=4)),
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(PLUGINS), unique=True, max_size=6),
    st.sampled_from(PICKERS),
    st.lists(st.tuples(requests, endpoints()), min_size=1, max_size=4),
)
def test_fuzz_decisions(chosen: list[str], picker: str, history: list[tuple[Request, list[EndpointView]]]) -> None:
    document = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": name, "parameters": NEEDED.get(name, {})} for name in [*chosen, picker]],
    }
    meters = Meters()
    builder = Builder(clock=lambda: 0.0, rng=random.Random(7), meters=meters)
    scheduler = builder.build(load(to_yaml(document), allow_experimental=True)).scheduler
    for request, views in history:
        scheduler.endpoints_changed(frozenset(view.target for view in views))
        try:
            scheduler.admit(request, views)
            trace = Trace()
            outcome = scheduler.decide(request, views, trace=trace)
        except ResourceExhausted:
            continue
        scheduler.commit(outcome, trace=trace)
        assert all(any(each is view for view in views) for each in outcome.picked.endpoints)
        assert all(0 <= score <= len(chosen) for score in outcome.picked.scores)
        assert trace.to_json()["profiles"]["default"]["candidates"]
    assert not [meter for meter in meters if meter.errors], "our own plugins never fail"
