"""The demo's judgement. That a real stack passes it is `tests/envoy/test_demo.py`."""

import pytest

from pointsman.cli.demo import Case, DemoOutcome, batches, cases, verdict


def outcome(*, picked: str | None = "a", answered: str | None = "a", status: int = 200) -> DemoOutcome:
    case = Case(group="g", prompt="p")
    return DemoOutcome(case=case, status=status, events=0, picked=picked, reason="r", answered=answered)


def test_exit_is_zero_only_when_all_agree() -> None:
    assert verdict([outcome(), outcome()]) == ("all 2 requests were answered by the endpoint that was picked", 0)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(outcome(answered="b"), id="another answered"),
        pytest.param(outcome(picked=None, answered=None), id="nobody was asked"),
        pytest.param(outcome(status=503), id="refused"),
    ],
)
def test_one_that_disagrees_fails_the_demo(bad: DemoOutcome) -> None:
    assert verdict([outcome(), bad])[1] == 1


def test_no_request_is_no_proof() -> None:
    assert verdict([])[1] == 1


def test_same_different_and_streamed_are_all_there() -> None:
    kinds = {(case.group.split(",")[0], case.stream) for case in cases()}
    assert kinds == {("same prompt", False), ("different prompts", False), ("same prompt", True)}


def test_only_what_is_sent_at_once_shares_a_batch() -> None:
    assert [len(batch) for batch in batches(cases())] == [1, 1, 1, 4, 3]
