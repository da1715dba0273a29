"""Knock at a picker's ports as Envoy and the kubelet do: TLS with ALPN h2, HTTP/2, gRPC health."""

import asyncio
import ssl
from contextlib import suppress
from datetime import datetime

from cryptography import x509
from hpack import Decoder, Encoder, HPACKError

from pointsman.doctor.cluster.facts import Health, Port
from pointsman.render.envoy.addresses import Address
from pointsman.wire.frames import END_HEADERS, END_STREAM, HEADER, PREFACE, FrameKind, frame
from pointsman.wire.protobuf import Malformed, read_varint

PATIENCE = 3.0
_STATUSES = {1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_MOST_FRAMES = 20
_LARGEST = 16_384


async def knock(address: Address, *, named: str, seconds: float = PATIENCE) -> Port:
    """Return how the port for Envoy presents itself; `named` is the address that people know."""
    try:
        return await _with_tls(address, named, seconds)
    except _NoTlsError:
        return await _plain(address, named, seconds)
    except (OSError, TimeoutError) as error:
        return Port(address=named, reached=False, why=_reason(error))


async def health(address: Address, *, named: str, seconds: float = PATIENCE) -> Health:
    """Return what gRPC health says of the whole server."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(_check(str(address)))
                status, why = await _answer(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError, EOFError, HPACKError, Malformed) as error:
        return Health(address=named, status="", why=_reason(error))
    return Health(address=named, status=status, why=why)


class _NoTlsError(Exception):
    """The server does not speak TLS."""


async def _with_tls(address: Address, named: str, seconds: float) -> Port:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what it presents is looked at, not trusted
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except ssl.SSLError as error:
        if "NO_APPLICATION_PROTOCOL" in str(error.reason or ""):
            return Port(address=named, reached=True, tls=True, why="no_application_protocol")
        raise _NoTlsError from None
    except ConnectionRefusedError:
        raise
    except (ConnectionError, EOFError):
        raise _NoTlsError from None
    try:
        session = writer.get_extra_info("ssl_object")
        starts, ends = _dates(session.getpeercert(binary_form=True))
        http2, why = await _speaks_http2(reader, writer, seconds)
        alpn = str(session.selected_alpn_protocol() or "")
        return Port(address=named, reached=True, tls=True, alpn=alpn, http2=http2, starts=starts, ends=ends, why=why)
    finally:
        writer.close()


async def _plain(address: Address, named: str, seconds: float) -> Port:
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError) as error:
        return Port(address=named, reached=False, why=_reason(error))
    try:
        http2, why = await _speaks_http2(reader, writer, seconds)
        return Port(address=named, reached=True, http2=http2, why=why)
    finally:
        writer.close()


async def _speaks_http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> tuple[bool, str]:
    writer.write(PREFACE + frame(FrameKind.SETTINGS, 0, 0))
    try:
        async with asyncio.timeout(seconds):
            head = await reader.readexactly(HEADER.size)
    except TimeoutError:
        return False, f"silence for {seconds:g} s: it hangs"
    except asyncio.IncompleteReadError as error:
        return False, f"{error.partial!r} and the end" if error.partial else "the end of the connection"
    except OSError as error:
        return False, _reason(error)
    kind = HEADER.unpack(head)[2]
    return (True, "") if kind == FrameKind.SETTINGS else (False, f"{head!r}")


def _dates(certificate: bytes | None) -> tuple[datetime | None, datetime | None]:
    if certificate:
        with suppress(ValueError):
            read = x509.load_der_x509_certificate(certificate)
            return read.not_valid_before_utc, read.not_valid_after_utc
    return None, None


def _check(authority: str) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    return (
        PREFACE
        + frame(FrameKind.SETTINGS, 0, 0)
        + frame(FrameKind.HEADERS, END_HEADERS, 1, Encoder().encode(fields))
        + frame(FrameKind.DATA, END_STREAM, 1, bytes(5))  # an empty message: the server as a whole
    )


async def _answer(reader: asyncio.StreamReader) -> tuple[str, str]:
    decoder = Decoder()
    for _ in range(_MOST_FRAMES):
        top, low, kind, flags, stream = HEADER.unpack(await reader.readexactly(HEADER.size))
        size = (top << 16) | low
        if size > _LARGEST:
            return "", "no HTTP/2"
        payload = await reader.readexactly(size)
        if kind == FrameKind.DATA and stream == 1 and len(payload) >= 5:
            return _STATUSES.get(read_varint(payload, 6)[0] if len(payload) > 6 else 0, "UNKNOWN"), ""
        if kind == FrameKind.HEADERS and stream == 1:
            said = {str(name): str(value) for name, value in decoder.decode(payload)}
            if flags & END_STREAM:
                return "", f"grpc-status {said.get('grpc-status', '?')} {said.get('grpc-message', '')}".strip()
        if kind == FrameKind.GOAWAY:
            return "", "it closed the connection"
    return "", "no answer"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer: it hangs, or something drops the packets"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nobody listens there"
    if isinstance(error, asyncio.IncompleteReadError):
        return "it closed the connection"
    return str(error) or type(error).__name__
