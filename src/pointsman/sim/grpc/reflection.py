"""gRPC's server reflection, version 1 and the alpha that most tools still ask for: what is served, and its types.

Both versions have the same messages; a version is told from the other by nothing but its package.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

from pointsman.sim.grpc.descriptors import File, compile_file
from pointsman.sim.grpc.protobuf import decode, encode

VERSIONS = ("v1", "v1alpha")
_UNIMPLEMENTED, _NOT_FOUND = 12, 5


@cache
def known() -> tuple[File, ...]:
    """Return the files of everything that is served on the gRPC port."""
    folder = files("pointsman.sim") / "protos"
    reflection = (folder / "reflection.proto").read_text()
    return (
        compile_file("vllm_engine.proto", (folder / "engine.proto").read_text()),
        *(compile_file(f"grpc/reflection/{v}/reflection.proto", reflection.replace("VERSION", v, 1)) for v in VERSIONS),
    )


def reply(request: bytes) -> bytes:
    """Answer one ServerReflectionRequest."""
    asked = next(((n, v) for n, v in decode(request) if n != 1), (0, b""))
    host = next((v for n, v in decode(request) if n == 1), b"")
    number, value = asked
    answer = ANSWERS.get(number, _unknown)
    return encode((1, host), (2, request)) + answer(value if isinstance(value, bytes) else b"")


def _by_name(value: bytes) -> bytes:
    return _found(next((f for f in known() if f.name.encode() == value), None), value)


def _by_symbol(value: bytes) -> bytes:
    symbol = value.decode("utf-8", "replace")
    return _found(next((f for f in known() if symbol in f.symbols), None), value)


def _services(_value: bytes) -> bytes:
    names = sorted(service for file in known() for service in file.services)
    return encode((6, encode(*((1, encode((1, name))) for name in names))))


def _extensions(value: bytes) -> bytes:
    """There are none, of whatever type we know."""
    symbol = value.decode("utf-8", "replace")
    if not any(symbol in file.symbols for file in known()):
        return _error(_NOT_FOUND, f"type not found: {symbol}")
    return encode((5, encode((1, value))))


def _extension(_value: bytes) -> bytes:
    return _error(_NOT_FOUND, "there are no extensions")


def _unknown(_value: bytes) -> bytes:
    return _error(_UNIMPLEMENTED, "this request asks for nothing that we know")


def _found(file: File | None, value: bytes) -> bytes:
    if file is None:
        return _error(_NOT_FOUND, f"not found: {value.decode('utf-8', 'replace')}")
    return encode((4, encode((1, file.descriptor))))


def _error(code: int, message: str) -> bytes:
    return encode((7, encode((1, code), (2, message))))


ANSWERS: Mapping[int, Callable[[bytes], bytes]] = {
    3: _by_name,
    4: _by_symbol,
    5: _extension,
    6: _extensions,
    7: _services,
}


class ReflectionCall:
    """An RPC that answers every request until the client has no more."""

    def __init__(self) -> None:
        self.finished = False

    def message(self, data: bytes) -> Sequence[bytes]:
        """Answer."""
        return (reply(data),)

    def half_closed(self) -> bool:
        """End the call when the client does."""
        return False

    def closed(self) -> None:
        """Do nothing: there is no state to release."""
