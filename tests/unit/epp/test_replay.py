"""Recordings: written, rotated, read back, and decided again."""

import random
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.pool import Pool
from pointsman.epp.pool.view import EndpointMetrics, Lora
from pointsman.epp.replay import Comparison, replay
from pointsman.epp.request.request import MediaItem, Prompt, Request
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.explain_log import DecisionRecorder, read_recording
from pointsman.epp.schedule.records import Records

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def record(path: Path, *requests: Request, explain: bool = False, **options: Any) -> list[str]:
    """Decide the requests by the default configuration, record it, and return the picks."""
    pool = Pool(clock=lambda: 5.0)
    pool.replace(
        [
            Endpoint(name=f"pod{n}", address=f"10.0.0.{n}", port=8000, labels={"llm-d.ai/role": role})
            for n, role in ((1, "decode"), (2, "prefill"))
        ]
    )
    for member, waiting in zip(pool.members, (0, 3), strict=True):
        metrics = EndpointMetrics(waiting=waiting, lora=Lora(running=frozenset({"x"})), updated_at=4.0)
        member.scraped(metrics, attributes={"temp": 1.5}, mark=member.mark())
    records = Records()
    recorder = DecisionRecorder(path, **options)
    records.listen(recorder)
    rng = random.Random(7)
    scheduler = Builder(clock=lambda: 5.0, rng=rng).build(load("")).scheduler
    director = Director(
        pool=pool,
        scheduler=scheduler,
        records=records,
        rng=rng,
        options=DirectorOptions(explain=explain),
        books=Bookkeeper(PickerMetrics(), clock=lambda: 5.0),
    )
    picks = []
    for request in requests:
        decision, reservation = director.direct(request)
        reservation.release()
        picks.append(decision.members[0].endpoint.target)
    recorder.close()
    return picks


def ask(number: int, **values: Any) -> Request:
    return Request(id=f"r-{number}", headers=values.pop("headers", {}), model="m", **values)


def test_a_recording_has_all_that_was_known_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    headers = {"authorization": "Bearer secret", "x-a": "b", "cookie": "c"}
    media = MediaItem(hash=2**63 + 7, size=225)
    prompt = Prompt(tokens=64, block_tokens=64, blocks=(2**63 + 5,), items=(media,))
    record(path, ask(1, headers=headers, prompt=prompt), explain=True)
    assert b"secret" not in path.read_bytes()
    (line,) = read_recording(path)
    assert line.headers == {"authorization": "(not recorded)", "x-a": "b", "cookie": "(not recorded)"}
    assert line.request.prompt is not None and list(line.request.prompt.blocks) == [2**63 + 5]
    assert list(line.request.prompt.items) == [media]
    first = line.candidates[0]
    assert (first.waiting, first.metrics.lora.running, first.metrics.age(line.at)) == (0, frozenset({"x"}), 1.0)
    assert first.attributes == {"temp": 1.5}
    assert line.picked[line.primary][0] == "10.0.0.1:8000"
    assert line.explain is not None and "default" in line.explain["profiles"]


def test_the_same_configuration_decides_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    picks = record(path, *(ask(n, prompt=Prompt(tokens=64, block_tokens=64, blocks=(n,))) for n in range(20)))
    results = list(replay(read_recording(path), plan=load("")))
    assert [each.recorded for each in results] == picks
    assert all(each.same for each in results)


def test_another_configuration_is_compared_request_by_request(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    record(path, ask(1), ask(2))
    other = load(HEAD + "plugins: [{type: prefill-filter}]")
    results = list(replay(read_recording(path), plan=other))
    assert [(each.recorded, each.replayed, each.same) for each in results] == [
        ("10.0.0.1:8000", "10.0.0.2:8000", False)
    ] * 2
    assert results[0].recorded_score is None, "filtered out"


def test_a_request_that_would_be_refused_is_different(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    record(path, ask(1))
    (result,) = replay(read_recording(path), plan=load(HEAD + "plugins: [{type: encode-filter}]"))
    assert not result.same and result.replayed == ""
    assert "failed to find target endpoint" in result.refusal


def test_memory_follows_what_really_happened(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    prompt = Prompt(tokens=64, block_tokens=64, blocks=(1,))
    record(path, ask(1, prompt=prompt), ask(2, prompt=prompt))
    config = HEAD + (
        "plugins: [{type: prefix-cache-scorer}, {type: no-hit-lru-scorer}]\n"
        "schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}]}]"
    )
    _, second = replay(read_recording(path), plan=load(config))
    assert (second.recorded, second.replayed) == ("10.0.0.1:8000", "10.0.0.1:8000"), "that is where the prefix is"
    assert second.recorded_score == 1.0


@pytest.mark.parametrize(
    ("scores", "same"),
    [
        pytest.param((1.0, 1.0), True, id="a tie is no reason"),
        pytest.param((0.5, 1.0), False, id="a better score is"),
        pytest.param((None, 1.0), False, id="filtered out"),
    ],
)
def test_what_counts_as_the_same(scores: tuple[float | None, float], same: bool) -> None:
    compared = Comparison(
        request_id="r", recorded="a", replayed="b", recorded_score=scores[0], replayed_score=scores[1]
    )
    assert compared.same is same


def test_a_recording_is_rotated_and_old_ones_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    record(path, *(ask(n) for n in range(7)), max_bytes=1, keep=2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["rec.jsonl", "rec.jsonl.1", "rec.jsonl.2"]
    assert [line.id for line in read_recording(tmp_path / "rec.jsonl.1")] == ["r-6"]
    assert [line.id for line in read_recording(tmp_path / "rec.jsonl.2")] == ["r-5"]


def test_a_line_that_was_cut_off_is_left_out_and_a_wrong_one_named(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    record(path, ask(1), ask(2))
    path.write_bytes(path.read_bytes()[:-20])
    assert [line.id for line in read_recording(path)] == ["r-1"]
    path.write_bytes(b'{"version": 1}\n')
    with pytest.raises(UserError, match=r"rec.jsonl:1: not a recorded decision"):
        list(read_recording(path))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_recording(tmp_path / "none"))


def test_a_disk_that_is_full_costs_no_request(tmp_path: Path) -> None:
    assert len(record(Path("/dev/full"), ask(1), ask(2))) == 2
    with pytest.raises(UserError, match="--record"):
        DecisionRecorder(tmp_path / "no" / "rec.jsonl")
