"""Answers of a wanted shape, and answers that are asked for again, through the official clients."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench import clients
from tests.sim.simulator import Simulator
from tests.sim.trains import Kind, Train

if TYPE_CHECKING:  # seconds to import, and each worker collects every test
    import openai


@pytest.fixture
def client(shared: Simulator) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0)


ASK: Any = [{"role": "user", "content": "Describe the 8:15."}]


def test_chat_parses_into_a_model(client: openai.OpenAI) -> None:
    for _ in range(5):
        answer = client.chat.completions.parse(model="test-model", messages=ASK, response_format=Train)
        train = answer.choices[0].message.parsed
        assert train is not None and isinstance(train.kind, Kind)
        assert answer.choices[0].finish_reason == "stop"


def test_a_stream_parses_into_a_model(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="test-model", messages=ASK, response_format=Train) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Train)


def test_tools_are_called_with_arguments_of_their_model(client: openai.OpenAI) -> None:
    import openai

    tool = openai.pydantic_function_tool(Train)
    answer = client.chat.completions.parse(
        model="test-model", messages=ASK, tools=[tool], tool_choice={"type": "function", "function": {"name": "Train"}}
    )
    calls = answer.choices[0].message.tool_calls
    assert calls and isinstance(calls[0].function.parsed_arguments, Train)


def test_responses_parse_into_a_model_and_can_be_asked_for_again(client: openai.OpenAI) -> None:
    import openai

    answer = client.responses.parse(model="test-model", input="Describe the 8:15.", text_format=Train)
    assert isinstance(answer.output_parsed, Train) and answer.status == "completed"
    again = client.responses.retrieve(answer.id)
    assert (again.id, again.output_text) == (answer.id, answer.output_text)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve("resp_nobody")
    unkept = client.responses.create(model="test-model", input="a", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_a_response_at_its_limit_is_incomplete(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="test-model", input="one two three", max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None and answer.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(model="test-model", input="one two", max_output_tokens=1, stream=True))
    assert events[-1].type == "response.incomplete"


def test_any_object_and_the_shapes_of_vllm(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(model="test-model", messages=ASK, response_format={"type": "json_object"})
    assert isinstance(json.loads(made.choices[0].message.content or ""), dict)
    for asked, allowed in (
        ({"structured_outputs": {"choice": ["red", "green"]}}, {"red", "green"}),
        ({"structured_outputs": {"regex": "[ab]1"}}, {"a1", "b1"}),
        ({"guided_choice": ["x"]}, {"x"}),
    ):
        answer = client.chat.completions.create(model="test-model", messages=ASK, extra_body=asked)
        assert answer.choices[0].message.content in allowed


def test_the_same_seed_gives_the_same_object(client: openai.OpenAI) -> None:
    texts = {
        client.chat.completions.parse(model="test-model", messages=ASK, response_format=Train, seed=7)
        .choices[0]
        .message.content
        for _ in range(3)
    }
    assert len(texts) == 1


def test_a_schema_that_cannot_be_met_is_refused_with_the_reason(client: openai.OpenAI) -> None:
    import openai

    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 4}}}
    shape: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=r"schema\.a allows nothing: its minimum 5 is above its maximum 4"):
        client.chat.completions.create(model="test-model", messages=ASK, response_format=shape)


def test_what_refers_to_itself_fits_into_the_window(client: openai.OpenAI) -> None:
    node: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name", "kids", "next"]}
    node["properties"]["kids"] = {"type": "array", "items": {"$ref": "#"}}
    node["properties"]["next"] = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    shape: Any = {"type": "json_schema", "json_schema": {"name": "node", "schema": node, "strict": True}}
    answer = client.chat.completions.create(model="test-model", messages=ASK, response_format=shape, n=20)
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert all(set(json.loads(choice.message.content or "")) == {"name", "kids", "next"} for choice in answer.choices)


def test_a_stop_text_ends_an_object_too(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"const": "x STOP y"}}, "required": ["a"]}
    shape: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    answer = client.chat.completions.create(model="test-model", messages=ASK, response_format=shape, stop=["STOP"])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ('{"a": "x ', "stop")


def test_one_model_by_its_name(client: openai.OpenAI) -> None:
    import openai

    assert client.models.retrieve("test-model").id == "test-model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/another")


def test_tokens_of_a_message_are_counted_and_stop_sequences_named(shared: Simulator) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=shared.url, api_key="none", max_retries=0)
    ask: Any = [{"role": "user", "content": "one two three"}]
    counted = client.messages.count_tokens(model="test-model", messages=ask, system="be brief").input_tokens
    answer = client.messages.create(
        model="test-model", max_tokens=50, messages=ask, system="be brief", stop_sequences=["three"]
    )
    assert counted == answer.usage.input_tokens
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "three")
    with client.messages.stream(model="test-model", max_tokens=50, messages=ask, stop_sequences=["two"]) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "two")


def test_langchain_gets_structured_output(shared: Simulator) -> None:
    python = clients.python()
    if python is None:
        pytest.skip("langchain-openai is not here: `python -m bench clients --install` gets it, with others of 6 GB")
    command = [str(python), "-m", "tests.sim.langchain_client", f"{shared.url}/v1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    came = {"json_schema": ["Train"], "function_calling": ["Departure"], "json_mode": ["dict"]}
    assert json.loads(done.stdout) == came
