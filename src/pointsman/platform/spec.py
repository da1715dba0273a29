"""`platform.yaml` and `component.yaml`: what people decide about a platform, as typed values.

Owns the shapes and the sentences about mistakes in them. The names of components are the names of their folders beside
the file, unless `folder` says otherwise.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pointsman.bundle.chart.chart import MIRROR
from pointsman.bundle.reader import read_documents
from pointsman.core.errors import UserError
from pointsman.core.files import read_regular
from pointsman.core.values import ConfigError, Problem, check, nearest

T = TypeVar("T")
When = Literal["deploy", "deploy-all", "named"]
ProviderName = Literal["auto", "aks", "coreweave", "other"]
MOST_FILE = 8 << 20
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class PullSecretSpec:
    """Where the credentials for registries come from, and the Secret that they become."""

    from_: str = "podman"
    name: str = "redhat-pull-secret"


@dataclass(frozen=True)
class ComponentChoice:
    """One component of a platform: when it is deployed, and how it differs from its folder."""

    name: str
    folder: str = ""
    when: When = "deploy"
    source: str = ""
    use: Literal["ours", "existing"] = "ours"
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """The whole file."""

    components: list[ComponentChoice]
    provider: ProviderName = "auto"
    pull_secret: PullSecretSpec = field(default_factory=PullSecretSpec)
    image_mirror: str = ""
    timeout: int = 600


@dataclass(frozen=True)
class DefinitionsSource:
    """Definitions of a group that the operator needs and its bundle has not: a file or an address."""

    group: str
    source: str


@dataclass(frozen=True)
class ComponentSpec:
    """What a folder says about its operator."""

    namespace: str
    packages: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    operand_namespaces: list[str] = field(default_factory=list)
    definitions: list[DefinitionsSource] = field(default_factory=list)
    inference_definitions: bool = False
    webhook_loop: bool = False
    release: str = ""
    chart: str = ""
    chart_version: str = ""


@dataclass(frozen=True)
class BundlePin:
    """Which bundle: its image, its version, the digest of the image and of the files in it; empty means not pinned."""

    image: str
    version: str
    digest: str = ""
    content: str = ""


def read_platform(path: Path) -> Platform:
    """Return the file; raises UserError with everything that is wrong with it."""
    raw = read_mapping(path)
    secret = raw.get("pullSecret")
    if isinstance(secret, dict) and "from" in secret:  # a word that Python keeps for itself
        raw["pullSecret"] = {**{key: each for key, each in secret.items() if key != "from"}, "from_": secret["from"]}
    found = typed(Platform, raw, name=str(path))
    problems = list(_problems(found))
    if problems:
        raise ConfigError(problems, name=str(path))
    return found


def chosen(platform: Platform, names: Sequence[str], *, everything: bool) -> list[ComponentChoice]:
    """Return the components that are meant, in the file's order: the named ones, else those of this occasion."""
    known = {each.name for each in platform.components}
    for name in names:
        if name not in known:
            raise UserError(f"{name!r} is no component{_known(name, known)}")
    if names:
        return [each for each in platform.components if each.name in names]
    occasions = {"deploy", "deploy-all"} if everything else {"deploy"}
    return [each for each in platform.components if each.when in occasions]


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a YAML file that holds one mapping; raises UserError when it is anything else."""
    try:
        text = read_regular(path, most=MOST_FILE)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    documents = read_documents(text, name=str(path))
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise UserError(f"{path}: must hold one mapping")
    return documents[0]


def typed(kind: type[T], raw: Mapping[str, Any], *, name: str) -> T:
    """Return a mapping as a value; raises ConfigError with every mistake."""
    checked = check(kind, raw, path="")
    if checked.value is None:
        problems = [Problem(each.path.replace("from_", "from"), each.message) for each in checked.problems]
        raise ConfigError(problems, name=name)
    return checked.value


def _problems(platform: Platform) -> "list[Problem]":
    found: list[Problem] = []
    names = [each.name for each in platform.components]
    if not names:
        found.append(Problem("components", "is empty: name what is to be installed"))
    if not MIRROR.fullmatch(platform.image_mirror) or platform.image_mirror.endswith("/"):
        text = f"{platform.image_mirror!r} is no mirror: write it as mirror.example.com/path"
        found.append(Problem("imageMirror", text))
    for at, each in enumerate(platform.components):
        if names.index(each.name) != at:
            found.append(Problem(f"components[{at}].name", f"{each.name!r} is there twice: keep one"))
        if not each.name or "/" in each.name or each.name.startswith("."):
            found.append(Problem(f"components[{at}].name", f"{each.name!r} is no name: use a folder's own name"))
    if platform.timeout <= 0:
        found.append(Problem("timeout", f"{platform.timeout} is no time to wait: write seconds above 0"))
    return found


def check_component(spec: ComponentSpec, *, name: str) -> None:
    """Raise ConfigError for namespaces that no cluster can have."""
    named = [("namespace", spec.namespace)]
    named += [(f"operandNamespaces[{at}]", each) for at, each in enumerate(spec.operand_namespaces)]
    problems = [
        Problem(path, f"{each!r} is no namespace: use up to 63 lower case letters, digits and '-'")
        for path, each in named
        if not _LABEL.fullmatch(each)
    ]
    if problems:
        raise ConfigError(problems, name=name)


def _known(name: str, known: set[str]) -> str:
    return nearest(name, known) or f": there is {', '.join(sorted(known))}"
