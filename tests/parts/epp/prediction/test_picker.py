"""A whole picker beside prediction sidecars on loopback: well ones decide picks, ill ones cost nobody anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.bystander import watched
from tests.parts.epp.service import HABITS, Service, serving
from tests.parts.epp.test_server import get, running
from tests.waiting import until

from pointsman.epp.prediction.breaker import FAILURES
from pointsman.epp.server import PickerServer

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: predicted-latency-producer, parameters: {{{parameters}}}}}
- {{type: latency-scorer}}
- {{type: max-score-picker}}
"""
ENDPOINTS = "endpoints: [{name: a, address: 127.0.0.1, port: 1}, {name: b, address: 127.0.0.1, port: 2}]\n"
BODY = b'{"model":"m","prompt":"hello"}'
FULL_DUPLEX = 4
SECONDS = 0.5  # that a request waits for one that is ill


def headers(*, kind: str = "request_headers", end: bool = False, **values: str) -> pb.ProcessingRequest:
    entries = [base_pb2.HeaderValue(key=f":{name}", raw_value=value.encode()) for name, value in values.items()]
    message = pb.ProcessingRequest(
        **{kind: pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=entries), end_of_stream=end)}
    )
    message.protocol_config.request_body_mode = message.protocol_config.response_body_mode = FULL_DUPLEX
    return message


class Stand:
    """A picker, the sidecar that predicts and the one that learns."""

    def __init__(self, picker: PickerServer, stub: rpc.ExternalProcessorStub, sidecar: Service, trainer: Service):
        self.picker, self._stub, self.sidecar, self.trainer = picker, stub, sidecar, trainer

    async def ask(self) -> str:
        """Send a request and let it be answered; return the pick."""
        call = self._stub.Process()
        await call.write(headers(path="/v1/completions", method="POST"))
        await call.write(pb.ProcessingRequest(request_body=pb.HttpBody(body=BODY, end_of_stream=True)))
        picked, _ = await call.read(), await call.read()
        await call.write(headers(kind="response_headers", status="200"))
        await call.read()
        await call.write(pb.ProcessingRequest(response_body=pb.HttpBody(body=b"{}", end_of_stream=True)))
        await call.read()
        await call.done_writing()
        return str(dict(picked.dynamic_metadata)["envoy.lb"]["x-gateway-destination-endpoint"])

    async def look(self) -> None:
        """Send a request that has no body, and so nothing to predict from."""
        call = self._stub.Process()
        await call.write(headers(path="/v1/models", method="GET", end=True))
        answer = await call.read()
        assert answer.HasField("request_headers")
        await call.done_writing()

    @property
    def results(self) -> dict[str, int]:
        return dict(self.picker.parts.predictor.results)


def slow_first(question: bytes) -> bytes:
    return predictions(question, first=900)


def predictions(question: bytes, *, first: int) -> bytes:
    rows = json.loads(question)["requests"]
    times = [first, *([500] * (len(rows) - 1))]
    return json.dumps({"predictions": [{"ttft_ms": time, "tpot_ms": 1} for time in times]}).encode()


@asynccontextmanager
async def standing(
    folder: Path, *, environment: pytest.MonkeyPatch | None = None, dead: bool = False, seconds: float = 10.0
) -> AsyncIterator[Stand]:
    (folder / "endpoints.yaml").write_text(ENDPOINTS)
    trainer_of = serving(lambda _body: b"{}", status="202 Accepted")
    async with serving(slow_first) as sidecar, trainer_of as trainer:
        port = 1 if dead else sidecar.port
        urls = {"prediction": f"http://127.0.0.1:{port}", "training": f"http://127.0.0.1:{trainer.port}"}
        parameters = f"predictionTimeout: {seconds * 1000:.0f}ms"
        if environment is None:
            parameters += "".join(f", {name}ServerURL: '{url}'" for name, url in urls.items())
        else:
            for name, url in urls.items():
                environment.setenv(f"{name.upper()}_SERVER_URL", url)
        text = CONFIG.format(parameters=parameters)
        async with (
            running(endpoints_file=folder / "endpoints.yaml", config_text=text) as picker,
            grpc.aio.insecure_channel(f"127.0.0.1:{picker.listener.port}") as channel,
        ):
            yield Stand(picker, rpc.ExternalProcessorStub(channel), sidecar, trainer)


async def test_predictions_decide_and_what_came_is_told(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        assert [await stand.ask() for _ in range(5)] == ["127.0.0.1:2"] * 5
        assert stand.results == {"answered": 5}
        rows = json.loads(stand.sidecar.bodies[0])["requests"]
        assert len(rows) == 2, "all candidates at once"
        assert len(stand.sidecar.bodies) == 5
        await asyncio.gather(*(stand.ask() for _ in range(35)))
        await until(lambda: sum(len(json.loads(body)["entries"]) for body in stand.trainer.bodies) == 40)
        assert len(stand.trainer.bodies) < 40, "in batches"
        entry = json.loads(stand.trainer.bodies[0])["entries"][0]
        assert entry["predicted_ttft_ms"] == 500, "of the first one's pick"
        assert entry["actual_ttft_ms"] > 0
        page = (await get(stand.picker, "/metrics")).text
        assert 'pointsman_predictions_total{result="answered"} 40\n' in page
        assert 'result="sent"} 40\n' in page.partition("pointsman_training_samples_total{")[2]


async def test_the_other_endpoint_where_they_say_so_and_the_environment_names_the_sidecars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with standing(tmp_path, environment=monkeypatch) as stand:
        stand.sidecar.answer = lambda question: predictions(question, first=100)
        assert await stand.ask() == "127.0.0.1:1"
        await until(lambda: stand.trainer.bodies)


@pytest.mark.parametrize("habit", [*HABITS, "dead"])
async def test_an_ill_sidecar_costs_a_request_its_time_at_most_and_nobody_else_anything(
    tmp_path: Path, habit: str
) -> None:
    async with standing(tmp_path, dead=habit == "dead", seconds=SECONDS) as stand:
        stand.sidecar.habit = habit
        async with watched(stand.look, calm=20, least=10):
            picks = await asyncio.gather(*(stand.ask() for _ in range(24)))
        assert set(picks) <= {"127.0.0.1:1", "127.0.0.1:2"}
        assert "answered" not in stand.results
        assert sum(stand.results.values()) == 24
        for _ in range(FAILURES):
            await stand.ask()
        assert stand.results["skipped"] >= 1
        asked, began = len(stand.sidecar.bodies), asyncio.get_running_loop().time()
        for _ in range(20):
            await stand.ask()
        assert asyncio.get_running_loop().time() - began < 20 * SECONDS, "nobody waits for it any more"
        assert len(stand.sidecar.bodies) == asked
