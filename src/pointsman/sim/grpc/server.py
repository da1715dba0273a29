"""The simulator's gRPC service on the wire. Imported with the first HTTP/2 connection; most simulators see none."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pointsman.core.budget import Budget
from pointsman.sim.failures import Refusal
from pointsman.sim.grpc import rpc
from pointsman.wire.grpc import Call, Failure, Method, Push, Router, Status
from pointsman.wire.limits import Limits
from pointsman.wire.listener import Listener, Peer
from pointsman.wire.protobuf import Data

STATUSES = {
    400: Status.INVALID_ARGUMENT,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
    409: Status.ABORTED,
    413: Status.RESOURCE_EXHAUSTED,
    429: Status.RESOURCE_EXHAUSTED,
    501: Status.UNIMPLEMENTED,
    503: Status.UNAVAILABLE,
    504: Status.DEADLINE_EXCEEDED,
}


class Adapted:
    """A call of the simulator as the wire wants it: refusals become statuses."""

    def __init__(self, call: rpc.Call) -> None:
        self._call = call

    @property
    def finished(self) -> bool:
        return self._call.finished

    @finished.setter
    def finished(self, value: bool) -> None:
        self._call.finished = value

    def message(self, data: Data) -> Sequence[bytes]:
        """Pass the request on."""
        try:
            return self._call.message(bytes(data))
        except Refusal as refusal:
            raise Failure(STATUSES.get(refusal.status, Status.INTERNAL), str(refusal)) from None

    def half_closed(self) -> bool:
        """Ask the call whether it goes on."""
        return self._call.half_closed()

    def closed(self) -> None:
        """Tell the call that its stream has ended."""
        self._call.closed()


def listener(methods: Mapping[str, Callable[[rpc.Push], rpc.Call]], *, budget: Budget) -> Listener:
    """Return what takes over the connections that ask for these methods."""
    limits = Limits()

    def adapt(opened: Callable[[rpc.Push], rpc.Call]) -> Method:
        def open_call(push: Push) -> Call:
            return Adapted(opened(push))

        return open_call

    router = Router({path: adapt(opened) for path, opened in methods.items()}, limits=limits)
    return Listener(router, limits=limits, budget=budget)


def protocol(listener: Listener) -> asyncio.Protocol:
    """Return the protocol of one connection."""
    return Peer(listener)
