"""Questions that the operator asks of what it made, before it calls it ready: a TLS handshake, and a request.

Both are answered by words for people when the answer is not the right one, and by nothing when it is. Where a name
leads is a parameter (`Reach`), since not everybody who asks is on the cluster's network.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.core.http.client import fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request

Reach = Callable[[str, int], tuple[str, int]]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """What came of a handshake."""

    problem: str = ""
    """What is wrong, and what to do about it; nothing when the server speaks HTTP/2."""
    certificate: bytes = b""
    """What the server showed, in DER."""


def itself(host: str, port: int) -> tuple[str, int]:
    """Reach a name as it is."""
    return host, port


async def handshake(host: str, port: int, *, seconds: float = 5.0) -> Handshake:
    """Ask a server for HTTP/2 over TLS: offer ALPN h2, and expect that it is chosen and spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whose certificate it is is looked at by the caller
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                return await _spoken(reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        return Handshake(problem=f"{host}:{port} did not answer within {seconds:g} s")
    except (OSError, asyncio.IncompleteReadError) as error:  # ssl.SSLError is one
        return Handshake(problem=f"{host}:{port}: no TLS handshake: {str(error) or type(error).__name__}")


async def _spoken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handshake:
    secured = writer.get_extra_info("ssl_object")
    certificate = secured.getpeercert(binary_form=True) or b""
    if secured.selected_alpn_protocol() != "h2":
        problem = (
            "the picker's TLS chooses no ALPN protocol, and gRPC clients refuse such a server: use an image whose "
            "picker offers h2"
        )
        return Handshake(problem=problem, certificate=certificate)
    writer.write(_PREFACE)
    frame = await reader.readexactly(9)
    if frame[3] != _SETTINGS:
        return Handshake(
            problem="the picker chose h2 and does not speak it: use another image", certificate=certificate
        )
    return Handshake(certificate=certificate)


async def answers(host: str, port: int, path: str, *, reach: Reach, seconds: float = 5.0) -> str:
    """Ask for a page; return what is wrong with the answer, or nothing."""
    question = request("GET", path, host=host, headers={"accept": "application/json"})
    limits = AnswerLimits(body_bytes=1 << 20)
    where, number = reach(host, port)
    try:
        answer = await fetch(question, host=where, port=number, seconds=seconds, limits=limits)
    except OSError as error:
        return f"http://{host}:{port}{path} does not answer: {error}"
    return "" if answer.status == 200 else f"http://{host}:{port}{path} answers {answer.status}"
