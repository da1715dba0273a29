"""A certificate authority that lives for one run: it signs what is served, and its key is thrown away.

So whoever has the output has the keys of the servers in it and nothing that could sign more. Time is handed in; keys
come from the operating system.
"""

import datetime as dt
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pointsman.bundle.render.certificates import Issued, Serving, encoded

_YEARS = 10
_MAX_COMMON_NAME = 64


def issuer(*, now: dt.datetime) -> Callable[[Serving], Issued]:
    """Return what issues certificates of one new authority, one for each Service however often it is asked."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pointsman-bundle-ca")])
    root = _builder(name, name, key.public_key(), now=now)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    authority = encoded(root.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    known: dict[Serving, Issued] = {}

    def issue(serving: Serving) -> Issued:
        if serving not in known:
            certificate, own = _signed(serving, name, key, now=now)
            known[serving] = Issued(certificate, own, authority)
        return known[serving]

    return issue


def _signed(
    serving: Serving, signer: x509.Name, signing_key: ec.EllipticCurvePrivateKey, *, now: dt.datetime
) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, serving.hosts[0][:_MAX_COMMON_NAME])])
    built = (
        _builder(name, signer, key.public_key(), now=now)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in serving.hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return (
        encoded(built.sign(signing_key, hashes.SHA256()).public_bytes(pem)),
        encoded(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)),
    )


def _builder(
    subject: x509.Name, signer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
    )
