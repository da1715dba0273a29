"""The administrator's flags: the operator obeys them, `render` and `diff` show what it would do under them."""

import re
from dataclasses import dataclass

from cyclopts import Parameter

from pointsman.core.errors import UserError
from pointsman.render.manifests.policy import TRUSTED, Labels, Policy

_LABEL = re.compile(r"([a-z0-9A-Z][-a-z0-9A-Z_./]{0,252})=([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?")
_PREFIX = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9._/:@]*")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """How far SimulatorDeployments and SchedulerInstalls may go."""

    max_replicas: int = Policy.max_replicas
    "The most Pods of one component; a resource that asks for more is refused."
    trusted_image_prefixes: str = ",".join(TRUSTED)
    "Images of pickers, which get a token for the API server: repositories, or what is above them, with commas between."
    allowed_image_prefixes: str = ""
    "The same for the images of simulators and gateways, which get none; empty for any."
    allow_external_services: bool = False
    "Allow Services that are reached from outside the cluster: NodePort, LoadBalancer, Gateways of any class."
    network_policies: bool = True
    "Let only gateways reach pickers (NetworkPolicy)."
    gateway_namespaces: str = ""
    "Labels of the namespaces whose gateways may reach pickers, such as team=a; empty for all namespaces."
    metrics_namespaces: str = ""
    "Labels of the namespaces that may reach pickers' metrics; empty for all."
    install_namespaces: str = ""
    "Namespaces that SchedulerInstalls may reach beside their own, with commas between; empty for all."
    picker_metrics_auth: bool = True
    "Show pickers' metrics only to those whom the API server lets read them."

    def to_policy(self) -> Policy:
        """Return the policy; raises UserError for what cannot be read."""
        if self.max_replicas < 0:
            raise UserError(f"--max-replicas {self.max_replicas} is less than none: give 0 or more")
        return Policy(
            max_replicas=self.max_replicas,
            trusted_images=_prefixes(self.trusted_image_prefixes, flag="--trusted-image-prefixes"),
            allowed_images=_prefixes(self.allowed_image_prefixes, flag="--allowed-image-prefixes"),
            external_services=self.allow_external_services,
            network_policies=self.network_policies,
            gateway_namespaces=_labels(self.gateway_namespaces, flag="--gateway-namespaces"),
            metrics_namespaces=_labels(self.metrics_namespaces, flag="--metrics-namespaces"),
            install_namespaces=tuple(_words(self.install_namespaces)),
            metrics_auth=self.picker_metrics_auth,
        )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _prefixes(text: str, *, flag: str) -> tuple[str, ...]:
    for word in _words(text):
        if not _PREFIX.fullmatch(word):
            raise UserError(f"{flag}: {word!r} is not the beginning of an image's name, such as ghcr.io/llm-d/")
        if "/" not in word and "." in word:
            raise UserError(f"{flag}: {word!r} would be an image of that name: write {word}/ for all of a registry")
    return tuple(_words(text))


def _labels(text: str, *, flag: str) -> Labels:
    for word in _words(text):
        if not _LABEL.fullmatch(word):
            raise UserError(f"{flag}: {word!r} is not a label: write name=value, with commas between")
    return tuple((word.partition("=")[0], word.partition("=")[2]) for word in _words(text))
