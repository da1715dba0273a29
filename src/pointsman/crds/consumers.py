"""Who on a cluster uses the inference definitions: gateways by the routes that name pools, controllers and pickers by
their Deployments.

Told from what is written there, image tags and flags: a consumer that hides both is not seen, which the answer to
"nobody uses it" must be read with. Documents are as the API server sends them; a strange one names nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pointsman.api.inference import ALPHA_POOL, GROUP, LEGACY_GROUP, POOL

Role = Literal["route", "picker", "controller"]
POOLS = {GROUP: str(POOL), LEGACY_GROUP: str(ALPHA_POOL)}
# By the last part of an image's name; the first that fits.
_IMAGES: tuple[tuple[str, str, Role], ...] = (
    ("pilot", "Istio", "controller"),
    ("llmisvc-controller", "KServe", "controller"),
    ("kserve-llmisvc-controller", "KServe", "controller"),
    ("llm-d-router", "llm-d picker", "picker"),
    ("llm-d-inference-scheduler", "llm-d picker", "picker"),
    ("odh-llm-d-inference-scheduler", "llm-d picker", "picker"),
    ("epp", "GIE picker", "picker"),
    ("pointsman", "Pointsman", "picker"),
)
_POOL_FLAGS = ("--pool-name", "-pool-name", "--poolName", "-poolName")


@dataclass(frozen=True)
class Consumer:
    """One thing that uses the definitions."""

    role: Role
    what: str
    where: str
    version: str = ""
    uses: frozenset[str] = frozenset()
    """Names of the definitions that it would miss, as far as they can be told."""

    def __str__(self) -> str:
        return f"{self.what}{f' {self.version}' if self.version else ''} ({self.where})"


def consumers(deployments: Iterable[Mapping[str, Any]], routes: Iterable[Mapping[str, Any]]) -> list[Consumer]:
    """Return who uses the definitions, by place."""
    found = [*_of_each(routes, _routes), *_of_each(deployments, _deployments)]
    return sorted(found, key=lambda one: (one.role, one.where))


def _of_each(documents: Iterable[Mapping[str, Any]], read: Any) -> Iterator[Consumer]:
    for document in documents:
        try:
            yield from read(document)
        except (AttributeError, KeyError, TypeError):
            continue


def _routes(route: Mapping[str, Any]) -> Iterator[Consumer]:
    rules = route.get("spec", {}).get("rules") or []
    references = [reference for rule in rules for reference in rule.get("backendRefs") or []]
    used = {POOLS[one["group"]] for one in references if one.get("group") in POOLS}
    if used:
        yield Consumer("route", "HTTPRoute", _place(route), uses=frozenset(used))


def _deployments(deployment: Mapping[str, Any]) -> Iterator[Consumer]:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        repository, _, tag = str(container.get("image", "")).partition("@")[0].rpartition(":")
        image = (repository or tag).rpartition("/")[2]
        known = next(((what, role) for name, what, role in _IMAGES if name == image), None)
        follows = any(word.partition("=")[0] in _POOL_FLAGS for word in words)
        if known is None and not follows:
            continue
        what, role = known or ("a picker", "picker")
        if role == "picker" and not follows:
            continue  # the image alone is no use of the definitions: it may follow a selector, or be another command
        uses = frozenset({POOLS[_pool_group(words)]}) if role == "picker" else frozenset()
        yield Consumer(role, what, _place(deployment), version=tag if repository else "", uses=uses)


def _pool_group(words: list[str]) -> str:
    """Return the group that the flags name, or the one that all pickers take by default."""
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in {"--pool-group", "-pool-group"}:
            told = value if equals else (words[at + 1] if at + 1 < len(words) else "")
            return told if told in POOLS else GROUP
    return GROUP


def _place(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"
