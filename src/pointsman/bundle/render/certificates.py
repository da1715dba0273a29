"""Certificates of webhooks: three ways to get one, behind one interface.

Owns what each way adds: cert-manager issues and injects by annotation; OpenShift's service-ca does both by annotation;
or we make the certificate ourselves, put it into a Secret and its authority into whoever calls. Making one takes a key
and a clock, so that function is handed in.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pointsman.bundle.model import Object
from pointsman.bundle.render.names import certificate_name, service_name, suffixed


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves: the Service of one Deployment, in the namespace of the operator."""

    deployment: str
    namespace: str

    @property
    def service(self) -> str:
        """Return the Service's name."""
        return service_name(self.deployment)

    @property
    def secret(self) -> str:
        """Return the name of the certificate and of its Secret."""
        return certificate_name(self.deployment)

    @property
    def hosts(self) -> list[str]:
        """Return the names that callers use."""
        short = f"{self.service}.{self.namespace}"
        return [short, f"{short}.svc", f"{short}.svc.cluster.local"]


class Certificates(Protocol):
    """A way to get certificates."""

    def trusted(self, document: Object, serving: Serving) -> Object:
        """Return a webhook configuration or a definition that trusts the server's certificate."""

    def served(self, service: Object, serving: Serving) -> Object:
        """Return the Service, told about its certificate."""

    def objects(self, serving: Serving) -> Iterator[Object]:
        """Yield what has to exist beside."""


@dataclass(frozen=True, slots=True)
class CertManager:
    """Certificates by cert-manager: from an issuer that is there, or from a self-signed one of our own."""

    issuer_name: str = ""
    issuer_kind: str = ""

    def trusted(self, document: Object, serving: Serving) -> Object:
        """Let cert-manager write the authority."""
        return _annotated(document, {"cert-manager.io/inject-ca-from": f"{serving.namespace}/{serving.secret}"})

    def served(self, service: Object, serving: Serving) -> Object:  # noqa: ARG002 - the interface
        """Leave the Service as it is."""
        return service

    def objects(self, serving: Serving) -> Iterator[Object]:
        """Yield the Certificate, and an Issuer unless one is named."""
        issuer = {"name": self.issuer_name, **({"kind": self.issuer_kind} if self.issuer_kind else {})}
        if not self.issuer_name:
            issuer = {"name": suffixed(serving.secret, "selfsigned-issuer")}
            yield _cert_manager("Issuer", issuer["name"], serving, {"selfSigned": {}})
        spec = {
            "commonName": serving.hosts[0],
            "dnsNames": serving.hosts,
            "duration": "17520h0m0s",
            "issuerRef": issuer,
            "renewBefore": "24h0m0s",
            "secretName": serving.secret,
            "usages": ["server auth"],
        }
        yield _cert_manager("Certificate", serving.secret, serving, spec)


@dataclass(frozen=True, slots=True)
class ServiceCa:
    """Certificates by OpenShift's service-ca operator."""

    def trusted(self, document: Object, serving: Serving) -> Object:  # noqa: ARG002 - the interface
        """Let service-ca write the authority."""
        return _annotated(document, {"service.beta.openshift.io/inject-cabundle": "true"})

    def served(self, service: Object, serving: Serving) -> Object:
        """Ask for the Secret."""
        return _annotated(service, {"service.beta.openshift.io/serving-cert-secret-name": serving.secret})

    def objects(self, serving: Serving) -> Iterator[Object]:  # noqa: ARG002 - the interface
        """Yield nothing."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key and its authority, each base64 of PEM as a Secret has it."""

    certificate: Any
    key: Any
    authority: Any


Issue = Callable[[Serving], Issued]


@dataclass(frozen=True, slots=True)
class OwnCertificates:
    """Certificates that we make: for a cluster that has neither cert-manager nor service-ca."""

    issue: Issue

    def trusted(self, document: Object, serving: Serving) -> Object:
        """Write the authority where the API server looks for it."""
        authority = self.issue(serving).authority
        if document["kind"] == "CustomResourceDefinition":
            spec = document["spec"]
            webhook = spec["conversion"]["webhook"]
            client = {**webhook["clientConfig"], "caBundle": authority}
            conversion = {**spec["conversion"], "webhook": {**webhook, "clientConfig": client}}
            return {**document, "spec": {**spec, "conversion": conversion}}
        hooks = [
            {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": authority}} for hook in document["webhooks"]
        ]
        return {**document, "webhooks": hooks}

    def served(self, service: Object, serving: Serving) -> Object:  # noqa: ARG002 - the interface
        """Leave the Service as it is."""
        return service

    def objects(self, serving: Serving) -> Iterator[Object]:
        """Yield the Secret."""
        issued = self.issue(serving)
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": serving.secret, "namespace": serving.namespace},
            "type": "kubernetes.io/tls",
            "data": {"ca.crt": issued.authority, "tls.crt": issued.certificate, "tls.key": issued.key},
        }


def encoded(pem: bytes) -> str:
    """Return PEM as the data of a Secret."""
    return base64.b64encode(pem).decode()


def _annotated(document: Object, annotations: dict[str, str]) -> Object:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def _cert_manager(kind: str, name: str, serving: Serving, spec: Object) -> Object:
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": serving.namespace},
        "spec": spec,
    }
