"""What a request costs."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import make, matched, request

from pointsman.core.values import check
from pointsman.epp.plugins.api import RequestCost
from pointsman.epp.plugins.producers import TokenParameters
from pointsman.epp.request import Prompt, Request


def cost(seen: Request, **parameters: Any) -> RequestCost:
    (found,) = make("inflight-load-producer", **parameters).produce(seen, []).values()
    assert isinstance(found, RequestCost)
    return found


def test_what_is_cached_costs_nothing() -> None:
    seen = matched({"a": 3, "b": 99}, total=5, block_tokens=64, prompt=Prompt(tokens=300))
    assert [cost(seen).at(target) for target in ("a", "b", "c")] == [300 - 3 * 64, 0, 300]


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        pytest.param(None, None, 150, id="by the ratio"),
        pytest.param(40, None, 40, id="the client's own limit"),
        pytest.param(40, 20, 20, id="the operator's limit"),
    ],
)
def test_output_is_estimated_when_asked_for(wanted: int | None, limit: int | None, expected: int) -> None:
    seen = request(prompt=Prompt(tokens=100, max_output_tokens=wanted))
    assert cost(seen).at("a") == 100
    parameters: dict[str, Any] = {
        "addEstimatedOutputTokens": True,
        **({"maxEstimatedOutputTokens": limit} if limit else {}),
    }
    assert cost(seen, **parameters).at("a") == 100 + expected


def test_nothing_is_known_without_a_prompt() -> None:
    assert make("inflight-load-producer").produce(request(), []) == {}
    assert make("token-producer").produce(request(), []) == {}


def test_the_token_producer_hands_on_the_prompt() -> None:
    prompt = Prompt(tokens=7)
    assert make("token-producer").produce(request(prompt=prompt), []) == {"TokenizedPrompt/token-producer": prompt}


def test_a_tokenizer_that_is_not_there_yet_is_refused_in_words() -> None:
    (problem,) = check(TokenParameters, {"vllm": {"url": "http://x"}}, path="p").problems
    assert problem.path == "p.vllm"
    assert "not there yet" in problem.message
