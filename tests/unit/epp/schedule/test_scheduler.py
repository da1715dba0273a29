"""A configuration at work, and what happens to a request when a plugin does not behave."""

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.logs import captured
from tests.unit.epp.plugins.making import endpoint, request

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.plugins.api import HeaderChanges
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.schedule.explain import Meters, Trace
from pointsman.epp.schedule.points import Hooked
from pointsman.epp.schedule.scheduler import Scheduler, prefers

VIEWS = [endpoint("a", waiting=3), endpoint("b")]
ANSWERS = [
    pytest.param(RuntimeError("boom"), id="raises"),
    pytest.param(None, id="nothing"),
    pytest.param(42, id="a number"),
    pytest.param(object(), id="an object"),
]


class Odd:
    """Has one method, which answers what it is told to."""

    produces = ()

    def __init__(self, method: str, answer: Any) -> None:
        def respond(*_arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        setattr(self, method, respond)


def scheduler(**odd: Any) -> tuple[Scheduler, Meters]:
    """The default configuration, with one extension point taken over by a plugin that does not behave."""
    meters = Meters()
    parts = Builder(clock=lambda: 0.0, rng=random.Random(7), meters=meters).build(load("")).scheduler._parts
    changed: dict[str, Any] = {}
    for point, plugin in odd.items():
        hooked = Hooked(plugin, meters.get(point, type_name="odd", name="odd"))
        changed[point] = hooked if point in {"handler", "detector"} else [hooked]
    return Scheduler(replace(parts, **changed)), meters


def errors(meters: Meters) -> int:
    return sum(meter.errors for meter in meters)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize(
    ("point", "method"),
    [("producers", "produce"), ("producers", "needs"), ("before_send", "before_send"), ("handler", "next_profiles")],
)
def test_whatever_a_plugin_does_the_request_is_served(point: str, method: str, answer: Any) -> None:
    made, _ = scheduler(**{point: Odd(method, answer)})
    made.needs(VIEWS)
    outcome = made.decide(request(), VIEWS)
    assert outcome.picked.first.name == "b"
    made.commit(outcome)


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("boom"),
        42,
        object(),
        HeaderChanges(set=[("a", 5)]),  # type: ignore[list-item] # what people may write
        HeaderChanges(set=["ab", "c"]),  # type: ignore[list-item] # as above
        HeaderChanges(set=[("a\nb", "c")]),
        HeaderChanges(set=[("a", "b\r\nc: d")]),
        HeaderChanges(remove=[7]),  # type: ignore[list-item] # as above
        HeaderChanges(remove=["a b"]),
    ],
)
def test_what_does_not_behave_is_counted(answer: Any) -> None:
    made, meters = scheduler(before_send=Odd("before_send", answer))
    changes = made.commit(made.decide(request(), VIEWS))
    assert list(changes.set) == [] and list(changes.remove) == []
    assert errors(meters) == 1


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_handler_that_cannot_conclude_is_replaced_by_the_first_profile(answer: Any) -> None:
    handler = Odd("conclude", answer)
    asked = iter([("default",), ()])
    handler.next_profiles = lambda *_: next(asked)  # type: ignore[attr-defined] # a plugin by its methods
    made, _ = scheduler(handler=handler)
    assert made.decide(request(), VIEWS).primary == "default"


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None, object()])
def test_a_detector_that_fails_sheds_nobody(answer: Any) -> None:
    made, meters = scheduler(detector=Odd("saturation", answer))
    made.admit(request(priority=-1), VIEWS)
    assert errors(meters) == 1


def test_an_admitter_that_fails_admits() -> None:
    made, meters = scheduler(admitters=Odd("admit", RuntimeError("boom")))
    assert made.decide(request(), VIEWS)
    assert errors(meters) == 1


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None, 42, [("a", 1)], [("a b", "c")], ["abc"]])
def test_a_response_hook_that_fails_adds_nothing(answer: Any) -> None:
    made, meters = scheduler(on_response=Odd("on_response", answer))
    assert made.responds
    assert made.respond(request(), VIEWS[0]) == []
    assert errors(meters) == 1


def test_a_plugin_that_cannot_take_the_news_of_endpoints_does_not_stop_them() -> None:
    made, meters = scheduler(on_endpoints=Odd("on_endpoints", RuntimeError("boom")))
    made.endpoints_changed(frozenset({"a"}))
    assert errors(meters) == 1


def test_a_refusal_from_a_plugin_is_an_answer() -> None:
    made, meters = scheduler(admitters=Odd("admit", BadRequest("not today")))
    with pytest.raises(BadRequest, match="not today"):
        made.decide(request(), VIEWS)
    assert errors(meters) == 0


def test_a_failure_stands_in_the_explanation() -> None:
    made, _ = scheduler(producers=Odd("produce", RuntimeError("boom")))
    trace = Trace()
    made.decide(request(), VIEWS, trace=trace)
    (row,) = [each for each in trace.to_json()["plugins"] if "error" in each]
    assert row["plugin"] == "odd" and "boom" in row["error"]


def test_a_handler_that_asks_for_the_same_profile_for_ever_is_asked_no_more() -> None:
    handler = Odd("next_profiles", ("default",))
    made, _ = scheduler(handler=handler)
    assert made.decide(request(), VIEWS).picked.first.name == "b"


def test_failures_are_logged_less_and_less() -> None:
    made, meters = scheduler(admitters=Odd("admit", RuntimeError("boom")))
    with captured() as events:
        for _ in range(10):
            made.decide(request(), VIEWS)
    assert errors(meters) == 10
    assert [(event["event"], event["errors"]) for event in events] == [("plugin failed", n) for n in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("if-available", True),
        ("If-Available", True),
        ("respond-async, if-available; foo=1", True),
        ('wait=10,IF-AVAILABLE="1"', True),
        ("not-if-available", False),
        ("if-available-not", False),
        ("", False),
    ],
)
def test_wishes_of_rfc_7240(header: str, found: bool) -> None:
    assert prefers(header, "if-available") == found


def test_one_header_has_one_value_whoever_sets_it() -> None:
    text = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: disagg-headers-handler}
- {type: decode-filter}
- {type: prefill-filter}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
"""
    scheduler = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(load(text)).scheduler
    views = [endpoint("p", labels={"llm-d.ai/role": "prefill"}), endpoint("d", labels={"llm-d.ai/role": "decode"})]
    changes = scheduler.commit(scheduler.decide(request(), views))
    assert changes.set == [("x-prefiller-host-port", "p:8000")]
    assert list(changes.remove) == ["x-encoder-hosts-ports"]
