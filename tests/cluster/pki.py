"""A certificate authority and serving certificates for a control plane of tests. Keys live in its directory
only.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def write_pki(directory: Path, *, addresses: tuple[str, ...]) -> None:
    """Write ca.crt, api.crt, api.key and sa.key."""
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    subject = _name("pointsman tests")
    root = _certificate(subject, issuer=subject, key=authority).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    names = [x509.DNSName(name) for name in NAMES]
    numbers = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    leaf = (
        _certificate(_name("kube-apiserver"), issuer=subject, key=server)
        .add_extension(x509.SubjectAlternativeName([*names, *numbers]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    _public(directory / "ca.crt", root.sign(authority, hashes.SHA256()))
    _public(directory / "api.crt", leaf.sign(authority, hashes.SHA256()))
    _private(directory / "api.key", server)
    _private(directory / "sa.key", rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, *, issuer: x509.Name, key: Private) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _public(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _private(path: Path, key: Private) -> None:
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    path.chmod(0o600)
