"""gRPC health (grpc.health.v1): Check, Watch and List over the same wire.

The picker serves when nothing speaks against it: each part that has to be in order says so under a name of its own
(discovery has synced, this replica leads, the pool's protocol is one that we speak, we are not draining), and people
are told which one is missing.

Names are those of the Go picker: `""`, `liveness`, `readiness` and the ext_proc service. Without leader election every
name, known or not, answers for the whole picker (the Gateway API conformance fixture probes a name of its own); with it
an unknown name is SERVICE_UNKNOWN. `liveness` says no more than that the process runs, while it waits for others to
lead or drains; without leader election it says no as well when the pool is gone, as the Go picker does. Watch, which
the Go picker refuses, sends every change.
"""

from collections.abc import Callable, Sequence
from functools import partial

from pointsman.wire.grpc import Call, Method, Push
from pointsman.wire.protobuf import Data, encode_field, read_string_field

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
LIVENESS = "liveness"
POOL = "pool"
"""The part that says whether there is a pool."""
NAMES = ("", LIVENESS, "readiness", EXT_PROC)
_SERVING = b"\x08\x01"
_NOT_SERVING = b"\x08\x02"
_SERVICE_UNKNOWN = b"\x08\x03"


class Health:
    """Whether the picker serves, what is in the way, and who wants to know."""

    def __init__(self, *, election: bool = False) -> None:
        self._election = election
        self._obstacles: dict[str, str] = {"start": "it has not started yet"}
        self._watchers: dict[object, Callable[[], None]] = {}

    @property
    def serving(self) -> bool:
        """Whether requests should come here."""
        return not self._obstacles

    @property
    def obstacles(self) -> tuple[str, ...]:
        """What is in the way, in words."""
        return tuple(self._obstacles.values())

    def set(self, *, serving: bool) -> None:
        """Say whether the process as such is ready."""
        self.note("start", obstacle="" if serving else "it is not ready")

    def note(self, part: str, *, obstacle: str) -> None:
        """Take a part's word for what is wrong with it, nothing when it is in order; tell all watchers of a change."""
        before = [self.response(name) for name in NAMES]
        if obstacle:
            self._obstacles[part] = obstacle
        else:
            self._obstacles.pop(part, None)
        if [self.response(name) for name in NAMES] != before:
            for notify in list(self._watchers.values()):
                notify()

    def response(self, service: str) -> bytes:
        """Return the HealthCheckResponse for a service name."""
        if service == LIVENESS:
            return _NOT_SERVING if POOL in self._obstacles and not self._election else _SERVING
        if self._election and service not in NAMES:
            return _SERVICE_UNKNOWN
        return _SERVING if self.serving else _NOT_SERVING

    def methods(self) -> dict[str, Method]:
        """Return the service's methods by path."""
        return {
            "/grpc.health.v1.Health/Check": partial(_Unary, answer=self._check),
            "/grpc.health.v1.Health/List": partial(_Unary, answer=self._list),
            "/grpc.health.v1.Health/Watch": self._watch,
        }

    def _check(self, request: Data) -> bytes:
        return self.response(read_string_field(request, field=1))

    def _list(self, _request: Data) -> bytes:
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

    def __init__(self, _push: Push, *, answer: Callable[[Data], bytes]) -> None:
        self._answer = answer
        self.finished = False

    def message(self, data: Data) -> Sequence[bytes]:
        self.finished = True
        return (self._answer(data),)

    def half_closed(self) -> bool:
        return False

    def closed(self) -> None:
        """Do nothing: there is no state to release."""


class _Watch:
    """One message, then an answer now and after every change, until the client goes."""

    __slots__ = ("_health", "_last", "_push", "_service", "finished")

    def __init__(self, health: Health, *, push: Push) -> None:
        self._health = health
        self._push = push
        self._service = ""
        self._last = b""
        self.finished = False

    def message(self, data: Data) -> Sequence[bytes]:
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
