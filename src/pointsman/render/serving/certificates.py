"""Which names a service's certificate has, and when there must be another. Pure.

A certificate is kept for as long as it can be used: its key belongs to it, it covers every name and address that is
asked for now, and less than four fifths of its time are over. Addresses that went are no reason for a new one, since
they come and go with every Pod. Who named an issuer has cert-manager do all of this.
"""

import base64
import datetime as dt
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtensionOID

from pointsman.api.llminferenceservice import ISSUERS, LLMInferenceService
from pointsman.render.serving import parts
from pointsman.render.serving.names import WORKLOAD, ServiceNames
from pointsman.render.serving.parts import Object

LIFETIME = dt.timedelta(days=365)
RENEWED_AT = 0.8
"""The part of a certificate's time after which it is replaced."""
ALWAYS = ("127.0.0.1",)
EXPIRATION = "certificates.kserve.io/expiration"


@dataclass(frozen=True, kw_only=True)
class CertificateNames:
    """What a certificate must be good for."""

    dns: frozenset[str]
    addresses: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a certificate stays, and why not."""

    usable: bool
    reason: str = ""
    renew_at: dt.datetime | None = None


def wanted_names(names: ServiceNames, *, domain: str, addresses: Iterable[str] = ()) -> CertificateNames:
    """Return the names of the Services, and the addresses of Services and Pods as far as they are known."""
    services = (names.workload_service, names.picker_service, names.pods)
    found = {"localhost"}
    for each in services:
        short = f"{each}.{names.namespace}"
        found |= {each, short, f"{short}.svc", f"{short}.svc.{domain}"}
    # One address may be written in several ways, and a certificate has one of them.
    known = {str(ipaddress.ip_address(one)) for one in addresses if _is_address(one)}
    return CertificateNames(dns=frozenset(found), addresses=frozenset({*ALWAYS, *known}))


def judge(secret: Mapping[str, Any] | None, wanted: CertificateNames, *, now: dt.datetime) -> Judgement:
    """Tell whether the certificate in a Secret can stay."""
    if secret is None:
        return Judgement(usable=False, reason="there is none")
    try:
        certificate, key = _read(secret)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return Judgement(usable=False, reason=f"it cannot be read ({str(error).partition('.')[0][:80]})")
    if _public(certificate.public_key()) != _public(key.public_key()):
        return Judgement(usable=False, reason="its key is of another certificate")
    missing = sorted((wanted.dns - _dns(certificate)) | (wanted.addresses - _addresses(certificate)))
    if missing:
        return Judgement(usable=False, reason=f"it is not for {', '.join(missing[:3])}")
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    renew_at = start + (end - start) * RENEWED_AT
    if now < start:
        return Judgement(usable=False, reason=f"it is not valid before {start:%Y-%m-%dT%H:%M:%SZ}")
    if now >= end:
        return Judgement(usable=False, reason=f"it expired at {end:%Y-%m-%dT%H:%M:%SZ}")
    if now >= renew_at:
        return Judgement(usable=False, reason=f"it expires at {end:%Y-%m-%dT%H:%M:%SZ}")
    return Judgement(usable=True, renew_at=renew_at)


def secret(names: ServiceNames, *, certificate: bytes, key: bytes, renew_at: dt.datetime) -> Object:
    """Return the Secret with a certificate, which is its own authority."""
    head = parts.head("Secret", names.certificate, names=names, labels=WORKLOAD)
    head["metadata"]["annotations"] = {EXPIRATION: f"{renew_at:%Y-%m-%dT%H:%M:%SZ}"}
    data = {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}
    return {
        **head,
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(text).decode() for name, text in data.items()},
    }


def kept(live: Mapping[str, Any], names: ServiceNames) -> Object:
    """Return the Secret as it is, to be applied again without a change."""
    head = parts.head("Secret", names.certificate, names=names, labels=WORKLOAD)
    told = (live["metadata"].get("annotations") or {}).get(EXPIRATION)
    if told:
        head["metadata"]["annotations"] = {EXPIRATION: told}
    return {**head, "type": "kubernetes.io/tls", "data": dict(live["data"])}


def issuer_of(resource: LLMInferenceService) -> tuple[str, str] | None:
    """Return kind and name of the issuer that a service names."""
    for annotation, kind in ISSUERS.items():
        name = resource.metadata.annotations.get(annotation)
        if name:
            return kind, name
    return None


def request(names: ServiceNames, wanted: CertificateNames, *, issuer: tuple[str, str]) -> Object:
    """Return the Certificate that cert-manager makes the Secret of."""
    kind, name = issuer
    head = parts.head("Certificate", names.certificate, names=names, labels=WORKLOAD, api="cert-manager.io/v1")
    return {
        **head,
        "spec": {
            "secretName": names.certificate,
            "dnsNames": sorted(wanted.dns),
            "ipAddresses": sorted(wanted.addresses),
            "issuerRef": {"group": "cert-manager.io", "kind": kind, "name": name},
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", "key encipherment", "server auth"],
        },
    }


def _read(document: Mapping[str, Any]) -> tuple[x509.Certificate, Any]:
    data = document.get("data") or {}
    certificate, key = (base64.b64decode(data.get(name) or "", validate=True) for name in ("tls.crt", "tls.key"))
    return x509.load_pem_x509_certificate(certificate), serialization.load_pem_private_key(key, None)


def _public(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        found = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    except x509.ExtensionNotFound:
        return None
    return found.value if isinstance(found.value, x509.SubjectAlternativeName) else None


def _dns(certificate: x509.Certificate) -> frozenset[str]:
    names = _names(certificate)
    return frozenset(names.get_values_for_type(x509.DNSName)) if names else frozenset()


def _addresses(certificate: x509.Certificate) -> frozenset[str]:
    names = _names(certificate)
    return frozenset(map(str, names.get_values_for_type(x509.IPAddress))) if names else frozenset()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
