"""Rows of the page: what is shown of endpoints and picks, and what changes between two looks."""

import random
from typing import Any

import msgspec
import pytest

from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.page.rows import Endpoints, PickRow, endpoint_row, pick_row, shown
from pointsman.epp.plugins.api import Picked
from pointsman.epp.pool.ejection import Standing, StandingState
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import EndpointMetrics, EndpointView
from pointsman.epp.request.request import Prompt, Request
from pointsman.epp.schedule.decision import Outcome
from pointsman.epp.schedule.director import Director
from pointsman.epp.schedule.records import Record, Records

CONFIG = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
"""


def pool_of(*rows: dict[str, Any], now: float = 10.0) -> Pool:
    pool = Pool(clock=lambda: now)
    pool.replace(
        Endpoint(name=f"pod-{n}", address=f"10.0.0.{n}", port=80, labels={"llm-d.ai/role": row.pop("role", "decode")})
        for n, row in enumerate(rows)
    )
    for member, row in zip(pool.members, rows, strict=True):
        if row:
            member.scraped(EndpointMetrics(updated_at=now, **row), attributes={}, mark=member.mark())
    return pool


def decided(pool: Pool, *, traced: bool = True, **request: Any) -> tuple[PickRow, dict[str, Any]]:
    """Decide a request; return the page's row of it, and what /debug says."""
    rng = random.Random(1)
    scheduler = Builder(clock=lambda: 10.0, rng=rng).build(load(CONFIG)).scheduler
    director = Director(pool=pool, scheduler=scheduler, records=Records(), rng=rng)
    director.explain_next = int(traced)
    asked = {"id": "r1", "headers": {}, "model": "m", "target_model": "m"} | request
    director.direct(Request(**asked))
    assert director.explain_next == 0
    (record,) = director.records.find()
    return pick_row(record, number=7), record.to_json()


def test_a_pick_has_its_runner_up_and_each_scorers_part() -> None:
    pool = pool_of(
        {"waiting": 4, "kv_usage": 0.5}, {"waiting": 0, "kv_usage": 0.25}, {"waiting": 2, "role": "prefill"},
        {"waiting": 1, "kv_usage": 0.0},
    )  # fmt: skip
    row, explained = decided(pool)
    assert (row.number, row.picked, row.name, row.candidates) == (7, "10.0.0.1:80", "pod-1", 4)
    assert (row.score, row.runner, row.runner_score) == (2.75, "10.0.0.3:80", 2.5)
    assert [(bar.scorer, bar.weight, bar.picked, bar.runner) for bar in row.bars] == [
        ("queue-scorer", 2.0, 2.0, 1.5),
        ("kv-cache-utilization-scorer", 1.0, 0.75, 1.0),
    ]
    assert sum(bar.picked or 0 for bar in row.bars) == row.score
    assert row.lost == [("decode-filter", 1)]
    assert (row.picked, row.reason) == (explained["picked"][0], "")


def test_a_pick_that_was_not_traced_has_no_bars_and_all_else() -> None:
    row, explained = decided(pool_of({"waiting": 1}, {"waiting": 0}), traced=False)
    assert (row.bars, row.lost, row.picked) == ([], [], "10.0.0.1:80")
    assert (row.score, row.runner_score) == (3.0, 1.0)
    assert row.reason == explained["reason"]


def test_the_only_endpoint_has_no_runner_up() -> None:
    row, _ = decided(pool_of({"waiting": 1}))
    assert (row.runner, row.runner_score) == ("", None)


def test_a_request_without_a_body_is_drawn_and_says_so() -> None:
    pool = pool_of({}, {})
    row, _ = decided(pool, traced=False, has_body=False)
    assert row.score is None and row.reason.startswith("a request without a body")


def test_no_prompt_and_no_header_is_in_a_row() -> None:
    prompt = Prompt(tokens=3, block_tokens=16, blocks=[12345678901234567])
    row, _ = decided(pool_of({}), prompt=prompt, headers={"authorization": "hidden-secret", "x-a": "seen-by-plugins"})
    text = msgspec.json.encode(row).decode()
    assert not any(each in text for each in ("hidden-secret", "seen-by-plugins", "authorization", "12345678901234567"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("<script>alert(1)</script>", id="markup"),
        pytest.param("\udcff\udc80", id="bytes that are no text"),
        pytest.param("x" * 100_000, id="long"),
        pytest.param('"\n\ndata: {}\n\n', id="an event of its own"),
    ],
)
def test_hostile_names_are_cut_and_can_be_written(name: str) -> None:
    row, _ = decided(pool_of({}), id=name, model=name[:1000], target_model=name[:1000])
    written = msgspec.json.encode(row)
    assert len(written) < 1500 and b"\n" not in written
    assert msgspec.json.decode(written)["id"] == shown(name)


def test_only_what_changed_is_said() -> None:
    pool, seen = pool_of({"waiting": 1}, {"waiting": 2}), Endpoints()
    first, second = pool.members
    changed, gone = seen.update(pool.members, now=10.0)
    assert ([row.target for row in changed], gone) == (["10.0.0.0:80", "10.0.0.1:80"], [])
    assert seen.update(pool.members, now=10.1) == ([], [])
    second.enter()
    ((row,), gone) = seen.update(pool.members, now=10.1)
    assert (row.target, row.inflight, gone) == ("10.0.0.1:80", 1, [])
    pool.replace([first.endpoint])
    assert seen.update(pool.members, now=10.1) == ([], ["10.0.0.1:80"])
    ((row,), _) = seen.update(pool.members, now=13.3)
    assert row.age == 3.2


def test_an_endpoint_that_never_answered_says_nothing_of_itself() -> None:
    (member,) = pool_of({}).members
    row = endpoint_row(member, now=10.0)
    assert (row.running, row.waiting, row.kv_usage, row.age, row.state) == (None, None, None, None, "in")


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (Standing(), ""),
        (
            Standing(state=StandingState.OUT, until=12.4, cause="2 connections failed in a row"),
            "2 connections failed in a row; out for 3 s more",
        ),
        (
            Standing(state=StandingState.OUT, until=9.0, cause="its probe failed"),
            "its probe failed; out until its metrics can be read",
        ),
        (
            Standing(state=StandingState.PROBE, cause="5 answers in a row were 5xx"),
            "5 answers in a row were 5xx; the next request decides",
        ),
    ],
)
def test_why_an_endpoint_is_not_picked(standing: Standing, why: str) -> None:
    (member,) = pool_of({"waiting": 0}).members
    member.standing = standing
    row = endpoint_row(member, now=10.0)
    assert (row.state, row.why) == (standing.state.value, why)


def test_an_endpoint_that_answers_no_scrape_says_so() -> None:
    (member,) = pool_of({"waiting": 0}).members
    member.scrape_failures["metrics"] = 3
    assert endpoint_row(member, now=10.0).why == "its metrics cannot be read"


def test_a_picker_may_choose_outside_of_what_was_scored() -> None:
    first, second = (EndpointView(name=f"p{n}", target=f"10.0.0.{n}:80", address="a", port=80) for n in (1, 2))
    request = Request(id="r", headers={})
    picked = Picked(endpoints=[second], candidates=[first], scores=[1.0])
    outcome = Outcome(request=request, results={"p": picked}, primary="p")
    record = Record(request=request, candidates=[first, second], outcome=outcome)
    row = pick_row(record, number=1)
    assert (row.picked, row.score, row.runner) == ("10.0.0.2:80", None, "")
    assert row.reason == record.to_json()["reason"] == "profile p: chosen outside of the 1 endpoints that were scored"
