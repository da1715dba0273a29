"""A registry+v1 bundle as values: what its ClusterServiceVersion asks for, and the objects beside it.

Owns the shapes, nothing else. What we read of a ClusterServiceVersion has a type, and a wrong one is refused with its
path; what we only hand on (pod templates, rules, selectors) stays as it was written. Definitions and other objects are
kept whole, as plain dictionaries: whatever stands in them survives.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pointsman.core.errors import UserError

Object = dict[str, Any]

MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
VALIDATING, MUTATING, CONVERSION = "ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "ConversionWebhook"


class Refused(UserError):
    """A bundle that breaks rules; each finding names its rule."""

    def __init__(self, findings: Sequence["BundleFinding"], *, name: str) -> None:
        self.findings = tuple(findings)
        if len(findings) == 1:
            text = f"{name}: {findings[0]}"
        else:
            text = "\n  ".join([f"{name}: {len(findings)} rules are broken:", *map(str, findings)])
        super().__init__(text)


@dataclass(frozen=True, slots=True, order=True)
class BundleFinding:
    """One broken rule."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.rule}]"


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a document that somebody else wrote: fields that we do not read are left alone."""


class PolicyRule(_Part, frozen=True):
    """One rule of a role, in the order in which its hash is computed; none of a field is not an empty one there."""

    verbs: list[str] | None = None
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = msgspec.field(default_factory=list, name="nonResourceURLs")


class Permission(_Part, frozen=True):
    """The rights of one service account."""

    service_account_name: str = ""
    rules: list[PolicyRule] | None = None

    @property
    def account(self) -> str:
        """Return the account's name; none means the namespace's own."""
        return self.service_account_name or "default"


class DeploymentSpec(_Part, frozen=True):
    """A Deployment to be: its name, its labels, and the rest as it was written."""

    name: str = ""
    label: dict[str, str] = {}
    spec: dict[str, Any] = {}


class Webhook(_Part, frozen=True):
    """A webhook definition."""

    type: str = ""
    generate_name: str = ""
    deployment_name: str = ""
    container_port: int = 443  # the definition of ClusterServiceVersion fills it in so
    target_port: int | str | None = None
    rules: list[dict[str, Any]] = []
    failure_policy: str | None = None
    match_policy: str | None = None
    object_selector: dict[str, Any] | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] = []
    reinvocation_policy: str | None = None
    webhook_path: str | None = None
    conversion_crds: list[str] = msgspec.field(default_factory=list, name="conversionCRDs")

    @property
    def name(self) -> str:
        """Return the name of the configuration object, and of the webhook in it."""
        return self.generate_name.removesuffix("-")

    @property
    def port(self) -> int:
        """Return the port of the Service."""
        return self.container_port if self.container_port > 0 else 443


class Described(_Part, frozen=True):
    """A definition or API that the bundle owns or requires."""

    name: str = ""
    version: str = ""
    kind: str = ""
    group: str = ""
    deployment_name: str = ""


class Descriptions(_Part, frozen=True):
    """What is owned, and what is required."""

    owned: list[Described] = []
    required: list[Described] = []


class InstallMode(_Part, frozen=True):
    """Whether a way of watching namespaces is supported."""

    type: str = ""
    supported: bool = False


class RelatedImage(_Part, frozen=True):
    """An image that the operator hands on."""

    name: str = ""
    image: str = ""


class StrategySpec(_Part, frozen=True):
    """Deployments and the rights of their accounts."""

    deployments: list[DeploymentSpec] = []
    permissions: list[Permission] = []
    cluster_permissions: list[Permission] = []


class Strategy(_Part, frozen=True):
    """How it is installed; there is one way."""

    strategy: str = "deployment"
    spec: StrategySpec = StrategySpec()


class CsvSpec(_Part, frozen=True):
    """What we read of `spec`."""

    install: Strategy = Strategy()
    install_modes: list[InstallMode] = []
    webhookdefinitions: list[Webhook] = []
    customresourcedefinitions: Descriptions = Descriptions()
    apiservicedefinitions: Descriptions = Descriptions()
    related_images: list[RelatedImage] = []
    version: str = ""
    display_name: str = ""
    description: str = ""
    min_kube_version: str = ""
    replaces: str = ""
    skips: list[str] = []


class BundleMetadata(_Part, frozen=True):
    """What we read of `metadata`."""

    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class Csv(_Part, frozen=True):
    """A ClusterServiceVersion."""

    metadata: BundleMetadata = BundleMetadata()
    spec: CsvSpec = CsvSpec()

    @property
    def name(self) -> str:
        """Return its name."""
        return self.metadata.name

    @property
    def deployments(self) -> list[DeploymentSpec]:
        """Return the Deployments to be."""
        return self.spec.install.spec.deployments

    @property
    def webhooks(self) -> list[Webhook]:
        """Return the webhook definitions."""
        return self.spec.webhookdefinitions

    @property
    def modes(self) -> frozenset[str]:
        """Return the install modes that are supported."""
        return frozenset(mode.type for mode in self.spec.install_modes if mode.supported)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle, read and not yet checked."""

    package: str
    csv: Csv
    crds: tuple[Object, ...] = ()
    others: tuple[Object, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[Object, ...] = ()
    name: str = "bundle"

    @property
    def version(self) -> str:
        """Return the version, from the specification or else from the name."""
        return self.csv.spec.version or self.csv.name.partition(".v")[2]

    @property
    def suggested_namespace(self) -> str:
        """Return the namespace that the bundle would like, or nothing."""
        return self.csv.metadata.annotations.get("operatorframework.io/suggested-namespace", "")


def go_json(value: Any) -> str:
    """Return JSON as Go writes it: without blanks, and with what HTML could take for its own escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def without_nulls(value: Any) -> Any:
    """Return a copy in which a field that is null is not there: so a typed reader sees it, and so does ours."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def name_of(document: Object) -> str:
    """Return an object's name, or nothing."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def identity(document: Object) -> tuple[str, str, str]:
    """Return kind, namespace and name: what tells objects of one cluster apart."""
    metadata = document.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return str(document.get("kind", "")), str(namespace or ""), name_of(document)
