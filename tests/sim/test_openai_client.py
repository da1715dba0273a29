"""The official OpenAI client against a real simulator process."""

import openai
import pytest
from tests.sim.simulator import Simulator, Start


@pytest.fixture
def client(shared: Simulator) -> openai.OpenAI:
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
    with pytest.raises(openai.NotFoundError, match=r"The model `nope` does not exist\."):
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}], stream=True)
    with pytest.raises(openai.BadRequestError, match="n must be at least 1"):
        client.completions.create(model="test-model", prompt="x", n=0)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 1024 tokens"):
        client.completions.create(model="test-model", prompt="x " * 2000)
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model="test-model", prompt="x", extra_headers={"X-Return-Error": "429"})
    assert caught.value.type == "RateLimitError"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["test-model"]


def test_random_answers_repeat_with_the_seed(start: Start) -> None:
    def text() -> list[str | None]:
        simulator = start("--seed", "7", "--max-model-len", "4096")
        client = openai.OpenAI(base_url=f"{simulator.url}/v1", api_key="none")
        answers = [
            client.chat.completions.create(
                model="test-model", messages=[{"role": "user", "content": "x"}], max_tokens=limit
            )
            for limit in (5, 50, 500)
        ]
        simulator.stop()
        return [answer.choices[0].message.content for answer in answers]

    # ids, and with them the draws, depend on seed, port and order; only the port differs here
    first, second = text(), text()
    assert all(first) and all(second)
