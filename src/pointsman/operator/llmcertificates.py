"""The certificate of an LLMInferenceService: which Secret to have, and what to say about it.

When there must be another is decided elsewhere (`render.serving.certificates`); here are the addresses of the moment,
and the keys, which are random. Where a service names an issuer, cert-manager does all of it, and is quoted.
"""

import datetime as dt
from collections.abc import Sequence

from pointsman.core.certificates import issued
from pointsman.core.logs import get_logger
from pointsman.kube import Condition, Key, Object, View
from pointsman.operator import kinds
from pointsman.render.manifests.facts import Facts
from pointsman.render.serving import certificates
from pointsman.render.serving.certificates import CertificateNames
from pointsman.render.serving.names import SERVERS
from pointsman.render.serving.service import LLMStack

READY = "CertificateReady"
log = get_logger(__name__)


def certificate(
    stack: LLMStack, view: View, *, pods: Sequence[Object], facts: Facts, now: dt.datetime
) -> tuple[Object | None, Condition | None]:
    """Return the Secret to have, and what to say about it; `pods` are those of the service."""
    if not stack.wants_certificate or stack.issuer is not None:
        return None, _issued(stack, stack.issuer, view) if stack.issuer and facts.cert_manager else None
    names = stack.names
    live = view.get(kinds.SECRET, Key(names.namespace, names.certificate))
    wanted = _names(stack, view, pods=pods, facts=facts)
    found = certificates.judge(live, wanted, now=now)
    if found.usable and live is not None:
        until = f"{found.renew_at:%Y-%m-%dT%H:%M:%SZ}" if found.renew_at else ""
        said = f"Secret {names.certificate} has it; it is replaced at {until}, or when names are added"
        return certificates.kept(live, names), Condition(READY, "True", "Issued", said)
    log.info("certificate replaced", service=names.service, namespace=names.namespace, why=found.reason)
    said = f"Secret {names.certificate} has a new one, because of the old one {found.reason}"
    return _made(stack, wanted, now=now), Condition(READY, "True", "Issued", said)


def _made(stack: LLMStack, wanted: CertificateNames, *, now: dt.datetime) -> Object:
    made, key = issued(
        dns=sorted(wanted.dns), addresses=sorted(wanted.addresses), now=now, lifetime=certificates.LIFETIME
    )
    renew_at = now + certificates.LIFETIME * certificates.RENEWED_AT
    return certificates.secret(stack.names, certificate=made, key=key, renew_at=renew_at)


def _names(stack: LLMStack, view: View, *, pods: Sequence[Object], facts: Facts) -> CertificateNames:
    """Return what the certificate must be good for: Services by name and address, and the model servers' Pods."""
    names = stack.names
    found = [
        address["ip"]
        for pod in pods
        if SERVERS.items() <= (pod["metadata"].get("labels") or {}).items()
        for address in pod.get("status", {}).get("podIPs") or ()
    ]
    for name in (names.workload_service, names.picker_service):
        live = view.get(kinds.SERVICE, Key(names.namespace, name)) or {}
        found += live.get("spec", {}).get("clusterIPs") or ()
    return certificates.wanted_names(names, domain=facts.domain, addresses=found)


def _issued(stack: LLMStack, issuer: tuple[str, str], view: View) -> Condition:
    """Return what cert-manager says of the certificate."""
    kind, name = issuer
    live = view.get(kinds.CERTIFICATE, Key(stack.names.namespace, stack.names.certificate)) or {}
    for told in live.get("status", {}).get("conditions") or ():
        if told.get("type") == "Ready":
            message = str(told.get("message") or f"{kind} {name} issues it")
            return Condition(READY, told["status"], str(told.get("reason") or "Issued"), message)
    message = f"waiting for {kind} {name} to issue Certificate {stack.names.certificate}"
    return Condition(READY, "False", "Issuing", message)
