"""The shape of what is handed on whole: where we look into a pod template or a binding, it is what we take it for.

Nothing is built from these types. They are there so that a text in the place of a list is refused with its path, before
any code has to wonder.
"""

from collections.abc import Iterator

import msgspec

from pointsman.bundle.model import BundleFinding, Csv, Object


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Some fields of an object; others may be there."""


class _Named(_Shape, frozen=True):
    name: str


class _Mount(_Named, frozen=True):
    mount_path: str = ""


class _Variable(_Named, frozen=True):
    value: str | None = None


class _Container(_Shape, frozen=True):
    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[_Variable] = []
    env_from: list[Object] = []
    volume_mounts: list[_Mount] = []


class _Pod(_Shape, frozen=True):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    volumes: list[_Named] = []
    tolerations: list[Object] = []
    node_selector: dict[str, str] = {}
    affinity: dict[str, Object] = {}
    image_pull_secrets: list[Object] = []
    service_account_name: str = ""


class _Metadata(_Shape, frozen=True):
    name: str | None = None
    namespace: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Template(_Shape, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Pod = _Pod()


class _Selector(_Shape, frozen=True):
    match_labels: dict[str, str] = {}


class _Deployment(_Shape, frozen=True):
    selector: _Selector = _Selector()
    template: _Template = _Template()


class _Rule(_Shape, frozen=True):
    api_groups: list[str] = []
    resources: list[str] = []


class _Any(_Shape, frozen=True):
    metadata: _Metadata = _Metadata()


class _Definition(_Any, frozen=True):
    spec: Object = {}


class _Binding(_Any, frozen=True):
    subjects: list[Object] | None = None


class _Account(_Any, frozen=True):
    image_pull_secrets: list[Object] | None = None


_KINDS: dict[str, type[_Any]] = {
    "CustomResourceDefinition": _Definition,
    "RoleBinding": _Binding,
    "ClusterRoleBinding": _Binding,
    "ServiceAccount": _Account,
}


def misshapen(csv: Csv) -> Iterator[BundleFinding]:
    """Yield what has another shape in a ClusterServiceVersion, with its path."""
    for at, deployment in enumerate(csv.deployments):
        yield from _tried(deployment.spec, _Deployment, where=f"spec.install.spec.deployments[{at}].spec")
    for at, webhook in enumerate(csv.webhooks):
        for position, rule in enumerate(webhook.rules):
            yield from _tried(rule, _Rule, where=f"spec.webhookdefinitions[{at}].rules[{position}]")


def misshapen_object(document: Object, *, path: str) -> Iterator[BundleFinding]:
    """Yield what has another shape in an object of a bundle."""
    yield from _tried(document, _KINDS.get(document["kind"], _Any), where=path)


def _tried(value: Object, shape: type[_Shape], *, where: str) -> Iterator[BundleFinding]:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        yield BundleFinding("shape", f"{where}: {error}")
