"""Certificates of our own making, where nothing can be written."""

import ssl
import tempfile
from pathlib import Path

import pytest

from pointsman.core import tls


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has files in memory")
def test_a_certificate_needs_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("read-only file system")

    for name in ("TemporaryDirectory", "NamedTemporaryFile", "mkstemp", "mkdtemp"):
        monkeypatch.setattr(tempfile, name, refuse)
    server = tls.server_context()
    tls.load_self_signed(server)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_alpn_protocols(["h2"])
    assert shaken(client, server) == "h2"


def shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """Return the protocol on which two sides agree, without a socket."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(6):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ours.selected_alpn_protocol()
