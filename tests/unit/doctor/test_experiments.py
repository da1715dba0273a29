"""From who answered to a verdict."""

import pytest

from pointsman.doctor.experiments import ProbeAnswer, judge, prompt


def answers(pods: str) -> list[ProbeAnswer]:
    return [ProbeAnswer(pod=f"sim-{one}") for one in pods]


@pytest.mark.parametrize(
    ("pods", "of", "passed", "words"),
    [
        pytest.param(
            "aaaaaaaa", 3, True, "7 of 7 repeats went to sim-a, where the first went; by chance 1 in", id="held"
        ),
        pytest.param("abcabcab", 3, False, "2 of 7 repeats went to sim-a", id="spread"),
        pytest.param("abbbbbbb", 3, False, "0 of 7", id="held elsewhere: what the first cached is not used"),
        pytest.param("aaaaaaaa", 1, False, "7 of 7", id="one Pod proves nothing"),
        pytest.param("aaaa", 0, True, "3 of 3", id="unknown number of Pods"),
    ],
)
def test_prefix_cache(pods: str, of: int, passed: bool, words: str) -> None:
    result = judge("prefix-cache", answers(pods), pods=of)
    assert (result.passed, words in result.evidence) == (passed, True), result


@pytest.mark.parametrize(
    ("pods", "of", "passed", "words"),
    [
        pytest.param("abcabcab", 3, True, "sim-a 3, sim-b 3, sim-c 2", id="all"),
        pytest.param("abababab", 3, False, "2 of 3 Pods answered", id="one left out"),
        pytest.param("aaaaaaaa", 3, False, "1 of 3 Pods answered", id="stuck"),
        pytest.param("abab", 0, True, "sim-a 2, sim-b 2", id="unknown number of Pods"),
        pytest.param("aaaa", 1, False, "1 of 1 Pods answered", id="one Pod is no round"),
    ],
)
def test_round_robin(pods: str, of: int, passed: bool, words: str) -> None:
    result = judge("round-robin", answers(pods), pods=of)
    assert (result.passed, words in result.evidence) == (passed, True), result


@pytest.mark.parametrize("broken", [ProbeAnswer(pod="", status=503, why="status 503: no"), ProbeAnswer(pod="")])
def test_an_answer_from_nobody_proves_nothing(broken: ProbeAnswer) -> None:
    result = judge("prefix-cache", [*answers("aa"), broken], pods=2)
    assert not result.passed
    assert result.evidence == f"1 of 3 requests: {broken.why or 'no x-inference-pod in the answer'}"
    assert result.to_json()["verdict"] == "failed"
    assert "prefix-cache failed" in result.told()


def test_prompts() -> None:
    first, second = (prompt("prefix-cache", number=n, nonce="n") for n in (0, 1))
    assert first == second
    assert first.startswith("verify-prefix-test-n-")
    assert len(first) > 5000
    assert prompt("round-robin", number=0, nonce="n") != prompt("round-robin", number=1, nonce="n")
