"""Certificates that are made here: self-signed, for a host or for names on a cluster.

Whoever brings certificates from elsewhere does not need this module, nor the library that it imports.
"""

import datetime as dt
import ipaddress
import socket
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEARS = 10


def self_signed() -> tuple[bytes, bytes]:
    """Return certificate and key in PEM, for loopback and this host's name."""
    return issued(
        dns=("localhost", socket.gethostname()),
        addresses=("127.0.0.1", "::1"),
        now=dt.datetime.now(dt.UTC),
        lifetime=dt.timedelta(days=365 * _YEARS),
    )


def issued(
    *, dns: Iterable[str], addresses: Iterable[str], now: dt.datetime, lifetime: dt.timedelta
) -> tuple[bytes, bytes]:
    """Return a certificate for these names, which is its own authority, and its key, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "llm-d")])
    names = [
        *(x509.DNSName(each) for each in dns),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
