"""What a tokenizer service is asked, and what is made of its answers."""

import json
from typing import Any

import pytest
from xxhash import xxh64_intdigest

from pointsman.epp.body.payload import BodyReading
from pointsman.epp.body.prompts import hash_chain, token_bytes
from pointsman.epp.body.rendering import TokenQuestion, Unreadable, question, read_answer
from pointsman.epp.request.request import Needs, TokenService

SERVICE = TokenService(host="h", port=1, prefix="/p", model="base", seconds=1, media_seconds=2)
NEEDS = Needs(body=True, prompt=True, block_tokens=2, media=True, tokenizer=SERVICE)
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}


def asked(document: dict[str, Any], *, path: str = "/v1/chat/completions") -> TokenQuestion | None:
    reading = BodyReading(json.dumps(document).encode(), needs=NEEDS)
    return question(reading, headers={":path": path}, service=SERVICE)


@pytest.mark.parametrize(
    ("path", "document", "wanted", "seconds"),
    [
        ("/v1/chat/completions", {"messages": []}, "/p/v1/chat/completions/render", 1),
        ("/v1/chat/completions?x=1", {"messages": [IMAGE]}, "/p/v1/chat/completions/render", 2),
        ("/other/v1/completions", {"prompt": "x"}, "/p/v1/completions/render", 1),
    ],
)
def test_the_request_itself_is_asked_about(path: str, document: dict[str, Any], wanted: str, seconds: float) -> None:
    found = asked({"model": "an-adapter", **document}, path=path)
    assert found is not None
    assert (found.path, found.seconds) == (wanted, seconds)
    assert json.loads(found.body) == {"model": "base", **document}, "of the model that the service has"


@pytest.mark.parametrize(
    ("path", "document"),
    [
        pytest.param("/v1/completions", {"prompt": [1, 2]}, id="token ids"),
        pytest.param("/v1/completions", {"prompt": [[1], [2]]}, id="lists of token ids"),
        pytest.param("/v1/completions", {}, id="no prompt"),
        pytest.param("/v1/messages", {"messages": []}, id="an API without it"),
        pytest.param("/v1/chat/completions/render", {"messages": []}, id="a request for that very thing"),
    ],
)
def test_what_is_not_asked_about(path: str, document: dict[str, Any]) -> None:
    assert asked(document, path=path) is None


def test_answers() -> None:
    chat, completion = asked({"messages": []}), asked({"prompt": "x"}, path="/v1/completions")
    assert chat is not None and completion is not None
    features = {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 0, "length": 3}]}}
    rendered = read_answer(chat, json.dumps({"token_ids": [1, 2**32 - 1], "features": features, "x": 1}).encode())
    assert rendered.tokens == token_bytes([1, 2**32 - 1])
    assert [(item.hash, item.size) for item in rendered.items] == [(xxh64_intdigest(b"a"), 3)]
    several = read_answer(completion, b'[{"token_ids":[1]},{"token_ids":[2,3],"features":null}]')
    assert (several.tokens, list(several.more)) == (token_bytes([1]), [token_bytes([2, 3])])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"token_ids":[]}',
        b'{"token_ids":["a"]}',
        b'{"token_ids":[-1]}',
        b"<html>",
        b"\xff",
    ],
)
def test_answers_that_are_none(answer: bytes) -> None:
    chat, completion = asked({"messages": []}), asked({"prompt": "x"}, path="/v1/completions")
    assert chat is not None and completion is not None
    for each, raw in ((chat, answer), (completion, answer), (completion, b"[" + answer + b"]")):
        with pytest.raises(Unreadable):
            read_answer(each, raw)


def test_tokens_take_the_place_of_the_estimate() -> None:
    reading = BodyReading(b'{"model":"m","cache_salt":"s","messages":[{"role":"user","content":"hello"}]}', needs=NEEDS)
    chat = question(reading, headers={":path": "/v1/chat/completions"}, service=SERVICE)
    assert chat is not None
    prompt = reading.prompt(read_answer(chat, b'{"token_ids":[5,6,7]}'))
    estimate = reading.prompt()
    assert prompt is not None and estimate is not None
    assert (prompt.tokens, estimate.tokens) == (3, 3)
    text = token_bytes([5, 6, 7])
    assert prompt.blocks == hash_chain(text, model="m", salt="s", block_tokens=2, max_blocks=0) != estimate.blocks
