"""Whom a picker says that it picked, by what is new on its pages."""

from collections.abc import Mapping

import pytest

from pointsman.doctor.gather.picks import Seen, difference, read_picks

PAGE = """\
# TYPE llm_d_epp_scheduler_attempts_total counter
llm_d_epp_scheduler_attempts_total{status="success",endpoint_name="sim-1",port="8200"} 3
llm_d_epp_scheduler_attempts_total{status="failure",endpoint_name="sim-9",port="8200"} 8
inference_extension_scheduler_attempts_total{status="success",pod_name="sim-1"} 3
inference_extension_scheduler_attempts_total{status="success",pod_name="sim-2"} 1
some_other_total{endpoint_name="sim-3"} 4
"""


def test_picks_are_counted_by_endpoint_under_any_name() -> None:
    assert read_picks(PAGE) == {"sim-1": 3.0, "sim-2": 1.0}
    assert read_picks("") == {}


def decided(**decisions: str) -> Seen:
    return Seen(decisions=decisions, counts={})


def counted(counts: Mapping[str, float], why: str = "") -> Seen:
    return Seen(decisions=None, counts=counts, why=why)


@pytest.mark.parametrize(
    ("before", "after", "picked"),
    [
        pytest.param(decided(), decided(mine="a:1", other="b:1"), "a:1", id="under our own id"),
        pytest.param(decided(old="b:1"), decided(old="b:1", new="a:1"), "a:1", id="under an id of the gateway's"),
        pytest.param(decided(old="b:1"), decided(old="b:1"), "", id="not asked"),
        pytest.param(decided(), decided(one="a:1", two="b:1"), None, id="others' requests in between"),
        pytest.param(counted({"a": 1}), counted({"a": 2}), "a", id="counted"),
        pytest.param(counted({"a": 1}), counted({"a": 1}), "", id="counted, not asked"),
        pytest.param(counted({"a": 1}), counted({"a": 2, "b": 1}), None, id="counted, others in between"),
        pytest.param(counted({}), counted({}, "needs a token"), None, id="not to be read"),
    ],
)
def test_what_is_new_was_picked(before: Seen, after: Seen, picked: str | None) -> None:
    assert difference(before, after, request="mine") == picked
