"""Messages of the latency predictor, both ways: what its two servers read, and what is made of their answers."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.epp.request.predictions import (
    Features,
    Sample,
    Samples,
    Unreadable,
    question_body,
    read_answer,
    training_body,
)

ROW = Features(
    kv_cache_percentage=0.25,
    input_token_length=120,
    num_request_waiting=3,
    num_request_running=2,
    num_tokens_generated=1,
    prefix_cache_score=0.5,
    prefill_tokens_in_flight=900,
)
WIRE = {
    "kv_cache_percentage": 0.25,
    "input_token_length": 120,
    "num_request_waiting": 3,
    "num_request_running": 2,
    "num_tokens_generated": 1,
    "prefix_cache_score": 0.5,
    "encoder_input_size": 0,
    "encoder_matched_size": 0,
    "prefill_tokens_in_flight": 900,
    "decode_tokens_in_flight": 0,
}


def predictions(*rows: Any, **more: Any) -> bytes:
    return json.dumps({"predictions": rows, "total_requests": len(rows), **more}).encode()


def row(ttft: Any, tpot: Any = 5.0) -> dict[str, Any]:
    """One prediction as the server writes it, with what nobody reads."""
    return {"ttft_ms": ttft, "tpot_ms": tpot, "predicted_at": "2026-01-01T00:00:00Z", "model_type": "xgboost"}


def test_a_question_has_a_row_for_each_endpoint_with_every_number() -> None:
    assert json.loads(question_body([ROW, ROW])) == {"requests": [WIRE, WIRE]}


def test_a_role_is_said_where_there_is_one() -> None:
    prefill = Features(**{**WIRE, "pod_type": "prefill"})  # type: ignore[arg-type] # a table of both kinds of numbers
    assert json.loads(question_body([prefill])) == {"requests": [{**WIRE, "pod_type": "prefill"}]}


def test_an_answer_is_two_numbers_for_each_row() -> None:
    answer = predictions(row(12.5), row(7, 0), successful_predictions=2, failed_predictions=0, processing_time_ms=1.0)
    assert read_answer(answer, rows=2) == [(12.5, 5.0), (7.0, 0.0)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "truncated"),
        (b"<html>", "malformed"),
        (b'{"predictions":', "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"detail":"not ready"}', "missing required field `predictions`"),
        (predictions(), "0 predictions for 1"),
        (predictions(row(1), row(2)), "2 predictions for 1"),
        (predictions(None), "Expected `object`"),
        (predictions(row("fast")), "Expected `float`"),
        (predictions({"ttft_ms": 1}), "missing required field `tpot_ms`"),
        (predictions(row(-1)), "no time"),
        (predictions(row(1, -0.5)), "no time"),
        (predictions(row(1e300)), "no time"),
        (b'{"predictions":[{"ttft_ms":1e999,"tpot_ms":1}]}', "out of range"),
        (predictions(row(1)).replace(b"1", b"NaN", 1), "malformed"),
        (predictions(row(1), failed_predictions=1), "1 predictions failed"),
        (b"[" * 100_000, "Expected `object`"),
    ],
)
def test_an_answer_that_is_none_is_said_to_be_none(answer: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=f"(?i){why}"):
        read_answer(answer, rows=1)


def test_training_entries_have_one_of_the_two_times_and_when_it_was() -> None:
    first = Sample(features=ROW, at=98.0, ttft_ms=80.0, predicted_ttft_ms=75.0)
    further = Sample(features=ROW, at=100.0, tpot_ms=9.5)
    wall = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    body = json.loads(training_body([first, further], now=100.0, wall=wall))
    assert body == {
        "entries": [
            {
                **WIRE,
                "actual_ttft_ms": 80.0,
                "actual_tpot_ms": 0.0,
                "predicted_ttft_ms": 75.0,
                "timestamp": "2026-01-01T00:00:08Z",
            },
            {**WIRE, "actual_ttft_ms": 0.0, "actual_tpot_ms": 9.5, "timestamp": "2026-01-01T00:00:10Z"},
        ]
    }


def test_of_too_many_samples_the_oldest_go() -> None:
    samples = Samples(3)
    for at in range(5):
        samples.add(Sample(features=ROW, at=float(at)))
    assert [each.at for each in samples.take()] == [2.0, 3.0, 4.0]
    assert samples.results == {"dropped": 2}
    assert samples.take() == []
