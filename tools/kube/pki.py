"""A certificate authority for clusters of tests. Keys live in the cluster's directory and end with it."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class Authority:
    """Signs certificates into one directory; `ca.crt` is there from the start."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("pointsman tests")
        directory.mkdir(parents=True, exist_ok=True)
        root = _certificate(self._name, issuer=self._name, key=self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        _public(directory / "ca.crt", root.sign(self._key, hashes.SHA256()))

    def serve(self, name: str, *, subject: str, hosts: Sequence[str], group: str = "") -> None:
        """Write `name`.crt and `name`.key for a server at these names and addresses."""
        self._issue(name, _name(subject, group=group), usage=ExtendedKeyUsageOID.SERVER_AUTH, hosts=hosts)

    def identify(self, name: str, *, subject: str, group: str = "") -> None:
        """Write `name`.crt and `name`.key for a client; Kubernetes reads the subject as user and group."""
        self._issue(name, _name(subject, group=group), usage=ExtendedKeyUsageOID.CLIENT_AUTH, hosts=())

    def sign_tokens(self) -> None:
        """Write `sa.key`, with which service account tokens are signed."""
        _private(self._directory / "sa.key", rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def _issue(self, name: str, subject: x509.Name, *, usage: x509.ObjectIdentifier, hosts: Sequence[str]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _certificate(subject, issuer=self._name, key=key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if hosts:
            leaf = leaf.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        _public(self._directory / f"{name}.crt", leaf.sign(self._key, hashes.SHA256()))
        _private(self._directory / f"{name}.key", key)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _name(text: str, *, group: str = "") -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, text)])


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
    path.touch(0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
