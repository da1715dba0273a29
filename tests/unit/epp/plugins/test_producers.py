"""What a request costs."""

from typing import Any

import pytest
from tests.unit.epp.plugins.making import make, matched, request

from pointsman.core.values import check
from pointsman.epp.plugins.api import RequestCost
from pointsman.epp.plugins.producers import TokenParameters
from pointsman.epp.request.estimate import Estimates, ImageEstimate, VideoEstimate
from pointsman.epp.request.request import LengthHints, Prompt, Request, TokenService


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


@pytest.mark.parametrize(
    ("parameters", "service"),
    [
        pytest.param({}, None, id="estimated"),
        pytest.param({"modelName": "m"}, TokenService(host="localhost", port=8000, model="m"), id="a model alone"),
        pytest.param(
            {"modelName": "m", "vllm": {"url": "http://[::1]:81/x/", "timeout": "200ms", "mmTimeout": "1m"}},
            TokenService(host="::1", port=81, prefix="/x", model="m", seconds=0.2, media_seconds=60.0),
            id="everything said",
        ),
    ],
)
def test_whom_to_ask_for_tokens(parameters: dict[str, Any], service: TokenService | None) -> None:
    assert make("token-producer", **parameters).needs([]).tokenizer == service


@pytest.mark.parametrize(
    ("parameters", "path", "words"),
    [
        pytest.param({"vllm": {}}, "p", "modelName is missing", id="no model"),
        pytest.param({"modelName": "m", "vllm": {"url": "https://x"}}, "p.vllm.url", "must be http://", id="TLS"),
        pytest.param({"modelName": "m", "vllm": {"url": "http://x:y"}}, "p.vllm.url", "must be http://", id="port"),
        pytest.param({"modelName": "m", "vllm": {"uri": ""}}, "p.vllm.uri", "did you mean 'url'?", id="a typo"),
        pytest.param({"modelName": "m", "vllm": {"timeout": "0s"}}, "p.vllm.timeout", "greater than 0", id="no time"),
        pytest.param({"udsTokenizerConfig": {}}, "p.udsTokenizerConfig", "use vllm", id="a tokenizer that is gone"),
    ],
)
def test_tokenizers_that_cannot_be_asked(parameters: dict[str, Any], path: str, words: str) -> None:
    (problem,) = check(TokenParameters, parameters, path="p").problems
    assert problem.path == path
    assert words in problem.message


def test_estimates_are_said_in_llm_ds_words() -> None:
    image = {"mode": "static", "static": {"staticToken": 576}, "defaultResolution": {"width": 100, "height": 50}}
    frames = {"mode": "strided", "maxFrames": 32, "strided": {"frameStride": 2, "defaultSourceFPS": 30}}
    per_frame = {"mode": "static", "static": {"numTokensPerFrame": 66}}
    video = {"frames": frames, "tokensPerFrame": per_frame, "defaultDuration": 5, "maxVideoTokens": 2000}
    found = make("token-producer", estimate={"image": image, "video": video}).needs([]).estimates
    assert found == Estimates(
        image=ImageEstimate(mode="static", fixed=576, width=100, height=50),
        video=VideoEstimate(
            frame=ImageEstimate(mode="static", fixed=66),
            mode="strided",
            most_frames=32,
            merged=0,
            source_fps=30.0,
            stride=2,
            seconds=5.0,
            most_tokens=2000,
        ),
    )


def hinted(*, messages: bool = True, limit: int | None = None, **hints: Any) -> Request:
    prompt = Prompt(tokens=10, max_output_tokens=limit, hints=LengthHints(**hints) if messages else None)
    return request(prompt=prompt)


@pytest.mark.parametrize(
    ("asked", "bucket", "tokens"),
    [
        (hinted(thinking=True, tools=True), "LONG", 4096),
        (hinted(budget=5000), "LONG", 4096),
        (hinted(thinking=False, budget=5000), "UNKNOWN", 1000),
        (hinted(tools=True), "SHORT", 100),
        (hinted(limit=499), "SHORT", 100),
        (hinted(limit=600), "UNKNOWN", 600),
        (hinted(limit=0), "UNKNOWN", 1000),
        (hinted(messages=False, limit=50), "SHORT", 50),
        (hinted(), "UNKNOWN", 1000),
    ],
)
def test_how_long_an_answer_will_be(asked: Request, bucket: str, tokens: int) -> None:
    found = make("outlen-bucket").produce(asked, [])
    assert found == {"outlen-bucket": bucket}
    producer = make("inflight-load-producer", addEstimatedOutputTokens=True)
    known = request(prompt=asked.prompt, attributes=found)
    (cost,) = producer.produce(known, []).values()
    assert cost.output == tokens
    (cost,) = producer.produce(asked, []).values()
    assert asked.prompt is not None
    assert cost.output == min(15, asked.prompt.max_output_tokens or 15), "without the guess by the prompt's length"
