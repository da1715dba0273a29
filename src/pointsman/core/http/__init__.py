"""HTTP/1.1, both sides. Bytes become messages without a socket; sockets are shells around that.

    server:  Server ─ Listener ─ Peer (a socket) ─ Connection ─ Intake
                                                      └── Request, Stream: how a handler answers
    client:  Lines ─ Poll, Line, fetch; Pull (sockets) ─ Exchange

`Connection` and `Exchange` own the protocol and its limits and can be tested byte by byte; `Peer`, `client` and `pull`
own transports, clocks and tasks. Parsing itself is httptools'.
"""

from pointsman.core.http.limits import Limits
from pointsman.core.http.messages import Response, header_lines
from pointsman.core.http.requests import Request, Stream
from pointsman.core.http.server import Listener, Server

__all__ = ["Limits", "Listener", "Request", "Response", "Server", "Stream", "header_lines"]
