"""What is read of a body, for every API, and which bodies are refused in which words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bodies import BODIES, DIGITS
from xxhash import xxh64_intdigest

from pointsman.epp.body.payload import BodyReading
from pointsman.epp.body.prompts import MOST_CHAINS, count_tokens, hash_chain
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import Needs

ALL = Needs(body=True, prompt=True, block_tokens=64)
FEW = Needs(body=True)


def tokens(document: Any) -> int:
    prompt = BodyReading(json.dumps(document).encode(), needs=ALL).prompt()
    assert prompt is not None
    return prompt.tokens


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param({"prompt": "hello world!"}, "hello world!", id="completions"),
        pytest.param({"prompt": ["abcd", "e"]}, "abcde", id="several prompts"),
        pytest.param({"messages": [{"role": "user", "content": "hi"}]}, "userhi", id="chat"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
            "userab",
            id="chat with blocks",
        ),
        pytest.param(
            {"system": "be brief", "messages": [{"role": "user", "content": "x"}]}, "be briefuserx", id="messages"
        ),
        pytest.param({"instructions": "i", "input": "x"}, "ix", id="responses"),
        pytest.param({"input": [{"role": "user", "content": "x"}]}, "userx", id="responses with items"),
        pytest.param({"input": ["a", "b"]}, "a    b", id="embeddings: each is a token"),
        pytest.param({"text": "abc"}, "abc", id="sglang"),
        pytest.param({"prompt": ["ab", 5, [], ["cd"], None]}, "ab", id="prompts of no kind among others"),
        pytest.param({"prompt": json.loads("[" * 900 + "1" + "]" * 900)}, "", id="prompts nested without end"),
        pytest.param({"prompt": 7}, "", id="a number where text belongs"),
        pytest.param({"messages": "x"}, "", id="a text where messages belong"),
        pytest.param({"messages": [1, None, {"role": 3, "content": 4}]}, "", id="messages of no kind"),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_the_prompt_of_every_api(document: dict[str, Any], text: str) -> None:
    assert tokens(document) == count_tokens(text.encode())


def test_tools_count() -> None:
    with_tools = {"tools": [{"type": "function"}], "messages": [{"role": "user", "content": "x"}]}
    assert tokens(with_tools) > tokens({"messages": with_tools["messages"]})


@pytest.mark.parametrize("key", ["prompt", "token_ids", "input_ids"])
def test_token_ids_are_counted_not_estimated(key: str) -> None:
    assert tokens({key: [1, 2, 3, 70_000, 5]}) == 5


def test_multimodal() -> None:
    block = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    document = {"messages": [{"role": "user", "content": [block]}]}
    prompt = BodyReading(json.dumps(document).encode(), needs=ALL).prompt()
    assert prompt is not None
    assert prompt.multimodal
    assert prompt.items == (), "nobody asked for them"


def media(document: Any) -> list[tuple[int, int]]:
    prompt = BodyReading(json.dumps(document).encode(), needs=Needs(body=True, prompt=True, media=True)).prompt()
    assert prompt is not None
    return [(item.hash, item.size) for item in prompt.items]


def test_media_of_tokens_that_a_coordinator_sends() -> None:
    features = {"mm_hashes": {"image": ["abc"]}, "mm_placeholders": {"image": [{"offset": 3, "length": 225}]}}
    document = {"prompt": "x", "tokens": {"token_ids": [1, 2], "features": features}}
    assert media(document) == [(xxh64_intdigest(b"abc"), 225)]
    assert media({"prompt": "x", "tokens": {"token_ids": [1, 2], "features": 7}}) == []


@pytest.mark.parametrize("member", ["messages", "input"])
def test_media_one_by_one_when_asked_for(member: str) -> None:
    block = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    assert media({member: [{"role": "user", "content": [block]}]}) == [(xxh64_intdigest(b"http://x/y.png"), 1)]


def test_media_of_a_rendered_request_have_sizes() -> None:
    features = {"mm_hashes": {"image": ["abc"]}, "mm_placeholders": {"image": [{"offset": 3, "length": 225}]}}
    assert media({"token_ids": [1, 2], "features": features}) == [(xxh64_intdigest(b"abc"), 225)]


def test_features_that_only_the_slow_reader_takes_are_left_out() -> None:
    body = b'{"prompt": "\\ud800", "features": {"mm_hashes": {"image": ["a"]}}}'
    prompt = BodyReading(body, needs=Needs(body=True, prompt=True, media=True)).prompt()
    assert prompt is not None
    assert prompt.items == []


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param([{"type": "image", "source": {"type": "url", "url": url}} for url in "ab"], id="anthropic"),
        pytest.param([{"type": "input_image", "image_url": url} for url in "ab"], id="responses"),
    ],
)
def test_prompts_that_differ_in_an_image_only_have_different_hashes(blocks: list[Any]) -> None:
    prompts = [
        BodyReading(json.dumps({"messages": [{"role": "user", "content": [block]}]}).encode(), needs=ALL).prompt()
        for block in blocks
    ]
    assert all(prompt is not None for prompt in prompts)
    assert len({tuple(prompt.blocks) for prompt in prompts if prompt is not None}) == 2


def test_a_block_of_no_kind_is_skipped() -> None:
    assert tokens({"messages": [{"role": "user", "content": [{"type": ["image"]}, {"type": {}}]}]}) == 1


@pytest.mark.parametrize(
    ("document", "most"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_output_tokens": 7}, 7),
        ({"sampling_params": {"max_new_tokens": 8}}, 8),
        ({"max_tokens": "5"}, None),
        ({}, None),
    ],
)
def test_the_most_output(document: dict[str, Any], most: int | None) -> None:
    prompt = BodyReading(json.dumps(document).encode(), needs=ALL).prompt()
    assert prompt is not None
    assert prompt.max_output_tokens == most


@pytest.mark.parametrize("needs", [ALL, FEW], ids=["all", "few"])
@pytest.mark.parametrize(
    ("body", "model"),
    [
        pytest.param(b'{"model":"m"}', "m", id="plain"),
        pytest.param(b'{"model":"a","model":"b"}', "b", id="twice: the last"),
        pytest.param(b'{"prompt":"' + b"x" * 1_000_000 + b'","model":"m"}', "m", id="after a 1 MB prompt"),
        pytest.param(b'{"model":7}', "", id="a number"),
        pytest.param(b"null", "", id="null"),
        pytest.param(b'{"model":"m","prompt":"\xff\xfe"}', "m", id="not UTF-8"),
        pytest.param(b'{"model":"m","prompt":"\\ud800"}', "m", id="lone surrogate"),
        pytest.param(b'{"model":"\\ud800m\\ude00","prompt":"x"}', "\ufffdm\ufffd", id="half a character in the name"),
        pytest.param(b'{"x":' + b"[" * 5000 + b"]" * 5000 + b',"model":"m"}', "m", id="deep"),
        pytest.param('{"model":"ü/模型"}'.encode(), "ü/模型", id="not ASCII"),
        pytest.param(b'\n {"model" : "m"}\r\n', "m", id="white space"),
    ],
)
def test_the_model(body: bytes, model: str, needs: Needs) -> None:
    reading = BodyReading(body, needs=needs)
    assert reading.model == model
    assert (reading.prompt() is None) == (needs is FEW)


@pytest.mark.parametrize("asks", ['"prompt":"x y z"', '"messages":[{"role":"user","content":"x y z"}]'])
@pytest.mark.parametrize(
    "tokens",
    [
        "[1, 2, 3, 4, 5]",
        '{"token_ids": [1, 2, 3, 4, 5], "features": null}',
        '{"token_ids": [1, 2, 3, 4, 5], "features": {"mm_hashes": {"image": ["abc"]}}}',
    ],
)
def test_tokens_of_a_coordinator_are_the_prompt_and_are_passed_on(asks: str, tokens: str) -> None:
    body = f'{{"tokens": {tokens}, "model":"m", {asks} }}'.encode()
    reading = BodyReading(body, needs=ALL)
    assert reading.body == body
    assert reading.has_tokens
    prompt, same = reading.prompt(), BodyReading(b'{"model":"m","prompt":[1,2,3,4,5]}', needs=ALL).prompt()
    assert prompt is not None and same is not None
    assert (prompt.tokens, list(prompt.blocks)) == (5, list(same.blocks))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","tokens":[1,2]}',
        b'{"model":"m","prompt":"x","tokens":["a"]}',
        b'{"model":"m","prompt":"x","tokens":[]}',
        b'{"model":"m","prompt":"x","tokens":7}',
        b'{"model":"m","prompt":"x","options":{"tokens":[1]}}',
    ],
)
def test_what_are_no_tokens_of_a_prompt_is_passed_on(body: bytes) -> None:
    reading = BodyReading(body, needs=ALL)
    assert reading.body == body
    assert not reading.has_tokens


@pytest.mark.parametrize("needs", [ALL, FEW], ids=["all", "few"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"no healthy upstream", "invalid character 'o' in literal null (expecting 'u')", id="text"),
        pytest.param(b"", "unexpected end of JSON input", id="empty"),
        pytest.param(b'{"model":"m"', "unexpected end of JSON input", id="cut"),
        pytest.param(b'{"model":NaN}', "invalid character 'N' looking for beginning of value", id="NaN"),
        pytest.param(
            b"[1]", "json: cannot unmarshal array into Go value of type map[string]interface {}", id="no object"
        ),
        pytest.param(b"[1", "unexpected end of JSON input", id="no object, and cut"),
        pytest.param(
            b'"x"', "json: cannot unmarshal string into Go value of type map[string]interface {}", id="a string"
        ),
    ],
)
def test_what_is_not_an_object_is_400_in_known_words(body: bytes, words: str, needs: Needs) -> None:
    with pytest.raises(BadRequest) as caught:
        BodyReading(body, needs=needs)
    assert caught.value.body.decode() == f"inference error: BadRequest - error unmarshaling request bodyMap: {words}"


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.integers(1, 32))
def test_chains_agree_exactly_as_far_as_prompts_do(one: bytes, rest: bytes, block_tokens: int) -> None:
    def chain(text: bytes, model: str = "m", salt: str = "") -> list[int]:
        return hash_chain(text, model=model, salt=salt, block_tokens=block_tokens, max_blocks=0)

    size = block_tokens * 4
    first, second = chain(one), chain(one + rest)
    whole = len(one) // size
    assert first[:whole] == second[:whole]
    assert len(first) == -(-len(one) // size)
    if first:
        assert chain(one, model="other")[0] != first[0]
        assert chain(one, salt="s")[0] != first[0]


def test_the_chain_is_bounded() -> None:
    text = b"x" * 10_000
    chain = hash_chain(text, model="m", salt="", block_tokens=16, max_blocks=3)
    assert chain == hash_chain(text[:192], model="m", salt="", block_tokens=16, max_blocks=0)


def test_each_prompt_has_its_own_chain_up_to_a_number_of_prompts() -> None:
    def blocks(prompts: list[str], most: int) -> list[int]:
        needs = Needs(body=True, prompt=True, block_tokens=16, max_blocks=most)
        prompt = BodyReading(json.dumps({"model": "m", "prompt": prompts}).encode(), needs=needs).prompt()
        assert prompt is not None and prompt.tokens == sum(-(-len(each) // 4) for each in prompts)
        return [len(chain) for chain in prompt.chains]

    assert blocks(["x" * 640, "y" * 640, "z" * 640], 0) == [10, 10, 10]
    assert blocks(["x" * 640, "y" * 640, "z" * 64], 5) == [5, 5, 1]
    assert blocks(["a"] * 100_000, 2048) == blocks(["a"] * 100_000, 0) == [1] * MOST_CHAINS


def test_the_chain_is_the_documented_one() -> None:
    from xxhash import xxh64_intdigest

    h0 = xxh64_intdigest(b"mS")
    block = xxh64_intdigest(b"abcd")
    expected = xxh64_intdigest(block.to_bytes(8, "little") + h0.to_bytes(8, "little"))
    assert hash_chain(b"abcd", model="m", salt="S", block_tokens=1, max_blocks=0) == [expected]


@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies_are_read_or_refused(name: str) -> None:
    needs = Needs(body=True, prompt=True, block_tokens=16, media=True)
    try:
        reading = BodyReading(BODIES[name]("m", "hello") or b"{}", needs=needs)
        prompt = reading.prompt()
        reading.naming("another")
    except BadRequest:
        return
    assert prompt is not None and (prompt.max_output_tokens or 0) < 2**53
    assert all(item.size < 2**53 for item in prompt.items)


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 4000, "9" * 20, "-1", "1e9", "1e999999999"])
def test_a_limit_that_is_no_count_is_unknown_and_the_prompt_is_not(digits: str) -> None:
    body = f'{{"model": "m", "prompt": "hello you", "max_tokens": {digits}}}'.encode()
    reading = BodyReading(body, needs=Needs(body=True, prompt=True))
    prompt = reading.prompt()
    assert prompt is not None and (prompt.max_output_tokens, prompt.tokens) == (None, 3)
    assert (reading.model, reading.body) == ("m", body)


def test_a_number_in_a_message_hides_no_other_text() -> None:
    plain = BODIES["huge number in a message"]("m", "hello").replace(DIGITS.encode(), b"1")
    huge = BODIES["huge number in a message"]("m", "hello")
    one, other = (
        BodyReading(body, needs=Needs(body=True, prompt=True, block_tokens=1)).prompt() for body in (plain, huge)
    )
    assert one is not None and other is not None and list(one.blocks) == list(other.blocks) != []


def blocks(document: Any, **values: Any) -> list[list[int]]:
    prompt = BodyReading(json.dumps({"model": "m", **document}).encode(), needs=ALL).prompt(**values)
    assert prompt is not None
    return [list(chain) for chain in prompt.chains]


@pytest.mark.parametrize("member", ["prompt", "input"])
def test_each_of_several_prompts_is_a_chain_of_its_own(member: str) -> None:
    first, second = "a" * 300, "b" * 300
    assert blocks({member: [first, second]}) == [*blocks({member: first}), *blocks({member: second})]
    assert blocks({member: [[1, 2], [3]]}) == [*blocks({member: [1, 2]}), *blocks({member: [3]})]


def test_blocks_belong_to_the_model_that_serves() -> None:
    asked = {"prompt": "a" * 300}
    assert blocks(asked, target="base") == blocks({**asked, "model": "base"})
    assert blocks(asked, target="base") != blocks(asked)


USE = {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "sunny"}
CALL = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city":"Rome"}'}
OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "sunny"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x/cat.png"}}


def said(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": list(content)}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(said(USE), said({**USE, "input": {"city": "Oslo"}}), id="tool_use"),
        pytest.param(said(RESULT), said({**RESULT, "content": "rain"}), id="tool_result"),
        pytest.param(
            said({**RESULT, "content": [{"type": "text", "text": "sunny"}]}),
            said({**RESULT, "content": [{"type": "text", "text": "rain"}]}),
            id="tool_result in blocks",
        ),
        pytest.param(said({**RESULT, "content": [IMAGE]}), said({**RESULT, "content": []}), id="tool_result's image"),
        pytest.param(
            said({"type": "thinking", "thinking": "a", "signature": "s"}),
            said({"type": "thinking", "thinking": "b", "signature": "s"}),
            id="thinking",
        ),
        pytest.param({"input": [CALL]}, {"input": [{**CALL, "arguments": "{}"}]}, id="function_call"),
        pytest.param({"input": [OUTPUT]}, {"input": [{**OUTPUT, "output": "rain"}]}, id="function_call_output"),
        pytest.param(
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "2"}]}]},
            id="tool_calls",
        ),
        pytest.param(
            {"items": [{"type": "message", "role": "user", "content": "a"}]},
            {"items": [{"type": "message", "role": "user", "content": "b"}]},
            id="conversations",
        ),
        pytest.param(said({"type": "x", "n": 2**70}), said({"type": "x", "n": 1}), id="numbers of any size"),
    ],
)
def test_conversations_that_differ_in_tools_are_different(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert blocks(one) != blocks(other)
    assert blocks(one) == blocks(json.loads(json.dumps(one)))


def test_where_a_client_wants_its_cache_to_end_is_no_part_of_the_prompt() -> None:
    assert blocks(said({**USE, "cache_control": {"type": "ephemeral"}})) == blocks(said(USE))


def test_an_image_within_a_tools_result_is_one() -> None:
    document = said({**RESULT, "content": [IMAGE]})
    prompt = BodyReading(json.dumps(document).encode(), needs=ALL).prompt()
    assert prompt is not None and prompt.multimodal
    assert media(document) == [(xxh64_intdigest(b"http://x/cat.png"), 1)]


@pytest.mark.parametrize(
    ("document", "hints"),
    [
        ({"messages": [], "chat_template_kwargs": {"enable_thinking": True}, "tools": [{}]}, (True, 0, True)),
        ({"messages": [], "chat_template_kwargs": {"thinking_budget": 5000}}, (None, 5000, False)),
        ({"messages": [], "thinking_budget": 7, "tools": []}, (None, 7, False)),
        ({"messages": [], "chat_template_kwargs": {"enable_thinking": "true"}}, (True, 0, False)),
        (
            {"messages": [], "chat_template_kwargs": {"enable_thinking": 0, "thinking_budget": "9000"}},
            (False, 9000, False),
        ),
        ({"messages": [], "chat_template_kwargs": {"enable_thinking": [], "thinking_budget": "x"}}, (None, 0, False)),
        ({"prompt": "x", "tools": [{}]}, None),
    ],
)
def test_what_says_how_long_an_answer_is(document: dict[str, Any], hints: tuple[bool | None, int, bool] | None) -> None:
    prompt = BodyReading(json.dumps(document).encode(), needs=Needs(body=True, prompt=True, hints=True)).prompt()
    assert prompt is not None
    found = prompt.hints
    assert (None if found is None else (found.thinking, found.budget, found.tools)) == hints


def test_tokens_of_media_are_known_apart() -> None:
    prompt = BodyReading(json.dumps(said(IMAGE)).encode(), needs=ALL).prompt()
    assert prompt is not None
    assert 0 < prompt.media_tokens < prompt.tokens
