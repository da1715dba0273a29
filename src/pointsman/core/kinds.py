"""Names of things in a cluster: a kind, a key, and the paths under which the API server serves them.

Owns the spelling of URLs and nothing else; no I/O. A `Kind` is written out by whoever uses it (four words),
never discovered: an operator knows at the time of writing what it watches, and discovery would be one more
thing that fails at start. `Object` is the plain JSON document.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

Object = dict[str, Any]

# Groups that the API server itself serves; any other one comes and goes with a CustomResourceDefinition.
BUILT_IN = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)


class Key(NamedTuple):
    """Which object of a kind; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource type."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        """Tell whether the kind exists only while its definition does."""
        return self.group not in BUILT_IN

    def path(self, namespace: str = "", name: str = "", *, subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class Source:
    """What a reflector mirrors: a kind, narrowed by the server, so that the cache holds only what is used."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    def parameters(self) -> dict[str, str]:
        """Return the selectors as query parameters."""
        chosen = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in chosen.items() if value}

    def accept(self, *, many: bool) -> str:
        """Return the media type to ask for: whole objects, or only their metadata."""
        if not self.metadata_only:
            return "application/json"
        shape = "PartialObjectMetadataList" if many else "PartialObjectMetadata"
        return f"application/json;as={shape};g=meta.k8s.io;v=v1"


def key_of(document: Object) -> Key:
    """Return the key of a document."""
    metadata = document["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
EVENT = Kind("", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
