"""The picker's certificates: those that Envoy sees, followed while they change, and those of the metrics port."""

import ssl
from collections.abc import Callable

from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.core.tls import load_folder, load_self_signed, server_context
from pointsman.core.watch import watch_files
from pointsman.epp.settings import Settings

log = get_logger(__name__)


def serving_context(settings: Settings) -> ssl.SSLContext:
    """Return the TLS of the ext_proc port; it has a certificate where one is served.

    Raises UserError naming the flag that cannot be used.
    """
    context = server_context(min_version=settings.tls_min_version, cipher_suites=settings.tls_cipher_suites)
    if settings.secure_serving and settings.cert_path is None:
        load_self_signed(context)
    elif settings.secure_serving and settings.cert_path is not None:
        load_folder(context, settings.cert_path)
    return context


async def follow_certificate(settings: Settings, context: ssl.SSLContext, *, failed: Callable[[], None]) -> None:
    """Load certificates into the live context when they change; a bad pair is reported and the old one stays."""
    folder = settings.cert_path
    assert folder is not None
    first = True
    async for _ in watch_files([folder / "tls.crt", folder / "tls.key"]):
        if first:
            first = False
            continue
        try:
            load_folder(context, folder)
            log.info("tls: certificate reloaded", folder=str(folder))
        except UserError as error:
            failed()
            log.warning("tls: certificate not used", reason=str(error))


def metrics_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS of the metrics port; None for plaintext.

    Raises UserError naming the flag whose files cannot be used.
    """
    if settings.metrics_cert_dir is None:
        return None
    context = server_context(alpn=("http/1.1",), min_version="VersionTLS12")
    load_folder(context, settings.metrics_cert_dir, flag="--metrics-cert-dir")
    authority = settings.metrics_client_ca_file
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError is one
            raise UserError(f"--metrics-client-ca-file {authority}: cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context
