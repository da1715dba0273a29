"""Starting and stopping simulators: one listener and one engine per pod (or rank), all in one event loop.

SIGTERM finishes what is open (new generation requests get 503), then closes; a second signal, or the drain timeout,
ends at once. Ready means that all ports are bound.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlretrieve

from pointsman.core.budget import Budget
from pointsman.core.errors import UserError
from pointsman.core.http import Limits, Listener, Request, Response, Server
from pointsman.core.logs import get_logger
from pointsman.core.loop import on_signals, wait_while
from pointsman.core.tls import load_self_signed, server_context
from pointsman.sim.api.routes import Routes
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.failures import Refusal, fault
from pointsman.sim.fit import presets
from pointsman.sim.grpc import rpc
from pointsman.sim.pod.pod import Pod
from pointsman.sim.settings import Settings
from pointsman.sim.text.dataset import Dataset

if TYPE_CHECKING:
    from pointsman.sim.pod.events import Publisher

_LOG = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A pod and where it listens."""

    pod: Pod
    listener: Listener


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the pods and ranks of a process this is."""

    index: int
    rank: int  # -1 without data parallelism
    port: int


def places(settings: Settings) -> Iterator[Place]:
    """Return every pod and rank, in the order of their ports."""
    if settings.data_parallel_rank >= 0:
        yield Place(0, settings.data_parallel_rank, settings.port)
        return
    ranks = settings.data_parallel_size
    for index in range(settings.pods * ranks):
        rank = index % ranks if ranks > 1 else -1
        yield Place(index, rank, settings.port + index if settings.port else 0)


def identity(settings: Settings, *, pod: int, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by which an answer tells who gave it: several pods are named by as many names, or by port."""
    names = environ.get("POD_NAME", "").split(",")
    name = names[pod] if len(names) == settings.pods else ""
    return {
        "x-inference-pod": name or f"sim-{port}",
        "x-inference-port": str(port),
        "x-inference-namespace": environ.get("POD_NAMESPACE") or "default",
    }


def load_step_model(settings: Settings) -> StepModel | None:
    """Return the step model that the settings ask for, if any.

    Raises UserError when there is none of that name, or the file is not one.
    """
    return presets.load(settings.latency_model or presets.DEFAULT) if settings.in_steps else None


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context that the settings ask for, if any.

    Raises UserError when the certificate cannot be used.
    """
    if not settings.self_signed_certs and not settings.ssl_certfile:
        return None
    context = server_context(alpn=("http/1.1",), min_version="VersionTLS12")
    if settings.self_signed_certs:
        load_self_signed(context)
    else:
        load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Take the certificate files into use; on error the context stays as it was."""
    certificate, key = settings.ssl_certfile, settings.ssl_keyfile
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"--ssl-certfile {certificate} and --ssl-keyfile {key} cannot be used: {reason}") from None


def open_dataset(settings: Settings) -> Dataset | None:
    """Return the dataset that the settings name, fetched first where it is not there yet.

    Raises UserError when it cannot be fetched or used.
    """
    if not settings.dataset_path:
        return None
    path = Path(settings.dataset_path)
    if settings.dataset_url and not path.exists():
        partial = path.with_name(path.name + ".part")
        try:
            urlretrieve(settings.dataset_url, partial)  # noqa: S310 - the operator's own URL, a file's included
            partial.rename(path)
        except (OSError, ValueError) as error:
            raise UserError(f"--dataset-url {settings.dataset_url} cannot be fetched: {error}") from None
    return Dataset(path, table=settings.dataset_table_name, in_memory=settings.dataset_in_memory)


@contextlib.asynccontextmanager
async def serving(settings: Settings, *, environ: Mapping[str, str]) -> AsyncIterator[list[Served]]:
    """Serve all pods of the settings until the context ends."""
    if settings.mm_encoder_only:
        settings = replace(settings, enable_kvcache=False)  # an encoder keeps no keys and values
    model, context = load_step_model(settings), tls_context(settings)
    dataset = await asyncio.to_thread(open_dataset, settings)
    async with Server() as server:
        served, jobs = [], []
        for place in places(settings):
            listener = await _listen(server, settings, place=place, tls=context)
            pod = Pod(settings, port=listener.port, rank=place.rank, step_model=model, dataset=dataset)
            number = place.index // settings.data_parallel_size
            listener.handler = Routes(pod, identity=identity(settings, pod=number, port=pod.port, environ=environ))
            if not settings.mm_encoder_only:
                listener.http2 = Speaker(pod, budget=server.budget)
            served.append(Served(pod, listener))
            if settings.enable_kvcache and (settings.zmq_endpoint or settings.kv_events_replay_endpoint):
                jobs.append(_publisher(pod, place=place, environ=environ).run)
        if context is not None and settings.ssl_certfile:
            jobs.append(partial(_reload, context, settings))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(job()) for job in jobs]
            try:
                yield served
            finally:
                for task in running:
                    task.cancel()


async def _listen(server: Server, settings: Settings, *, place: Place, tls: ssl.SSLContext | None) -> Listener:
    limits = Limits(body_bytes=settings.max_request_body_size_mb << 20)
    return await server.listen(_not_yet, host=settings.host, port=place.port, tls=tls, limits=limits, fault=fault)


def _not_yet(_request: Request) -> Response:
    return fault(503, "The server is starting")


def _publisher(pod: Pod, *, place: Place, environ: Mapping[str, str]) -> "Publisher":
    """Return the publisher of a pod's KV events, its sockets open.

    Raises UserError when an endpoint cannot be used: before anybody is told that the pod is ready.
    """
    import zmq  # only here: it costs memory and start-up time

    from pointsman.sim.pod.events import Publisher, shift_port

    settings = pod.settings
    host = environ.get("POD_IP") or "127.0.0.1"
    publisher = Publisher(
        context=zmq.Context.instance(),  # one thread for all pods of the process
        topic=f"kv@{host}:{pod.port}@{settings.model}",
        endpoint=shift_port(settings.zmq_endpoint, max(place.rank, 0)),
        replay_endpoint=shift_port(settings.kv_events_replay_endpoint, max(place.rank, place.index)),
        replay_size=settings.kv_events_replay_queue_size,
        batch_size=settings.event_batch_size,
        block_size=settings.block_size,
        as_map=settings.use_vllm_map_event_format,
        rank=max(place.rank, 0),
        wall=pod.wall,
    )
    events = pod.engine.state.events
    assert events is not None
    pod.on_blocks = lambda: publisher.publish(events) if events else None
    pod.on_blocks()
    return publisher


async def _reload(context: ssl.SSLContext, settings: Settings) -> None:
    """Take new certificate files into use as they appear; a pair that does not fit is left alone."""
    from pointsman.core.watch import watch_files  # only here: most simulators serve no TLS

    async for _ in watch_files([Path(settings.ssl_certfile), Path(settings.ssl_keyfile)]):
        try:
            load_certificate(context, settings)
        except UserError as error:
            _LOG.warning("the old certificate stays", reason=str(error))


class Speaker:
    """Takes over the HTTP/2 connections to a pod. Made ready with the first of them: most pods see none."""

    def __init__(self, pod: Pod, *, budget: Budget) -> None:
        self._pod = pod
        self._budget = budget
        self._connect: Callable[[], asyncio.Protocol] | None = None

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of one connection."""
        if self._connect is None:
            from pointsman.sim.grpc import server as grpc  # only here: HTTP/2 costs memory and start-up time

            listener = grpc.listener(rpc.methods(self._pod), budget=self._budget)
            self._connect = partial(grpc.protocol, listener)
        return self._connect()


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is open."""
    stop = asyncio.Event()
    on_signals(stop.set)
    async with serving(settings, environ=os.environ) as served:
        ports = [each.listener.port for each in served]
        _LOG.info("simulator ready", model=settings.model, ports=_span(ports), mode=settings.mode)
        await stop.wait()
        stop.clear()
        await drain(served, seconds=settings.drain_timeout, hurry=stop)


async def drain(served: list[Served], *, seconds: float, hurry: asyncio.Event) -> None:
    """Refuse new generation requests, wait for the open ones, stop listening."""
    for each in served:
        each.pod.stopping = True
    await wait_while(lambda: any(each.pod.jobs for each in served) and not hurry.is_set(), seconds=seconds)
    for each in served:
        for job in list(each.pod.jobs):  # out of time: a stream that has begun ends with an error, not in mid-air
            job.fail(Refusal(503, "server is shutting down"))
        each.listener.stop_accepting()


def _span(ports: list[int]) -> str:
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
