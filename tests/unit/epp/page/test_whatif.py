"""What-if: edited configurations on the decisions of the last minutes, with what is loaded and nothing else."""

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pointsman.core.errors import UserError
from pointsman.core.http import Request as HttpRequest
from pointsman.core.http import Response
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import load
from pointsman.epp.page import whatif
from pointsman.epp.page.whatif import WhatIf, compare, plan_of
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import EndpointMetrics
from pointsman.epp.replay import replay
from pointsman.epp.request.request import Prompt, Request
from pointsman.epp.schedule.director import Director
from pointsman.epp.schedule.explain_log import DecisionRecorder, read_recording
from pointsman.epp.schedule.records import Record, Records

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
BY_CACHE = f"{HEAD}plugins: [{{type: kv-cache-utilization-scorer}}]\n"


def built(text: str = "") -> Built:
    return Builder(clock=lambda: 0.0, rng=random.Random(0)).build(load(text))


def decided(tmp_path: Path, *, requests: int = 40) -> tuple[list[Record], Path]:
    """Decide by queues, where the cache says otherwise; return the records, and a recording of them."""
    pool = Pool(clock=lambda: 5.0)
    pool.replace(Endpoint(name=f"pod{n}", address=f"10.0.0.{n}", port=80) for n in range(3))
    rng = random.Random(3)
    records = Records()
    recorder = DecisionRecorder(tmp_path / "rec.jsonl")
    records.listen(recorder)
    director = Director(pool=pool, scheduler=built().scheduler, records=records, rng=rng)
    for number in range(requests):
        for member in pool.members:
            load = EndpointMetrics(waiting=rng.randrange(5), kv_usage=rng.random(), updated_at=4.0)
            member.scraped(load, attributes={}, mark=member.mark())
        prompt = Prompt(tokens=64, block_tokens=16, blocks=[number % 3, 10 + number % 3, 20 + number, 30 + number])
        asked = Request(id=f"r{number}", headers={"authorization": "x"}, model="m", target_model="m", prompt=prompt)
        director.direct(asked)[1].release()
    recorder.close()
    return list(reversed(records.find())), tmp_path / "rec.jsonl"


def ask(
    text: str, *, records: Sequence[Record] = (), content_type: bytes = b"application/yaml"
) -> tuple[WhatIf, HttpRequest]:
    request = HttpRequest(None)  # type: ignore[arg-type]  # nothing is written to it
    request.headers[b"content-type"] = content_type
    request.body = text.encode()
    current = built()
    return WhatIf(decisions=lambda: records, current=lambda: current, allow_experimental=False), request


def answered(text: str, **options: Any) -> tuple[int, dict[str, Any]]:
    what_if, request = ask(text, **options)
    response = asyncio.run(what_if.answer(request))
    assert isinstance(response, Response)
    return response.status, msgspec.json.decode(response.body)


def test_it_is_what_a_replay_of_a_recording_says(tmp_path: Path) -> None:
    records, recording = decided(tmp_path)
    plan = plan_of(BY_CACHE, current=built(), allow_experimental=False)
    ours = list(compare(records, plan=plan))
    assert ours == list(replay(read_recording(recording), plan=load(BY_CACHE)))
    assert 0 < sum(not each.same for each in ours) < len(ours)


def test_the_configuration_in_effect_changes_nothing(tmp_path: Path) -> None:
    records, _ = decided(tmp_path)
    status, found = answered(built().to_yaml(), records=records)
    assert (status, found["decisions"], found["different"], found["rows"]) == (200, 40, 0, [])


def test_the_sides_add_up(tmp_path: Path) -> None:
    records, _ = decided(tmp_path)
    status, found = answered(BY_CACHE, records=records)
    assert status == 200 and found["different"] == len(found["rows"]) > 0
    before, after = (sum(side) for side in list(zip(*found["endpoints"], strict=True))[1:])
    assert before == after == found["decisions"] == 40


def test_a_configuration_under_which_nobody_is_left_refuses_all(tmp_path: Path) -> None:
    records, _ = decided(tmp_path, requests=5)
    text = f"{HEAD}plugins:\n- type: label-selector-filter\n  parameters: {{matchLabels: {{no: one}}}}\n"
    status, found = answered(text, records=records)
    assert (status, found["different"], found["refused"]) == (200, 5, 5), found
    assert found["rows"][0]["replayed"] == "" and found["rows"][0]["refusal"]


def test_no_decisions_are_no_error() -> None:
    assert answered(BY_CACHE) == (
        200,
        {"decisions": 0, "different": 0, "refused": 0, "rows": [], "endpoints": [], "seconds": 0.0},
    )


@pytest.mark.parametrize("kind", ["this:Zen", "antigravity:Anything", "tests.work:Nothing"])
def test_nothing_is_imported(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = kind.partition(":")[0]
    monkeypatch.delitem(sys.modules, module, raising=False)

    def never(*names: Any, **_: Any) -> None:
        raise AssertionError(f"imported {names}")

    monkeypatch.setattr("importlib.import_module", never)
    status, found = answered(f"{HEAD}plugins: [{{type: '{kind}'}}]\n")
    assert status == 400 and "is not loaded" in found["problem"] and "plugins[0].type" in found["problem"]
    assert module not in sys.modules


def test_a_class_that_the_picker_has_loaded_may_be_named() -> None:
    name = "tests.unit.epp.custom_plugins:Plain"
    current = built(f"{HEAD}plugins: [{{type: '{name}'}}, {{type: queue-scorer}}]\n")
    plan = plan_of(f"{HEAD}plugins: [{{type: '{name}'}}]\n", current=current, allow_experimental=False)
    assert plan.plugins[0].type is current.made[name].declared.type


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{", "not valid YAML", id="no YAML"),
        pytest.param("[]", "expected a mapping", id="no mapping"),
        pytest.param(
            HEAD + "plugins: [" + ", ".join(f"{{type: queue-scorer, name: s{n}}}" for n in range(200)) + "]",
            "leave some out",
            id="very many plugins",
        ),
        pytest.param(
            f"{HEAD}plugins: [{{type: queue-scorer}}]\n"
            f"schedulingProfiles: [{{name: p, plugins: [{', '.join(['{pluginRef: queue-scorer}'] * 200)}]}}]",
            "leave some out",
            id="very many references",
        ),
        pytest.param(f"{HEAD}plugins: [{{type: queue-scorers}}]", "queue-scorers", id="a typo"),
        pytest.param(f"{HEAD}plugins: [{{type: header-profile-handler}}]", "experimental", id="not allowed here"),
        pytest.param(f"{HEAD}plugins: [{{type: precise-prefix-cache-scorer}}]", "precise", id="not there yet"),
        pytest.param("a: &a [1]\nb: [" + ",".join(["*a"] * 5) + "]", "apiVersion", id="references"),
        pytest.param("\udcff", "", id="no text"),
        pytest.param("[" * 16_000, "", id="deep"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    what_if, request = ask("")
    request.body = text.encode("utf-8", "surrogateescape")
    response = asyncio.run(what_if.answer(request))
    assert response.status == 400 and said in msgspec.json.decode(response.body)["problem"]


def test_a_large_configuration_is_not_read() -> None:
    status, found = answered(BY_CACHE + "#" * (whatif.MOST_BYTES - len(BY_CACHE)))
    assert status == 200
    status, found = answered(BY_CACHE + "#" * whatif.MOST_BYTES)
    assert status == 413 and "16384 bytes" in found["problem"]


def test_another_sites_page_cannot_ask() -> None:
    status, found = answered(BY_CACHE, content_type=b"text/plain")
    assert status == 415 and "application/yaml" in found["problem"]


async def test_one_at_a_time_and_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, _ = decided(tmp_path)
    monkeypatch.setattr(whatif, "_WORK_SECONDS", 0.0)  # a rest after each decision
    what_if, request = ask(BY_CACHE, records=records)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(what_if.answer(request))
        await asyncio.sleep(0.005)
        assert not first.done()
        assert (await what_if.answer(request)).status == 429
    assert first.result().status == 200
    assert (await what_if.answer(request)).status == 200


async def test_whoever_leaves_has_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, _ = decided(tmp_path)
    monkeypatch.setattr(whatif, "_WORK_SECONDS", 0.0)
    what_if, request = ask(BY_CACHE, records=records)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(what_if.answer(request))
        await asyncio.sleep(0.005)
        first.cancel()
    assert (await what_if.answer(request)).status == 200


def test_a_problem_is_a_users_error() -> None:
    with pytest.raises(UserError, match="what-if"):
        plan_of("[]", current=built(), allow_experimental=False)
