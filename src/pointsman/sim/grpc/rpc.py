"""vLLM's gRPC service `vllm.grpc.engine.VllmEngine`, without a wire: messages in, messages out.

A call takes one request message (reflection takes many); what it sends later goes through the `push` that it was opened
with, and `finished` says when that was all. `grpc` brings HTTP/2 and gRPC framing and turns a `Refusal` into a status.
Generation takes the same path as every HTTP route.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from pointsman.core.http import Response
from pointsman.sim.api import intake
from pointsman.sim.api.controls import vector
from pointsman.sim.api.plans import Plan
from pointsman.sim.failures import Refusal
from pointsman.sim.grpc import reflection
from pointsman.sim.grpc.protobuf import decode, encode, numbers
from pointsman.sim.jobs.job import Choice
from pointsman.sim.jobs.spec import Spec
from pointsman.sim.pod.pod import Pod
from pointsman.sim.text.prompts import Prompt, from_ids

SERVICE = "/vllm.grpc.engine.VllmEngine/"
Push = Callable[[bytes], None]
_LENGTH = struct.Struct(">I")


class Call(Protocol):
    """One RPC."""

    finished: bool

    def message(self, data: bytes) -> Sequence[bytes]:
        """Take the request and return what can be said at once."""
        ...

    def half_closed(self) -> bool:
        """The client has said all; return whether the call goes on all the same."""
        ...

    def closed(self) -> None:
        """The stream has ended, however."""
        ...


# Generate


class GrpcWriter:
    """Writes generation as protobuf; each message has its length before it, so that several can go in one piece."""

    def __init__(self, _spec: Spec) -> None:
        """Need nothing of it: an answer says neither its id nor its model."""

    def frame(self, _choice: Choice) -> None:
        return None

    def begin(self, _choice: Choice) -> bytes:
        return b""

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        ids = choice.ids
        counts = ((2, choice.prompt.count), (3, 1), (4, choice.cached_tokens))
        chunks = [encode((1, encode((1, [ids[i]]), *counts))) for i in range(first, min(end, len(ids)))]
        return b"".join(_LENGTH.pack(len(chunk)) + chunk for chunk in chunks)

    def finish(self, choice: Choice) -> bytes:
        return self._complete(choice, ids=(), reason=choice.finish_reason)

    def close(self, _choices: Sequence[Choice]) -> bytes:
        return b""

    def failure(self, _refusal: Refusal, choices: Sequence[Choice]) -> bytes:
        return self._complete(choices[0], ids=(), reason="abort")

    def whole(self, choices: Sequence[Choice]) -> bytes:
        return b"".join(self._complete(c, ids=c.ids, reason=c.finish_reason) for c in choices)

    def _complete(self, choice: Choice, *, ids: Sequence[int], reason: str) -> bytes:
        counts = ((3, choice.prompt.count), (4, choice.cursor), (5, choice.cached_tokens))
        message = encode((2, encode((1, ids), (2, reason), *counts)))
        return _LENGTH.pack(len(message)) + message


class GenerateCall:
    """Generate: the job's peer and its stream in one."""

    def __init__(self, pod: Pod, push: Push) -> None:
        self.pod = pod
        self.finished = False
        self.headers: dict[bytes, bytes] = {}
        self.on_disconnect: Callable[[], None] | None = None
        self.on_choke: Callable[[], None] | None = None
        self.choked = False  # the wire keeps its own measure
        self._push: Push = push
        self._asked: list[bytes] | None = []  # what is sent while the request is being taken on

    def message(self, data: bytes) -> Sequence[bytes]:
        """Start the generation.

        Raises Refusal when it cannot be served.
        """
        if self.pod.stopping:
            raise Refusal(503, "server is shutting down")
        request_id, plan = read_generate(data)
        intake.accept(self.pod, plan, request=self, request_id=request_id or self.pod.next_id(), headers=b"")
        sent, self._asked = self._asked or [], None
        return sent

    def half_closed(self) -> bool:
        """Keep the call open until everything is generated: the client sends one request and then half-closes."""
        return True

    def closed(self) -> None:
        """Abort the generation if the client has left before its end."""
        if not self.finished and self.on_disconnect is not None:
            self.on_disconnect()

    def stream(self, *, headers: bytes = b"") -> "GenerateCall":  # noqa: ARG002 - HTTP's, and this is not HTTP
        """Return the sink of the job's tokens."""
        return self

    def respond(self, response: Response) -> None:
        """Send a whole answer."""
        if response.status == 200:
            self.end(response.body)
        else:
            aborted = encode((2, encode((2, "abort"))))
            self.end(_LENGTH.pack(len(aborted)) + aborted)

    def write(self, data: bytes) -> None:
        """Send the messages in the data."""
        for message in _split(data):
            self._send(message)

    def end(self, data: bytes = b"") -> None:
        """Send the last messages."""
        *before, last = _split(data)
        for message in before:
            self._send(message)
        self.finished = True
        self._send(last)

    def abort(self) -> None:
        """End without a last word."""
        self.end(_LENGTH.pack(0))

    def _send(self, message: bytes) -> None:
        if self._asked is not None:
            self._asked.append(message)
        else:
            self._push(message)


def _split(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = _LENGTH.unpack_from(data, at)[0]
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def read_generate(data: bytes) -> tuple[str, Plan]:
    """Return the request's id and its plan.

    Raises Refusal 400 when it has no prompt.
    """
    request_id, prompt, sampling, streaming = "", None, b"", False
    for number, value in decode(data):
        match number, value:
            case 1, bytes():
                request_id = value.decode("utf-8", "replace")
            case 2, bytes():
                prompt = _tokenized(value)
            case 3, bytes():
                prompt = Prompt(value.decode("utf-8", "replace"))
            case 4, bytes():
                sampling = value
            case 5, int():
                streaming = bool(value)
    if prompt is None:
        raise Refusal(400, "Give tokenized or text input")
    found, chosen = prompt, _sampling(sampling)
    plan = Plan(
        model=None, prompts=lambda: [found], writer=GrpcWriter, streaming=streaming, as_ids=True, max_tokens=chosen[0],
        ignore_eos=chosen[1], n=chosen[2],
    )  # fmt: skip
    return request_id, plan


def _tokenized(data: bytes) -> Prompt:
    ids: list[int] = []
    for number, value in decode(data):
        if number == 2:
            ids += numbers(value)
    return from_ids(ids)


def _sampling(data: bytes) -> tuple[int | None, bool, int]:
    limit, ignore_eos, n = None, False, 1
    for number, value in decode(data):
        match number, value:
            case 8, int():
                limit = value
            case 14, int():
                ignore_eos = bool(value)
            case 15, int():
                n = value or 1
    return limit, ignore_eos, n


# the rest


class UnaryCall:
    """A call with one answer."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.finished = False
        self._answer = answer

    def message(self, data: bytes) -> Sequence[bytes]:
        """Answer."""
        reply = self._answer(data)
        self.finished = True
        return (reply,)

    def half_closed(self) -> bool:
        """Keep the call open: the request is still to come, or was answered already."""
        return True

    def closed(self) -> None:
        """Do nothing: the call holds nothing that outlives it."""


def embed(pod: Pod, data: bytes) -> bytes:
    """Embed token ids."""
    prompt = next((_tokenized(v) for n, v in decode(data) if n == 2 and isinstance(v, bytes)), None)
    if prompt is None:
        raise Refusal(400, "Give tokenized input")
    values = vector(prompt.ids, pod.settings.default_embedding_dimensions)
    return encode((1, struct.pack(f"<{len(values)}f", *values)), (2, prompt.count), (3, len(values)))


def abort(pod: Pod, data: bytes) -> bytes:
    """Abort requests by their ids; unknown ones are no error."""
    wanted = {v.decode("utf-8", "replace") for n, v in decode(data) if n == 1 and isinstance(v, bytes)}
    for job in [job for job in pod.jobs if job.spec.id in wanted]:
        job.fail(Refusal(499, "aborted"))
        pod.abort(job)
    return b""


def health(pod: Pod, _data: bytes) -> bytes:
    """Return whether requests are served."""
    serving = not pod.stopping and not pod.sleeping
    return encode((1, int(serving)), (2, "Health" if serving else "not serving"))


def model_info(pod: Pod, _data: bytes) -> bytes:
    """Return the model's name and limits."""
    return encode((1, pod.settings.model), (2, 1), (3, pod.settings.max_model_len), (4, 1 << 32))


def server_info(pod: Pod, _data: bytes) -> bytes:
    """Return the number of jobs, whether the pod sleeps, and its uptime."""
    uptime = pod.clock() - pod.started
    return encode((1, len(pod.jobs)), (2, int(pod.sleeping)), (3, pod.wall()), (4, uptime), (5, "vllm-grpc"))


UNARY: dict[str, Callable[[Pod, bytes], bytes]] = {
    "Embed": embed,
    "Abort": abort,
    "HealthCheck": health,
    "GetModelInfo": model_info,
    "GetServerInfo": server_info,
}


def methods(pod: Pod) -> dict[str, Callable[[Push], Call]]:
    """Return every method of the service by its path, as something that opens a call."""

    def unary(answer: Callable[[Pod, bytes], bytes]) -> Callable[[Push], Call]:
        return lambda _push: UnaryCall(lambda data: answer(pod, data))

    found: dict[str, Callable[[Push], Call]] = {SERVICE + name: unary(answer) for name, answer in UNARY.items()}
    found[SERVICE + "Generate"] = lambda push: GenerateCall(pod, push)
    for version in reflection.VERSIONS:
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        found[path] = lambda _push: reflection.ReflectionCall()
    return found
