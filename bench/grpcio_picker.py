"""The baseline: an endpoint picker as one would write it today, with grpcio and the official protobuf
classes.

It does what our picker does and nothing less: least in-flight with a random tie-break, a reservation that
lasts as long as the stream, full-duplex echo in 62,000-byte chunks, header mutation and `envoy.lb` metadata
that agree, and the health service on the same port. It is tuned fairly (async, one process, read/write
instead of generators); it must never be made slower to flatter a comparison.
"""

import argparse
import asyncio
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from grpc_health.v1 import (
    health,
    health_pb2,
    health_pb2_grpc,
)

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
DESTINATION = "x-gateway-destination-endpoint"
CHUNK = 62_000


class Pool:
    """Endpoints with their streams in flight; a pick and its reservation are one step."""

    def __init__(self, endpoints: Sequence[str], *, rng: random.Random) -> None:
        self._inflight = dict.fromkeys(endpoints, 0)
        self._rng = rng

    def reserve(self) -> list[str]:
        """Return the endpoints, best first, and count a stream on the best."""
        order = sorted(self._inflight, key=lambda endpoint: (self._inflight[endpoint], self._rng.random()))
        self._inflight[order[0]] += 1
        return order[:2]

    def release(self, endpoint: str) -> None:
        """Give back what `reserve` counted."""
        self._inflight[endpoint] -= 1


def _set_header(name: str, value: bytes) -> Any:
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, raw_value=value))


def request_headers(picked: Sequence[str]) -> Any:
    """Return the answer that sends the request to the first endpoint, or on a retry to the next."""
    value = ",".join(picked)
    answer = pb.ProcessingResponse()
    common = answer.request_headers.response
    common.clear_route_cache = True
    common.header_mutation.set_headers.append(_set_header(DESTINATION, value.encode()))
    answer.dynamic_metadata.update({"envoy.lb": {DESTINATION: value}})
    return answer


def bodies(data: bytes, *, kind: str, end: bool) -> Iterator[Any]:
    """Return the body as streamed answers of at most CHUNK bytes; an empty body is one empty answer."""
    for start in range(0, max(len(data), 1), CHUNK):
        answer = pb.ProcessingResponse()
        streamed = getattr(answer, kind).response.body_mutation.streamed_response
        streamed.body = data[start : start + CHUNK]
        streamed.end_of_stream = end and start + CHUNK >= len(data)
        yield answer


class Stream:
    """One HTTP request: what arrived so far, and what to answer to the next message."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._body: list[bytes] = []
        self.picked: list[str] = []

    def answers(self, message: Any) -> list[Any]:
        """Return the answers to one message, in order."""
        kind: str = message.WhichOneof("request")
        answer: list[Any] = getattr(self, f"_{kind}")(getattr(message, kind))
        return answer

    def _pick(self) -> Any:
        self.picked = self._pool.reserve()
        return request_headers(self.picked)

    def _request_headers(self, message: Any) -> list[Any]:
        return [self._pick()] if message.end_of_stream else []

    def _request_body(self, message: Any) -> list[Any]:
        self._body.append(message.body)
        if not message.end_of_stream:
            return []
        return [self._pick(), *bodies(b"".join(self._body), kind="request_body", end=True)]

    def _request_trailers(self, _message: Any) -> list[Any]:
        head = [self._pick(), *bodies(b"".join(self._body), kind="request_body", end=False)]
        return [*head, pb.ProcessingResponse(request_trailers=pb.TrailersResponse())]

    def _response_headers(self, _message: Any) -> list[Any]:
        answer = pb.ProcessingResponse()
        mutation = answer.response_headers.response.header_mutation
        mutation.set_headers.append(_set_header("x-went-into-resp-headers", b"true"))
        return [answer]

    def _response_body(self, message: Any) -> list[Any]:
        return list(bodies(message.body, kind="response_body", end=message.end_of_stream))

    def _response_trailers(self, _message: Any) -> list[Any]:
        return [pb.ProcessingResponse(response_trailers=pb.TrailersResponse())]


def handler(pool: Pool) -> grpc.GenericRpcHandler:
    """Return the gRPC service over the pool."""

    async def process(_requests: Any, context: Any) -> None:
        stream = Stream(pool)
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                for answer in stream.answers(message):
                    await context.write(answer)
        finally:
            if stream.picked:
                pool.release(stream.picked[0])

    method = grpc.stream_stream_rpc_method_handler(
        process,
        request_deserializer=pb.ProcessingRequest.FromString,
        response_serializer=pb.ProcessingResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Process": method})


async def serve(*, port: int, endpoints: Sequence[str], certificates: Path | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler(Pool(endpoints, rng=random.Random())),))
    checks = health.aio.HealthServicer()
    await checks.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    address = f"127.0.0.1:{port}"
    if certificates is None:
        server.add_insecure_port(address)
    else:
        pair = ((certificates / "tls.key").read_bytes(), (certificates / "tls.crt").read_bytes())
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    await server.start()
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await stop.wait()
    await server.stop(grace=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--endpoints", required=True, help="ip:port,ip:port,…")
    parser.add_argument("--cert-path", type=Path, default=None, help="folder with tls.crt and tls.key")
    args = parser.parse_args()
    asyncio.run(serve(port=args.port, endpoints=args.endpoints.split(","), certificates=args.cert_path))


if __name__ == "__main__":
    main()
