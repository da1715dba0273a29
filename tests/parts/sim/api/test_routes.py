"""Every route: its shape, and how it refuses."""

import asyncio
import base64
import json
import time
from typing import Any

import httpx
import pytest
from tests.bodies import BODIES
from tests.logs import captured
from tests.parts.sim.conftest import Connect
from tests.waiting import until

from pointsman.core.lines import as_text
from pointsman.sim.api.routes import GENERATION
from pointsman.sim.text import tokens

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a b"}]}


async def metric(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0] == name)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        pytest.param("/v1/chat/completions", b"{", 400, "Failed to read and parse request body", id="not JSON"),
        pytest.param("/v1/chat/completions", b"[]", 400, "Expected `object`", id="not an object"),
        pytest.param("/v1/chat/completions", b"{}", 400, "missing required field `messages`", id="no messages"),
        pytest.param("/v1/chat/completions", b'{"messages":[]}', 400, "messages must not be empty", id="no message"),
        pytest.param("/v1/chat/completions", b'{"messages":[{}],"n":"x"}', 400, "at `$.n`", id="wrong type"),
        pytest.param("/v1/completions", b'{"prompt":[]}', 400, "prompt must not be empty", id="no prompt"),
        pytest.param("/v1/completions", b'{"prompt":["a",1]}', 400, "must be a text, texts", id="mixed prompt"),
        pytest.param("/v1/completions", b'{"prompt":[-1]}', 400, "Token ids must be", id="negative id"),
        pytest.param("/v1/completions", b'{"prompt":[[]]}', 400, "non-empty", id="empty ids"),
        pytest.param("/v1/completions", b'{"prompt":"a","max_tokens":0}', 400, "should be positive", id="no tokens"),
        pytest.param("/v1/completions", b'{"prompt":"a","ignore_eos":true}', 400, "Ignore_eos", id="endless"),
        pytest.param("/v1/completions", b'{"prompt":"a","n":5000}', 400, "at most 1024", id="too many"),
        pytest.param("/v1/completions", b'{"prompt":"a","logprobs":21}', 400, "between 0 and 20", id="many logprobs"),
        pytest.param(
            "/v1/chat/completions",
            b'{"messages":[{}],"logprobs":true,"top_logprobs":99999999}',
            400,
            "between 0 and 20",
            id="endless logprobs",
        ),
        pytest.param(
            "/v1/completions",
            b'{"prompt":["a"' + b',"a"' * 10_000 + b"]}",
            400,
            "at most 10000 prompts",
            id="many prompts",
        ),
        pytest.param("/v1/completions", b'{"prompt":["a","b"],"n":1000}', 429, "queue is full", id="beyond the queue"),
        pytest.param(
            "/v1/completions",
            b'{"prompt":"a","n":900,"max_tokens":999999}',
            400,
            "at most 4000000 tokens",
            id="many tokens",
        ),
        pytest.param(
            "/v1/embeddings",
            b'{"dimensions":60000,"input":["a"' + b',"a"' * 100 + b"]}",
            400,
            "at most 4000000 numbers",
            id="many numbers",
        ),
        pytest.param("/v1/completions", b'{"prompt":"a","model":"z"}', 404, "The model `z` does", id="no model"),
        pytest.param(
            "/v1/completions",
            b'{"prompt":"a","stream":true,"kv_transfer_params":{"do_remote_decode":true}}',
            400,
            "Prefill does not support streaming",
            id="streamed prefill",
        ),
        pytest.param("/v1/completions", b'{"prompt":"a","cache_hit_threshold":2}', 400, "between 0 and 1", id="share"),
        pytest.param("/v1/messages", b'{"messages":[{"content":"x"}]}', 400, "max_tokens", id="anthropic limit"),
        pytest.param("/inference/v1/generate", b'{"token_ids":[1]}', 400, "sampling_params", id="no sampling"),
        pytest.param("/v1/responses", b'{"input":[{"content":5}]}', 400, "no text and no list", id="odd content"),
        pytest.param("/v1/responses", b'{"input":[{"type":"web_search_call"}]}', 400, "web_search_call", id="item"),
        pytest.param(
            "/v1/responses", b'{"input":[{"content":[{"type":"input_file"}]}]}', 400, "'input_file'", id="part"
        ),
        pytest.param("/v1/completions", b'{"prompt":""}', 400, "prompt must not be empty", id="empty prompt"),
        pytest.param("/v1/responses", b'{"input":"a","text":{"format":{"type":"x"}}}', 400, "text.format", id="format"),
        pytest.param(
            "/v1/responses",
            b'{"input":"a","text":{"format":{"type":"json_schema"}}}',
            400,
            "needs a name and a schema",
            id="format without schema",
        ),
        pytest.param("/v1/embeddings", b'{"input":"a","dimensions":0}', 400, "dimensions must be", id="dimensions"),
        pytest.param("/v1/embeddings", b'{"input":"a","encoding_format":"x"}', 400, "float or base64", id="encoding"),
        pytest.param("/tokenize", b'{"prompt":"a","messages":[{}]}', 400, "either prompt or messages", id="both"),
        pytest.param("/v1/load_lora_adapter", b'{"lora_name":""}', 400, "must not be empty", id="lora"),
        pytest.param("/nowhere", b"", 404, "There is no /nowhere here", id="no route"),
        pytest.param("/v1/models", b"", 405, "takes GET", id="wrong method"),
        pytest.param("/admin/config", b'{"port": 5}', 400, "port cannot be changed", id="closed setting"),
        pytest.param("/fake_metrics", b'{"x": 5}', 500, "fake-metrics.x is unknown", id="fake metric"),
    ],
)
async def test_refusals_have_the_status_and_the_body_of_vllm(
    connect: Connect, path: str, body: bytes, status: int, message: str
) -> None:
    client = await connect()
    answer = await client.post(path, content=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == status
    assert message in error["message"]
    assert await metric(client, "vllm:num_requests_running") == 0


async def test_a_body_over_the_limit_is_413_in_the_same_form(connect: Connect) -> None:
    client = await connect(max_request_body_size_mb=1)
    answer = await client.post("/v1/completions", content=b" " * ((1 << 20) + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, 413)


async def test_headers_choose_errors_and_ids(connect: Connect) -> None:
    client = await connect(enable_request_id_headers=True)
    answer = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "abc"})
    assert answer.headers["x-request-id"] == "abc" and answer.json()["id"] == "chatcmpl-abc"
    for path, body, status in (
        ("/v1/embeddings", {"input": "a"}, 200),
        ("/v1/completions/render", {"prompt": "a"}, 200),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/completions", {"prompt": 5}, 400),
        ("/nowhere", {}, 404),
    ):
        answer = await client.post(path, json=body, headers={"X-Request-Id": "abc"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (status, "abc")
    assert (await client.post("/v1/embeddings", json={"input": "a"})).headers["x-request-id"]
    for wanted, status in (("503", 503), ("x", 400), ("42", 400)):
        answer = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Return-Error": wanted})
        assert answer.status_code == status
    forced = {"X-Cache-Threshold-Finish-Reason": "true"}
    answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers=forced)
    assert answer.status_code == 200 and "data: [DONE]" in answer.text


async def test_models_adapters_and_aliases(connect: Connect) -> None:
    client = await connect(served_model_name=("first", "second"), lora_modules=({"name": "lo", "path": "/p"},))
    await client.post("/v1/load_lora_adapter", json={"lora_name": "dynamic"})
    shown = (await client.get("/v1/models")).json()["data"]
    assert [(m["id"], m["root"], m["parent"]) for m in shown] == [
        ("first", "m", None),
        ("second", "m", None),
        ("lo", "/p", "first"),
        ("dynamic", "dynamic", "first"),
    ]
    for name, answered in (("second", "first"), ("lo", "lo"), ("dynamic", "dynamic")):
        assert (await client.post("/v1/chat/completions", json={**CHAT, "model": name})).json()["model"] == answered
    await client.post("/v1/unload_lora_adapter", json={"lora_name": "dynamic"})
    assert (await client.post("/v1/chat/completions", json={**CHAT, "model": "dynamic"})).status_code == 404


async def test_tokens_and_rendering(connect: Connect) -> None:
    client = await connect()
    ids = tokens.encode("a b")
    shown = (await client.post("/tokenize", json={"prompt": "a b", "return_token_strs": True})).json()
    assert shown == {"max_model_len": 1024, "count": 2, "tokens": ids, "token_strs": ["a ", "b"]}
    assert (await client.post("/v1/completions/render", json={"prompt": ["a b", "a b"]})).json() == [
        {"token_ids": ids},
        {"token_ids": ids},
    ]
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    content = [{"type": "text", "text": "see"}, picture]
    shown = (
        await client.post("/v1/chat/completions/render", json={"messages": [{"role": "user", "content": content}]})
    ).json()
    ids = tokens.encode("### user: see\nimage: data:x\n")
    name = f"sim_img_0_{tokens.identify('data:x'):x}"
    assert shown["token_ids"] == ids
    assert shown["features"] == {
        "mm_hashes": {"image": [name]},
        "mm_placeholders": {"image": [{"offset": 0, "length": len(ids)}]},
        "kwargs_data": {"image": [base64.b64encode(name.encode()).decode()]},
    }
    assert (await client.post("/detokenize", json={"tokens": [1, 2]})).json() == {"prompt": "1 2 "}


async def test_generate_gives_ids_for_ids(connect: Connect) -> None:
    client = await connect()
    ask = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 9}}
    whole = (await client.post("/inference/v1/generate", json=ask)).json()
    assert whole["choices"] == [{"index": 0, "finish_reason": "stop", "token_ids": [5, 6, 7]}]
    streamed = (await client.post("/inference/v1/generate", json={**ask, "stream": True})).text
    assert streamed.count('"token_ids":[') == 3 and streamed.endswith("data: [DONE]\n\n")


async def test_the_small_routes(connect: Connect) -> None:
    client = await connect(startup_duration=60.0)
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/health/ready")).status_code == 503
    assert (await client.get("/ping")).status_code == 200
    assert (await client.get("/version")).json()["version"]
    assert (await client.get("/load")).json() == {"server_load": 0}
    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": False}
    assert (await client.post("/sleep")).status_code == 200
    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": False}  # not switched on
    assert list((await client.get("/query")).json()) == ["0"]


async def test_a_sleeping_engine_refuses_until_it_is_woken(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    client = await connect(enable_sleep_mode=True)
    await client.post("/sleep")
    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": True}
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 503
    await client.post("/wake_up?tags=weights")
    assert (await client.get("/is_sleeping")).json() == {"is_sleeping": True}
    await client.post("/wake_up?tags=kv_cache")
    assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_an_encoder_pod_answers_with_handles(connect: Connect) -> None:
    client = await connect(mm_encoder_only=True)
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [picture]}], "max_tokens": 1}
    answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "!"
    (handle,) = answer["ec_transfer_params"].values()
    assert handle["peer_port"] == 1234
    assert (await client.post("/v1/embeddings", json={"input": "x"})).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_an_omni_answer_ends_with_an_image_after_its_time(connect: Connect, stream: bool) -> None:
    client = await connect(omni=True, time_to_generate_image=0.1)
    plain = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert plain["choices"][0]["message"]["content"] == "a b"
    began = time.monotonic()
    answer = await client.post(
        "/v1/chat/completions", json={**CHAT, "stream": stream}, headers={"X-Send-Image": "true"}
    )
    assert time.monotonic() - began >= 0.1
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        assert [chunk.get("modality") for chunk in chunks].index("image") == len(chunks) - 2
        assert chunks[1]["choices"][0]["delta"]["content"] == [{"type": "text", "text": "a "}]
    else:
        kinds = [part["type"] for part in answer.json()["choices"][0]["message"]["content"]]
        assert kinds == ["text", "image_url"]


async def test_a_step_model_can_pace_the_server(connect: Connect) -> None:
    client = await connect(latency_calculator="step", max_num_seqs=64, enable_kvcache=True, zmq_endpoint="")
    answer = await client.post(
        "/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": "a " * 20}]}
    )
    assert answer.json()["usage"]["completion_tokens"] == 20
    assert await metric(client, "vllm:e2e_request_latency_seconds_sum") >= 0.26
    assert await metric(client, "vllm:iteration_tokens_total_count") == 20


async def test_a_sequence_larger_than_the_cache_is_refused(connect: Connect) -> None:
    client = await connect(enable_kvcache=True, kv_cache_size=2, block_size=8, zmq_endpoint="")
    answer = await client.post("/v1/completions", json={"prompt": "a " * 100})
    assert answer.status_code == 400 and "KV blocks" in answer.json()["error"]["message"]
    assert await metric(client, "vllm:num_requests_waiting") == 0


async def test_a_slow_reader_gets_all_of_a_large_answer_and_costs_little(connect: Connect) -> None:
    client = await connect(mode="random", max_model_len=4000, max_num_seqs=8)
    body = {"model": "m", "prompt": "x", "max_tokens": 3000, "ignore_eos": True, "n": 16, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as answer:

        async def made_up() -> bool:  # though most of it must not have been written
            running = await metric(client, "vllm:num_requests_running")
            return running + await metric(client, "vllm:num_requests_waiting") == 0

        await until(made_up)
        seen: dict[int, int] = {}
        last = ""
        async for line in answer.aiter_lines():
            last = line or last
            if line.startswith("data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                seen[choice["index"]] = seen.get(choice["index"], 0) + 1
    assert last == "data: [DONE]"
    assert seen == dict.fromkeys(range(16), 3001)


async def test_a_slow_reader_that_leaves_is_forgotten(connect: Connect) -> None:
    client = await connect(mode="random", max_model_len=4000, max_num_seqs=8)
    body = {"model": "m", "prompt": "x", "max_tokens": 3000, "ignore_eos": True, "n": 16, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body):
        assert (await client.get("/load")).json() == {"server_load": 1}
    for _ in range(100):
        if (await client.get("/load")).json() == {"server_load": 0}:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the job is still there")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/inference/v1/generate"])
@pytest.mark.parametrize("word", ["true", "1", "T"])
async def test_a_streamed_refusal_for_the_cache_says_so_in_one_event(connect: Connect, path: str, word: str) -> None:
    client = await connect()
    body = {**CHAT, "prompt": "a", "token_ids": [1], "sampling_params": {}, "stream": True}
    answer = await client.post(path, json=body, headers={"x-cache-threshold-finish-reason": word})
    first, done = [line for line in answer.text.splitlines() if line]
    (choice,) = json.loads(first.removeprefix("data: "))["choices"]
    assert choice["finish_reason"] == "cache_threshold"
    assert done == "data: [DONE]"


async def test_responses_give_back_what_was_asked_for_and_logprobs_where_included(connect: Connect) -> None:
    client = await connect()
    form = {"format": {"type": "text"}, "verbosity": "low"}
    body = {
        "model": "m", "input": "a b", "instructions": "be brief", "text": form, "metadata": {"k": "v"},
        "include": ["message.output_text.logprobs"], "top_logprobs": 2,
    }  # fmt: skip
    whole = (await client.post("/v1/responses", json=body)).json()
    assert (whole["instructions"], whole["text"], whole["metadata"]) == ("be brief", form, {"k": "v"})
    shown = whole["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in shown] == ["a ", "b"]
    assert [entry["token"] for entry in shown[0]["top_logprobs"]] == ["a ", "a _1"]
    streamed = (await client.post("/v1/responses", json={**body, "stream": True})).text
    deltas = [json.loads(line[6:]) for line in streamed.splitlines() if '"response.output_text.delta"' in line]
    assert [delta["logprobs"] for delta in deltas if "delta" in delta] == [[entry] for entry in shown]
    plain = (await client.post("/v1/responses", json={"model": "m", "input": "a"})).json()
    assert plain["output"][0]["content"][0]["logprobs"] == [] and plain["text"] == {"format": {"type": "text"}}


async def test_traffic_is_logged_on_request_answers_included(connect: Connect) -> None:
    client = await connect(log_http=True, enable_request_id_headers=True)
    with captured() as events:
        await client.post("/v1/chat/completions?x=1", json=CHAT, headers={"x-request-id": "one"})
        await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
        await client.post("/v1/chat/completions", content=b"{")
        await client.get("/version")
    lines = [as_text(event) for event in events if event["event"].startswith("HTTP re")]
    assert [("HTTP request" in line) for line in lines] == [True, False] * 4
    assert "/v1/chat/completions?x=1" in lines[0] and "x-request-id" in lines[0]
    assert "'X-Request-Id': 'one'" in lines[1] and "chat.completion" in lines[1]
    assert "streamed response body not logged" in lines[3]
    assert "400" in lines[5] and "BadRequestError" in lines[5]
    assert "version" in lines[7]


@pytest.mark.parametrize("path", [*GENERATION, "/tokenize", "/detokenize", "/v1/embeddings", "/admin/config"])
async def test_hostile_bodies_are_answered_as_vllm_would(connect: Connect, path: str) -> None:
    client = await connect()
    for name, make in BODIES.items():
        answer = await client.post(path, content=make("m", "hello"))
        assert answer.status_code in {200, 400, 404}, (name, answer.text)
    huge = await client.post("/v1/completions", content=BODIES["huge max_tokens"]("m", "hello"))
    assert huge.status_code == 400 and "max_tokens" in huge.json()["error"]["message"]


@pytest.mark.parametrize("value", ["9" * 5000, "²", "-400", "199", "600", ""])
async def test_a_wanted_error_that_is_no_status_is_400(connect: Connect, value: str) -> None:
    client = await connect()
    answer = await client.post("/v1/chat/completions", json=CHAT, headers={b"x-return-error": value.encode("latin-1")})
    assert answer.status_code == 400 and len(answer.text) < 300


async def test_slashes_too_many_do_not_matter(connect: Connect) -> None:
    client = await connect()
    assert (await client.get(f"{client.base_url}/health")).status_code == 200  # two slashes
    assert (await client.post(f"{client.base_url}//v1//completions", json={"prompt": "a"})).status_code == 200


async def test_an_answer_that_outgrows_the_blocks_is_cut(connect: Connect) -> None:
    client = await connect(mode="random", enable_kvcache=True, zmq_endpoint="", kv_cache_size=5, block_size=8)
    answers = [await client.post("/v1/completions", json={"prompt": "a b c"}) for _ in range(40)]
    assert {answer.status_code for answer in answers} == {200}
    ends = [(a.json()["usage"]["total_tokens"], a.json()["choices"][0]["finish_reason"]) for a in answers]
    assert max(ends)[0] == 40 and (40, "length") in ends
    refused = await client.post("/v1/completions", json={"prompt": "a " * 40})
    assert refused.status_code == 400 and "6 KV blocks and the cache has 5" in refused.text


async def test_the_next_turn_finds_the_answer_of_the_one_before(connect: Connect) -> None:
    client = await connect(mode="random", enable_kvcache=True, zmq_endpoint="", block_size=8, seed=4)
    chat: list[dict[str, str]] = [{"role": "user", "content": "Which line is clear now, and which one is next? " * 3}]
    for _ in range(3):
        ask = {"messages": chat, "max_tokens": 60, "ignore_eos": True}
        first = (await client.post("/v1/chat/completions", json=ask)).json()
        chat += [first["choices"][0]["message"], {"role": "user", "content": "Thank you. And then?"}]
        second = (await client.post("/v1/chat/completions", json={"messages": chat, "max_tokens": 1})).json()
        held = (first["usage"]["total_tokens"] - 1) // 8 * 8  # the last token is never computed
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == held
    text = "A prompt of its own kind, "
    first = (await client.post("/v1/completions", json={"prompt": text, "max_tokens": 50, "ignore_eos": True})).json()
    longer = text + first["choices"][0]["text"] + " and more"
    second = (await client.post("/v1/completions", json={"prompt": longer, "max_tokens": 1})).json()
    held = (first["usage"]["total_tokens"] - 1) // 8 * 8
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == held > 16


async def test_an_echo_of_ids_has_as_many_tokens(connect: Connect) -> None:
    client = await connect()
    answer = (await client.post("/v1/completions", json={"prompt": [7, 8, 9]})).json()
    assert (answer["choices"][0]["text"], answer["usage"]["completion_tokens"]) == ("7,8,9", 3)


async def test_gaps_are_counted_at_no_latency_too(connect: Connect) -> None:
    client = await connect()
    await client.post("/v1/completions", json={"prompt": "a b c d e"})
    assert await metric(client, "vllm:inter_token_latency_seconds_count") == 4
    assert await metric(client, "vllm:inter_token_latency_seconds_sum") == 0


async def test_the_same_seed_and_prompt_get_the_same_answer(connect: Connect) -> None:
    client = await connect(mode="random")
    asked = [{"prompt": prompt, "seed": seed} for prompt, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2))]
    texts = [(await client.post("/v1/completions", json=body)).json()["choices"][0]["text"] for body in asked]
    assert texts[0] == texts[1] and len(set(texts)) == 3
