"""Prompts: flattening, counting, and content of any shape."""

from typing import Any

import pytest

from pointsman.sim.failures import Refusal
from pointsman.sim.text import hashing, tokens
from pointsman.sim.text.bodies import Message
from pointsman.sim.text.prompts import Prompt, content_text, from_field, from_messages


def test_a_chat_is_flattened_and_its_echo_is_the_last_message() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    prompt = from_messages(
        [
            Message(role="user", content="hi"),
            Message(role="assistant", tool_calls=[call]),
            Message(role="tool", content="ok", tool_call_id="call-1"),
        ]
    )
    assert prompt.text == "### user: hi\n### assistant: [f({})]\n### tool(call-1): ok\n"
    assert prompt.echo == "ok" and prompt.count == tokens.count(prompt.text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(None, "", id="nothing"),
        pytest.param("a", "a", id="text"),
        pytest.param([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", id="parts"),
        pytest.param([5, None, {"type": 3}, {"text": "x"}, {"type": "text"}], "", id="odd parts"),
        pytest.param(5, "5", id="a number"),
    ],
)
def test_content_of_any_shape_has_a_text(content: Any, text: str) -> None:
    assert content_text(content, media=[]) == text


def test_media_are_noted_by_kind_and_content() -> None:
    media: list[str] = []
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": u}} for u in ("x", "y")]
    parts += [{"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}}, {"type": "input_audio"}]
    parts += [{"type": "video_url", "video_url": {"url": "v"}}, {"type": "image_url", "image_url": {"url": ""}}]
    text = content_text(parts, media=media)
    assert text == "image: x\nimage: y\ninput_audio: wav\nvideo: v\nimage: "
    named = [("img_0", "x"), ("img_1", "y"), ("audio_0", "d"), ("video_0", "v")]
    assert media == [f"sim_{name}_{tokens.identify(identity):x}" for name, identity in named]


@pytest.mark.parametrize("prompt", ["", [], ["a", ""], [[]]])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(Refusal, match="empty"):
        from_field(prompt)


def test_ids_count_as_they_are() -> None:
    (prompt,) = from_field([7, 8, 9])
    assert (prompt.count, list(prompt.ids), prompt.echo) == (3, [7, 8, 9], "7,8,9")
    assert [p.count for p in from_field([[1], [2, 3]])] == [1, 2]


def test_keys_are_those_of_the_chain() -> None:
    prompt = Prompt("a b c d e f g h i")
    assert prompt.keys(start=5, block_size=4) == hashing.chain(tokens.encode(prompt.text), start=5, block_size=4)
