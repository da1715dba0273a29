"""The official Anthropic client against a real simulator process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sim.simulator import Simulator, Start

if TYPE_CHECKING:  # seconds to import, and each worker collects every test
    import anthropic

TOOL: anthropic.types.ToolParam = {
    "name": "get_weather",
    "description": "The weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Bern", "Chur"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}


def connect(simulator: Simulator) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=simulator.url, api_key="none", max_retries=0)


def test_whole(shared: Simulator) -> None:
    answer = connect(shared).messages.create(
        model="test-model",
        max_tokens=100,
        system="be brief",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hello, you"}]}],
    )
    assert [block.text for block in answer.content if block.type == "text"] == ["Hello, you"]
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 3)
    assert answer.usage.input_tokens > 3


def test_streamed(shared: Simulator) -> None:
    with connect(shared).messages.stream(
        model="test-model", max_tokens=2, messages=[{"role": "user", "content": "one two three"}]
    ) as stream:
        assert "".join(stream.text_stream) == "one two three"
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 3)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_forced_tool_is_called_with_arguments_that_fit(start: Start, streamed: bool) -> None:
    client = connect(start("--tool-call-extra-call-probability", "0"))
    for _ in range(5):
        if streamed:
            with client.messages.stream(
                model="test-model",
                max_tokens=100,
                messages=[{"role": "user", "content": "weather?"}],
                tools=[TOOL],
                tool_choice={"type": "any"},
            ) as stream:
                answer: anthropic.types.Message = stream.get_final_message()
        else:
            answer = client.messages.create(
                model="test-model",
                max_tokens=100,
                messages=[{"role": "user", "content": "weather?"}],
                tools=[TOOL],
                tool_choice={"type": "any"},
            )
        (call,) = [block for block in answer.content if block.type == "tool_use"]
        assert answer.stop_reason == "tool_use" and call.id.startswith("toolu_")
        assert isinstance(call.input, dict)
        assert call.input["city"] in {"Bern", "Chur"} and isinstance(call.input["days"], int)


def test_an_unknown_model_is_not_found(shared: Simulator) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError):
        connect(shared).messages.create(model="nope", max_tokens=5, messages=[{"role": "user", "content": "x"}])
