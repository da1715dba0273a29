"""vLLM's gRPC service on the HTTP port, with the official gRPC client and messages made by the official library."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.sim.simulator import Simulator, Start
from tests.waiting import wait_until

from pointsman.sim.text import tokens

FIELD = descriptor_pb2.FieldDescriptorProto
MESSAGES: dict[str, list[tuple[str, int, int, str, bool]]] = {
    "SamplingParams": [("max_tokens", 8, FIELD.TYPE_UINT32, "", False), ("ignore_eos", 14, FIELD.TYPE_BOOL, "", False)],
    "TokenizedInput": [
        ("original_text", 1, FIELD.TYPE_STRING, "", False),
        ("input_ids", 2, FIELD.TYPE_UINT32, "", True),
    ],
    "GenerateRequest": [
        ("request_id", 1, FIELD.TYPE_STRING, "", False),
        ("tokenized", 2, FIELD.TYPE_MESSAGE, "TokenizedInput", False),
        ("text", 3, FIELD.TYPE_STRING, "", False),
        ("sampling_params", 4, FIELD.TYPE_MESSAGE, "SamplingParams", False),
        ("stream", 5, FIELD.TYPE_BOOL, "", False),
    ],
    "Chunk": [
        ("token_ids", 1, FIELD.TYPE_UINT32, "", True),
        ("prompt_tokens", 2, FIELD.TYPE_UINT32, "", False),
        ("completion_tokens", 3, FIELD.TYPE_UINT32, "", False),
        ("cached_tokens", 4, FIELD.TYPE_UINT32, "", False),
    ],
    "Complete": [
        ("output_ids", 1, FIELD.TYPE_UINT32, "", True),
        ("finish_reason", 2, FIELD.TYPE_STRING, "", False),
        ("prompt_tokens", 3, FIELD.TYPE_UINT32, "", False),
        ("completion_tokens", 4, FIELD.TYPE_UINT32, "", False),
    ],
    "GenerateResponse": [
        ("chunk", 1, FIELD.TYPE_MESSAGE, "Chunk", False),
        ("complete", 2, FIELD.TYPE_MESSAGE, "Complete", False),
    ],
    "EmbedRequest": [("tokenized", 2, FIELD.TYPE_MESSAGE, "TokenizedInput", False)],
    "EmbedResponse": [
        ("embedding", 1, FIELD.TYPE_FLOAT, "", True),
        ("prompt_tokens", 2, FIELD.TYPE_UINT32, "", False),
        ("embedding_dim", 3, FIELD.TYPE_UINT32, "", False),
    ],
    "AbortRequest": [("request_ids", 1, FIELD.TYPE_STRING, "", True)],
    "Empty": [],
    "Health": [("healthy", 1, FIELD.TYPE_BOOL, "", False), ("message", 2, FIELD.TYPE_STRING, "", False)],
    "ModelInfo": [
        ("model_path", 1, FIELD.TYPE_STRING, "", False),
        ("is_generation", 2, FIELD.TYPE_BOOL, "", False),
        ("max_context_length", 3, FIELD.TYPE_UINT32, "", False),
    ],
    "ServerInfo": [
        ("active_requests", 1, FIELD.TYPE_UINT32, "", False),
        ("uptime_seconds", 4, FIELD.TYPE_DOUBLE, "", False),
        ("server_type", 5, FIELD.TYPE_STRING, "", False),
    ],
}


def build() -> dict[str, Any]:
    """The official message classes, from the field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="engine.proto", package="vllm.grpc.engine", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, number, kind, of, repeated in fields:
            field = message.field.add(name=label, number=number, type=kind)
            field.label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            if of:
                field.type_name = f".vllm.grpc.engine.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName("engine.proto")
    return {name: message_factory.GetMessageClass(found.message_types_by_name[name]) for name in MESSAGES}


M = build()


class Client:
    """A stub for the service."""

    def __init__(self, simulator: Simulator) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{simulator.port}")

    def unary(self, name: str, request: Any, answer: str) -> Any:
        call: Any = self.channel.unary_unary(
            f"/vllm.grpc.engine.VllmEngine/{name}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=M[answer].FromString,
        )
        return call(request, timeout=10)

    def generate(self, **fields: Any) -> Any:
        call: Any = self.channel.unary_stream(
            "/vllm.grpc.engine.VllmEngine/Generate",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=M["GenerateResponse"].FromString,
        )
        return call(M["GenerateRequest"](**fields), timeout=20)


@pytest.fixture
def client(shared: Simulator) -> Iterator[Client]:
    made = Client(shared)
    yield made
    made.channel.close()


def test_generate_streams_one_chunk_per_token_and_a_summary(client: Client) -> None:
    answers = list(client.generate(tokenized=M["TokenizedInput"](input_ids=[5, 600, 70000]), stream=True))
    assert [list(a.chunk.token_ids) for a in answers[:-1]] == [[5], [600], [70000]]
    assert answers[0].chunk.prompt_tokens == 3 and answers[0].chunk.completion_tokens == 1
    assert answers[-1].complete.finish_reason == "stop" and answers[-1].complete.completion_tokens == 3


def test_generate_whole_from_text(client: Client) -> None:
    (answer,) = client.generate(text="a b", sampling_params=M["SamplingParams"](max_tokens=2))
    assert list(answer.complete.output_ids) == tokens.encode("a b")
    assert answer.complete.finish_reason == "length"


def test_the_same_port_serves_http_at_the_same_time(client: Client, shared: Simulator) -> None:
    assert client.unary("HealthCheck", M["Empty"](), "Health").healthy
    assert httpx.get(f"{shared.url}/health").status_code == 200
    info = client.unary("GetModelInfo", M["Empty"](), "ModelInfo")
    assert (info.model_path, info.is_generation, info.max_context_length) == ("test-model", True, 1024)
    state = client.unary("GetServerInfo", M["Empty"](), "ServerInfo")
    assert state.server_type == "vllm-grpc" and state.uptime_seconds > 0
    vector = client.unary("Embed", M["EmbedRequest"](tokenized=M["TokenizedInput"](input_ids=[7])), "EmbedResponse")
    assert (len(vector.embedding), vector.prompt_tokens, vector.embedding_dim) == (384, 1, 384)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({}, grpc.StatusCode.INVALID_ARGUMENT, id="no input"),
        pytest.param({"text": "a " * 2000}, grpc.StatusCode.INVALID_ARGUMENT, id="beyond the window"),
        pytest.param({"request_id": "\x01"}, grpc.StatusCode.INVALID_ARGUMENT, id="only an id"),
    ],
)
def test_refusals_are_statuses(client: Client, fields: dict[str, Any], code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(client.generate(**fields))
    assert caught.value.code() == code


def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    call: Any = client.channel.unary_stream("/vllm.grpc.engine.VllmEngine/Generate")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(b"\xff\xff\xff", timeout=10))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_injected_failures_and_a_full_queue_keep_their_meaning(start: Start) -> None:
    failing = Client(start("--failure-injection-rate", "100", "--failure-types", "rate_limit"))
    with pytest.raises(grpc.RpcError) as caught:
        list(failing.generate(text="x"))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    failing.channel.close()


def test_a_call_can_be_aborted_by_id_or_by_leaving(start: Start) -> None:
    simulator = start("--mode", "echo", "--inter-token-latency", "20s")
    client = Client(simulator)
    found: list[Any] = []
    first = client.generate(text="a b c", stream=True, request_id="one")
    reader = threading.Thread(target=lambda: found.extend(first))
    reader.start()
    wait_until(lambda: simulator.metric("vllm:num_requests_running") == 1)
    client.unary("Abort", M["AbortRequest"](request_ids=["one", "unknown"]), "Empty")
    reader.join(5)
    assert found[-1].complete.finish_reason == "abort"
    assert simulator.metric("vllm:num_requests_running") == 0
    second = client.generate(text="a b c", stream=True)
    assert next(second).chunk.token_ids
    second.cancel()
    wait_until(lambda: simulator.metric("vllm:num_requests_running") == 0)
    client.channel.close()


def test_a_client_that_knows_nothing_learns_the_service_by_reflection(client: Client) -> None:
    database = ProtoReflectionDescriptorDatabase(client.channel)
    names = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
    assert list(database.get_services()) == [*names, "vllm.grpc.engine.VllmEngine"]
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName("vllm.grpc.engine.VllmEngine")
    method = service.methods_by_name["Generate"]
    assert (method.client_streaming, method.server_streaming) == (False, True)
    sampling = pool.FindMessageTypeByName("vllm.grpc.engine.SamplingParams")
    ask, answer = (
        message_factory.GetMessageClass(method.input_type),
        message_factory.GetMessageClass(method.output_type),
    )
    chosen = message_factory.GetMessageClass(sampling)(max_tokens=2, logit_bias={5: 0.5}, json_object=True)
    assert chosen.WhichOneof("constraint") == "json_object" and not chosen.HasField("temperature")
    call: Any = client.channel.unary_stream(
        f"/{service.full_name}/Generate", lambda m: m.SerializeToString(), answer.FromString
    )
    (whole,) = call(ask(text="a b", sampling_params=chosen), timeout=10)
    assert whole.complete.finish_reason == "length"
    assert list(whole.complete.output_ids) == tokens.encode("a b")
    assert pool.FindServiceByName(names[0]).methods[0].client_streaming


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_answers_what_it_does_not_know_with_an_error(client: Client, version: str) -> None:
    call: Any = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        lambda m: m.SerializeToString(),
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [
        reflection_pb2.ServerReflectionRequest(host="h", file_containing_symbol="no.Such"),
        reflection_pb2.ServerReflectionRequest(file_by_filename="none.proto"),
        reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="vllm.grpc.engine.AbortRequest"),
        reflection_pb2.ServerReflectionRequest(),
    ]
    first, second, third, fourth = call(iter(asked), timeout=10)
    assert (first.valid_host, first.original_request, first.error_response.error_code) == ("h", asked[0], 5)
    assert second.error_response.error_code == 5
    assert not third.all_extension_numbers_response.extension_number
    assert fourth.error_response.error_code == 12
