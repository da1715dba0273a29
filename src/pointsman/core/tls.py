"""TLS for our servers: a certificate from a folder (`tls.crt`, `tls.key`, as a mounted Secret has) or self-signed.

A context lives as long as its listener. New certificates are loaded into the *same* context, so handshakes that begin
afterwards use them and nothing that is open notices. They are tried on a spare context first: a half-written pair must
never replace a good one.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pointsman.core.errors import UserError

_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


def server_context(
    *, alpn: tuple[str, ...] = ("h2",), min_version: str = "", cipher_suites: str = ""
) -> ssl.SSLContext:
    """Return a context without a certificate. Version and cipher names are Go's, as llm-d's flags take them.

    Raises UserError when a name is unknown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(list(alpn))
    min_version = min_version or "VersionTLS12"
    if min_version not in _VERSIONS:
        raise UserError(f"--tls-min-version {min_version!r} is unknown: use one of {', '.join(_VERSIONS)}")
    context.minimum_version = _VERSIONS[min_version]
    if cipher_suites:
        try:
            context.set_ciphers(":".join(_openssl_name(name) for name in cipher_suites.split(",")))
        except ssl.SSLError:
            raise UserError(
                f"--tls-cipher-suites {cipher_suites!r} names a suite that OpenSSL does not know: use Go's names of "
                "TLS 1.2 suites, such as TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, with commas between"
            ) from None
    return context


def load_folder(context: ssl.SSLContext, folder: Path, *, flag: str = "--cert-path") -> None:
    """Take `tls.crt` and `tls.key` of the folder into use; `flag` is what a complaint tells to change.

    Raises UserError, and leaves the context as it was, when they are missing or do not belong together.
    """
    certificate, key = folder / "tls.crt", folder / "tls.key"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise UserError(
            f"{flag} {folder}: tls.crt and tls.key cannot be used ({reason}): both must be there, in PEM, and "
            "belong together"
        ) from None


def load_self_signed(context: ssl.SSLContext) -> None:
    """Make a certificate for this host and take it into use."""
    from pointsman.core.certificates import self_signed  # only here: a heavy library that most processes do not need

    with _as_file(b"".join(self_signed())) as path:
        context.load_cert_chain(path)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give a text a name, which is all that OpenSSL reads; on Linux in memory, since a disk may be read-only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("tls"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 → ECDHE-RSA-AES128-GCM-SHA256."""
    short = name.strip().removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES")
    return short.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_", "-").removeprefix("RSA-")
