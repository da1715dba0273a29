"""What the parts of a service are called, and the labels by which they are found: KServe's, which scripts know.

A label has one value, and two are asked for on the picker's Deployment and Pods: `app.kubernetes.io/component` is
`router-scheduler` in the documents that people verify an installation by, and `llminferenceservice-router-scheduler` in
KServe. Deployment and Pods carry the first; what KServe's own monitors select (Service, account, pool, policy) the
second. `router.scheduler.labels`, of a service or of a preset for all of them, replaces it on Deployment and Pods,
because nothing of ours selects by it: see `PICKER`.
"""

import hashlib
from dataclasses import dataclass

LONGEST = 63
_DIGEST = 32

NAME = "app.kubernetes.io/name"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
KSERVE_COMPONENT = "kserve.io/component"
ROLE = "llm-d.ai/role"

OF_A_SERVICE = "llminferenceservice"
WORKLOAD = {COMPONENT: "llminferenceservice-workload"}
PREFILL = {COMPONENT: "llminferenceservice-workload-prefill"}
ROUTER = {COMPONENT: "llminferenceservice-router"}
SCHEDULER = {COMPONENT: "llminferenceservice-router-scheduler"}
SCHEDULER_PODS = {COMPONENT: "router-scheduler"}
GATEWAY = {COMPONENT: "llminferenceservice-gateway"}
PICKER = {KSERVE_COMPONENT: "router-scheduler"}
"""What a picker's Pods are selected by, with the service's name: nobody else gives or changes it."""
SERVERS = {KSERVE_COMPONENT: "workload"}
"""The same for model servers."""


def child_name(parent: str, suffix: str) -> str:
    """Return the name of a part, as Knative makes it: with a digest where it would be too long for a label."""
    if len(parent) + len(suffix) <= LONGEST:
        return parent + suffix
    head = LONGEST - _DIGEST
    if len(suffix) >= head:
        name = parent[:head] + _digest(parent + suffix)
        return (name + suffix)[:LONGEST].rstrip("-._")
    return parent[: head - len(suffix)] + _digest(parent) + suffix


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ServiceNames:
    """The names of one service."""

    service: str
    namespace: str

    def _child(self, suffix: str) -> str:
        return child_name(self.service, suffix)

    @property
    def workload(self) -> str:
        """The Deployment of the model servers; also their account, where they need one."""
        return self._child("-kserve")

    @property
    def prefill(self) -> str:
        return self._child("-kserve-prefill")

    @property
    def workload_service(self) -> str:
        return self._child("-kserve-workload-svc")

    @property
    def workload_role(self) -> str:
        return self._child("-kserve-role")

    @property
    def workload_binding(self) -> str:
        return self._child("-kserve-rb")

    @property
    def pods(self) -> str:
        """The headless Service, by which a gateway of our own knows the model servers' addresses."""
        return self._child("-kserve-pods")

    @property
    def certificate(self) -> str:
        """The Secret with the certificate, and the Certificate where an issuer makes it."""
        return self._child("-kserve-self-signed-certs")

    @property
    def picker(self) -> str:
        return self._child("-kserve-router-scheduler")

    @property
    def picker_service(self) -> str:
        return self._child("-epp-service")

    @property
    def picker_account(self) -> str:
        return self._child("-epp-sa")

    @property
    def picker_role(self) -> str:
        return self._child("-epp-role")

    @property
    def picker_binding(self) -> str:
        return self._child("-epp-rb")

    @property
    def picker_rule(self) -> str:
        """The DestinationRule for TLS to the picker."""
        return self._child("-kserve-scheduler")

    @property
    def pool(self) -> str:
        return self._child("-inference-pool")

    @property
    def route(self) -> str:
        return self._child("-kserve-route")

    @property
    def gateway(self) -> str:
        """The gateway that is an Envoy of our own."""
        return self._child("-kserve-gateway")

    @property
    def prefix(self) -> str:
        """The path under which a gateway that serves many serves this one."""
        return f"/{self.namespace}/{self.service}"

    def labels(self, *more: dict[str, str]) -> dict[str, str]:
        """Return the labels that every object has, and more."""
        found = {NAME: self.service, PART_OF: OF_A_SERVICE}
        for each in more:
            found |= each
        return found

    def picker_pods(self) -> dict[str, str]:
        """Return what selects the picker's Pods."""
        return self.labels(PICKER)

    def servers(self, role: str = "") -> dict[str, str]:
        """Return what selects the model servers: of one role, or all."""
        return self.labels(SERVERS, {ROLE: role} if role else {})

    def gateway_pods(self) -> dict[str, str]:
        """Return what selects our own gateway's Pods."""
        return self.labels(GATEWAY)
