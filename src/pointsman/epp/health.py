"""gRPC health (grpc.health.v1): Check, Watch and List over the same wire.

Names are those of the Go picker: `""`, `liveness`, `readiness` and the ext_proc service. Without leader election every
name, known or not, answers for the whole picker (the Gateway API conformance fixture probes a name of its own); only
`liveness` says no more than that the process runs. Watch, which the Go picker refuses, sends every change.
"""

from collections.abc import Callable, Sequence
from functools import partial

from pointsman.epp.grpc import Call, Method, Push
from pointsman.epp.protobuf import encode_field, read_string_field

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
NAMES = ("", "liveness", "readiness", EXT_PROC)
_SERVING = b"\x08\x01"
_NOT_SERVING = b"\x08\x02"


class Health:
    """Whether the picker serves, and who wants to know."""

    def __init__(self) -> None:
        self._serving = False
        self._watchers: dict[object, Callable[[], None]] = {}

    @property
    def serving(self) -> bool:
        """Whether requests should come here."""
        return self._serving

    def set(self, *, serving: bool) -> None:
        """Change the answer and tell all watchers."""
        if serving != self._serving:
            self._serving = serving
            for notify in list(self._watchers.values()):
                notify()

    def response(self, service: str) -> bytes:
        """Return the HealthCheckResponse for a service name."""
        return _SERVING if self._serving or service == "liveness" else _NOT_SERVING

    def methods(self) -> dict[str, Method]:
        """Return the service's methods by path."""
        return {
            "/grpc.health.v1.Health/Check": partial(_Unary, answer=self._check),
            "/grpc.health.v1.Health/List": partial(_Unary, answer=self._list),
            "/grpc.health.v1.Health/Watch": self._watch,
        }

    def _check(self, request: bytes) -> bytes:
        return self.response(read_string_field(request, field=1))

    def _list(self, _request: bytes) -> bytes:
        entries = ((encode_field(1, name.encode()), encode_field(2, self.response(name))) for name in NAMES)
        return b"".join(encode_field(1, key + value) for key, value in entries)

    def _watch(self, push: Push) -> Call:
        return _Watch(self, push=push)

    def subscribe(self, key: object, notify: Callable[[], None] | None) -> None:
        """Call `notify` after every change; None ends that."""
        if notify is None:
            self._watchers.pop(key, None)
        else:
            self._watchers[key] = notify


class _Unary:
    """One message, one answer."""

    __slots__ = ("_answer", "finished")

    def __init__(self, _push: Push, *, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self.finished = False

    def message(self, data: bytes) -> Sequence[bytes]:
        self.finished = True
        return (self._answer(data),)

    def half_closed(self) -> bool:
        return False

    def closed(self) -> None:
        """Hold nothing."""


class _Watch:
    """One message, then an answer now and after every change, until the client goes."""

    __slots__ = ("_health", "_last", "_push", "_service", "finished")

    def __init__(self, health: Health, *, push: Push) -> None:
        self._health = health
        self._push = push
        self._service = ""
        self._last = b""
        self.finished = False

    def message(self, data: bytes) -> Sequence[bytes]:
        self._service = read_string_field(data, field=1)
        self._last = self._health.response(self._service)
        self._health.subscribe(self, self._changed)
        return (self._last,)

    def half_closed(self) -> bool:
        return True  # a client that watches closes its own side at once

    def closed(self) -> None:
        self._health.subscribe(self, None)

    def _changed(self) -> None:
        now = self._health.response(self._service)
        if now != self._last:
            self._last = now
            self._push(now)
