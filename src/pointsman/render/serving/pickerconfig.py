"""Whether a text can be an EndpointPickerConfig, as far as that is seen from outside a picker. Pure.

Which plugins there are is the picker's own business, and its image may be anyone's; a plugin may even be code that only
its image has, which nobody else must load. So here is looked at the shape and at what refers to what; the rest is for
the new picker itself, which takes the old one's place only when it is ready.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError

_KIND = "EndpointPickerConfig"
_GROUPS = ("llm-d.ai", "inference.networking.x-k8s.io", "inference.networking.k8s.io")


def problems(text: str, *, where: str) -> list[str]:
    """Return what is wrong with a configuration, each with the field and the fix."""
    try:
        document = parse_yaml(text, name=where)
    except UserError as error:
        return [str(error)]
    if not isinstance(document, Mapping):
        return [f"{where} is no EndpointPickerConfig: it is a block with apiVersion, kind and plugins"]
    return [f"{where}.{said}" for said in (*_head(document), *_plugins(document), *_profiles(document))]


def _head(document: Mapping[str, Any]) -> list[str]:
    found = []
    if document.get("kind") != _KIND:
        found.append(f"kind is {document.get('kind')!r:.60}: write {_KIND}")
    group = str(document.get("apiVersion", "")).partition("/")[0]
    if group not in _GROUPS:
        found.append(f"apiVersion is {document.get('apiVersion')!r:.60}: write llm-d.ai/v1alpha1")
    return found


def _plugins(document: Mapping[str, Any]) -> list[str]:
    plugins = document.get("plugins", [])
    if not isinstance(plugins, list):
        return ["plugins is no list: write - type: … for each plugin"]
    found, names = [], set[str]()
    for at, plugin in enumerate(plugins):
        if not isinstance(plugin, Mapping) or not isinstance(plugin.get("type"), str) or not plugin["type"]:
            found.append(f"plugins[{at}].type is missing: name the plugin's type")
            continue
        name = str(plugin.get("name") or plugin["type"])
        if name in names:
            found.append(f"plugins[{at}].name {name!r:.60} is there twice: give one of them another name")
        names.add(name)
    return found


def _profiles(document: Mapping[str, Any]) -> list[str]:
    profiles = document.get("schedulingProfiles", [])
    if not isinstance(profiles, list):
        return ["schedulingProfiles is no list: write - name: … for each profile"]
    known = _known(document.get("plugins"))
    return [said for at, profile in enumerate(profiles) for said in _profile(profile, at=at, known=known)]


def _known(plugins: Any) -> frozenset[str]:
    listed = plugins if isinstance(plugins, list) else []
    return frozenset(str(one.get("name") or one.get("type")) for one in listed if isinstance(one, Mapping))


def _profile(profile: Any, *, at: int, known: frozenset[str]) -> list[str]:
    where = f"schedulingProfiles[{at}]"
    if not isinstance(profile, Mapping) or not profile.get("name"):
        return [f"{where}.name is missing: name the profile"]
    references: Any = profile.get("plugins", [])
    if not isinstance(references, list):
        return [f"{where}.plugins is no list: write - pluginRef: … for each plugin"]
    found = []
    for number, reference in enumerate(references):
        name = reference.get("pluginRef") if isinstance(reference, Mapping) else None
        if not isinstance(name, str) or name not in known:
            said = f"pluginRef {name!r:.60} is none of the plugins: declare it in plugins, or correct the name"
            found.append(f"{where}.plugins[{number}].{said}")
    return found
