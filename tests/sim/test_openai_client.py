"""The official OpenAI client against a real simulator process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.sim.simulator import Simulator

if TYPE_CHECKING:  # seconds to import, and each worker collects every test
    import openai


@pytest.fixture
def client(shared: Simulator) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)


def test_chat_whole(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="test-model", messages=[{"role": "user", "content": "Hello, world! Ünïcode too."}]
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello, world! Ünïcode too."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert raw.headers["x-inference-pod"].startswith("sim-")


def test_chat_streamed_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="test-model",
            messages=[{"role": "user", "content": "one two three"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two three"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3


def test_completions_for_several_prompts_and_n(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="test-model", prompt=["a b", "c"], n=2)
    assert [(c.index, c.text) for c in answer.choices] == [(0, "a b"), (1, "a b"), (2, "c"), (3, "c")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 6)


def test_completions_of_token_ids_streamed(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model="test-model", prompt=[1, 2, 3], stream=True))
    assert "".join(c.choices[0].text for c in chunks) == "1,2,3"


def test_errors_have_the_status_and_body_that_the_client_knows(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match=r"The model `nope` does not exist\."):
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}], stream=True)
    with pytest.raises(openai.BadRequestError, match="n must be at least 1"):
        client.completions.create(model="test-model", prompt="x", n=0)
    with pytest.raises(openai.BadRequestError, match="asks for a call, and there are no tools"):
        client.chat.completions.create(
            model="test-model", messages=[{"role": "user", "content": "x"}], tool_choice="required"
        )
    with pytest.raises(openai.BadRequestError, match="maximum context length is 1024 tokens"):
        client.completions.create(model="test-model", prompt="x " * 2000)
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model="test-model", prompt="x", extra_headers={"X-Return-Error": "429"})
    assert caught.value.type == "RateLimitError"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["test-model"]


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
            "required": ["city", "days"],
        },
    },
}


def test_a_response_without_anything_to_answer_to_is_refused(client: openai.OpenAI) -> None:
    import openai

    for given in ([], [{"type": "reasoning", "id": "rs_1", "summary": []}]):
        with pytest.raises(openai.BadRequestError, match="input must hold something") as caught:
            client.responses.create(model="test-model", input=given)  # type: ignore[arg-type] # as a client might
        assert caught.value.param == "input"


def test_responses_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="test-model", input="Hello, you", instructions="be brief")
    assert whole.output_text == "Hello, you" and whole.status == "completed"
    assert whole.usage is not None and whole.usage.output_tokens == 3
    events = list(client.responses.create(model="test-model", input="Hello, you", stream=True))
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[-1].type == "response.completed" and events[-1].response.output_text == "Hello, you"


def test_responses_call_a_tool_once_and_then_answer(client: openai.OpenAI) -> None:
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item] # the flat layout of this API
    first = client.responses.create(model="test-model", input="weather?", tools=[tool])  # type: ignore[list-item] # as above
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments)["city"]
    second = client.responses.create(
        model="test-model",
        tools=[tool],  # type: ignore[list-item] # as above
        input=[
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ],
    )
    assert second.output_text == "sunny"


@pytest.mark.parametrize("streamed", [False, True])
def test_required_tools_are_called(client: openai.OpenAI, streamed: bool) -> None:
    ask = {
        "model": "test-model",
        "messages": [{"role": "user", "content": "weather?"}],
        "tools": [WEATHER],
        "tool_choice": "required",
    }
    if streamed:
        with client.chat.completions.stream(**ask) as stream:  # type: ignore[arg-type] # one dict for both forms
            answer = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(**ask)  # type: ignore[call-overload] # as above
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    for call in choice.message.tool_calls or ():
        assert call.function.name == "get_weather" and call.id.startswith("chatcmpl-tool-")
        arguments = json.loads(call.function.arguments)
        assert isinstance(arguments["city"], str) and all(isinstance(d, int) for d in arguments["days"])


def test_logprobs_and_stop(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="test-model",
        messages=[{"role": "user", "content": "a b c STOP d"}],
        logprobs=True,
        top_logprobs=3,
        stop=["STOP"],
    )
    assert chat.choices[0].message.content == "a b c "
    assert chat.choices[0].logprobs is not None and chat.choices[0].logprobs.content is not None
    assert [len(item.top_logprobs) for item in chat.choices[0].logprobs.content] == [3, 3, 3]
    text = client.completions.create(model="test-model", prompt="a b", logprobs=2)
    assert text.choices[0].logprobs is not None
    assert text.choices[0].logprobs.tokens == ["a ", "b"] and text.choices[0].logprobs.text_offset == [0, 2]


def test_embeddings_in_both_encodings(client: openai.OpenAI) -> None:
    import openai

    floats = client.embeddings.create(model="test-model", input=["one two", "three"], encoding_format="float")
    packed = client.embeddings.create(model="test-model", input=["one two", "three"])  # base64 by default
    assert [len(item.embedding) for item in floats.data] == [384, 384]
    assert packed.data[0].embedding == pytest.approx(floats.data[0].embedding)
    assert client.embeddings.create(model="m", input="x", dimensions=7).data[0].index == 0
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="m", input="")
