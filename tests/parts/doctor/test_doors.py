"""Knocking at real ports: our picker's, and servers that are wrong in one way each."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pointsman.core.tls import load_folder, server_context
from pointsman.doctor.gather import doors
from pointsman.render.envoy.addresses import Address
from pointsman.wire.frames import FrameKind, frame

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


async def http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(frame(FrameKind.SETTINGS, 0, 0))
    await reader.read()
    writer.close()


async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def context(folder: Path, *, alpn: tuple[str, ...], days: tuple[int, int] = (-1, 100)) -> ssl.SSLContext:
    """Return TLS with a certificate that is valid for these days, counted from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain, pkcs8 = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    (folder / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
    made = server_context(alpn=alpn) if alpn else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_folder(made, folder)
    return made


async def test_plaintext_http2() -> None:
    async with listening(http2) as address:
        port = await doors.knock(address, named="picker")
    assert (port.reached, port.tls, port.http2, port.address) == (True, False, True, "picker")


async def test_tls_with_alpn_and_dates(tmp_path: Path) -> None:
    async with listening(http2, tls=context(tmp_path, alpn=("h2",), days=(-100, -1))) as address:
        port = await doors.knock(address, named="picker")
    assert (port.reached, port.tls, port.alpn, port.http2) == (True, True, "h2", True)
    assert port.starts is not None
    assert port.ends is not None
    assert port.ends - port.starts == dt.timedelta(days=99)


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)], ids=["none", "http/1.1"])
async def test_tls_without_alpn_of_h2(tmp_path: Path, alpn: tuple[str, ...]) -> None:
    async with listening(http2, tls=context(tmp_path, alpn=alpn)) as address:
        port = await doors.knock(address, named="picker")
    assert (port.reached, port.tls, port.alpn) == (True, True, "")


async def test_http1_is_no_grpc() -> None:
    async with listening(http1) as address:
        port = await doors.knock(address, named="picker")
        health = await doors.health(address, named="picker")
    assert (port.reached, port.tls, port.http2) == (True, False, False)
    assert "HTTP/1.1" in port.why
    assert (health.status, bool(health.why)) == ("", True)


async def test_one_that_hangs() -> None:
    async with listening(silent) as address:
        port = await doors.knock(address, named="picker", seconds=0.3)
        health = await doors.health(address, named="picker", seconds=0.3)
    assert not port.http2
    assert "hangs" in port.why
    assert "hangs" in health.why


async def test_nobody() -> None:
    async with listening(silent) as address:
        pass
    port = await doors.knock(address, named="picker")
    health = await doors.health(address, named="picker")
    assert (port.reached, "nobody listens" in port.why) == (False, True)
    assert (health.status, "nobody listens" in health.why) == ("", True)
