"""The EndpointPickerConfig document: llm-d's file format, read strictly.

Owns the shape of the file and nothing of its meaning: what plugin names and types stand for is resolved in `defaults`
and `build`. All apiVersions are read, into the shape of the newest; fields that llm-d has deprecated are moved to where
they belong now, with a warning, and so is what the Go picker lets pass although it is wrong. All mistakes are reported
at once, under the names that they have in the file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from pointsman.core.documents import parse_first
from pointsman.core.values import ConfigError, Problem, check, item_type, names_at, nearest
from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.detectors import Seconds

API_VERSION = "llm-d.ai/v1"
ALPHA_API_VERSION = "llm-d.ai/v1alpha1"
OLD_API_VERSION = "inference.networking.x-k8s.io/v1alpha1"
KIND = "EndpointPickerConfig"

GATES: Mapping[str, bool] = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""The feature gates and what they are by default."""

_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_OLD_GATES = ("dataLayer", "prepareDataPlugins", "enableLegacyMetrics")  # all are always on; old files still say so


def _quantity(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise ValueError(f"{text!r} is not a quantity: write a number with a unit, such as 10Gi, 5k or 1000")
    return text


_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?")
Quantity = Annotated[str, BeforeValidator(_quantity), AfterValidator(_check_quantity)]
"""A Kubernetes quantity such as 10Gi, 5k or 1000."""


class PluginSpec(Parameters):
    """One entry of `plugins`."""

    type: str = Field(min_length=1)
    name: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class Ref(Parameters):
    """A reference to a plugin by name."""

    plugin_ref: str = Field(min_length=1)


class OptionalRef(Parameters):
    """A reference that may be left out."""

    plugin_ref: str = ""


class ProfileRef(Ref):
    """A plugin in a profile."""

    weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class ProfileSpec(Parameters):
    """One entry of `schedulingProfiles`."""

    name: str = Field(min_length=1)
    plugins: tuple[ProfileRef, ...] = ()


class SourceRef(Ref):
    """A data source with what reads its data."""

    extractors: tuple[Ref, ...] = ()


class DiscoverySpec(Parameters):
    """Where endpoints, and other replicas of the picker, are found."""

    endpoints: Ref | None = None
    peers: Ref | None = None


class CrossReplicaSpec(Parameters):
    """What replicas tell each other."""

    syncer_plugin_ref: str = ""
    sync_interval: Seconds = 0.2
    publish_timeout: Seconds = 1.0


class DataLayerSpec(Parameters):
    """The section `dataLayer`."""

    inject_defaults: bool = True
    sources: tuple[SourceRef, ...] = ()
    discovery: DiscoverySpec = DiscoverySpec()
    cross_replica: CrossReplicaSpec = CrossReplicaSpec()


class RequestHandlerSpec(Parameters):
    """The section `requestHandler`."""

    parsers: tuple[Ref, ...] = ()
    propagate_priority: bool = False


class BandSpec(Parameters):
    """The limits of a priority band; where it is a default for others its priority means nothing, as in llm-d."""

    priority: int = 0
    max_requests: Quantity | None = None
    max_bytes: Quantity | None = None
    default_request_ttl: Seconds | None = Field(default=None, alias="defaultRequestTTL")
    fairness_policy_ref: str = ""
    ordering_policy_ref: str = ""


class FlowControlSpec(Parameters):
    """The section `flowControl`; all but the detector waits for the gate of that name."""

    saturation_detector: OptionalRef | None = None
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    default_request_ttl: Seconds | None = Field(default=None, alias="defaultRequestTTL")
    no_endpoint_request_ttl: Seconds | None = Field(default=None, alias="noEndpointRequestTTL")
    enable_eviction: bool = False
    usage_limit_policy_plugin_ref: str = ""
    default_priority_band: BandSpec | None = None
    default_negative_priority_band: BandSpec | None = None
    priority_bands: tuple[BandSpec, ...] = ()


class Document(Parameters):
    """A whole file."""

    api_version: str = ""
    kind: str = ""
    feature_gates: tuple[str, ...] = ()
    plugins: tuple[PluginSpec, ...] = ()
    scheduling_profiles: tuple[ProfileSpec, ...] = ()
    data_layer: DataLayerSpec = DataLayerSpec()
    request_handler: RequestHandlerSpec = RequestHandlerSpec()
    flow_control: FlowControlSpec = FlowControlSpec()
    saturation_detector: OptionalRef | None = None
    parser: Ref | None = None


@dataclass(frozen=True, kw_only=True)
class Read:
    """A document with the gates that it sets and what should be changed in it some day."""

    document: Document
    gates: Mapping[str, bool] = field(default_factory=lambda: dict(GATES))
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    alpha: bool = False
    """Whether it was written in the shape of the version before."""

    def as_written(self, problem: Problem) -> Problem:
        """Return a problem under the name that its field has in the file."""
        return _as_written(problem) if self.alpha else problem


_MOVED: Mapping[str, str] = {
    "dataLayer.discovery.pluginRef": "dataLayer.discovery.endpoints.pluginRef",
    "dataLayer.peerDiscovery.pluginRef": "dataLayer.discovery.peers.pluginRef",
    "dataLayer.crossReplicaSyncerPluginRef": "dataLayer.crossReplica.syncerPluginRef",
    "dataLayer.crossReplicaSyncInterval": "dataLayer.crossReplica.syncInterval",
    "dataLayer.crossReplicaPublishTimeout": "dataLayer.crossReplica.publishTimeout",
}
"""Where the fields of `v1alpha1` are in `v1`; all others stay where they are."""


def _as_written(problem: Problem) -> Problem:
    old = next((old for old, new in _MOVED.items() if problem.path == new), None)
    return problem if old is None else Problem(old, problem.message)


def read_config(text: str | bytes, *, name: str) -> Read:
    """Return the document in a file's text, with what is wrong with it as far as the rest can be understood anyway.

    Raises ConfigError when too little is left of it.
    """
    raw, more = parse_first(text, name=name)
    if not isinstance(raw, dict):
        raise ConfigError([Problem("", f"expected a mapping with kind: {KIND}")], name=name)
    warnings = ["several documents in one file: only the first is read: remove the others"] if more else []
    raw = _without_nulls(raw)
    problems = _check_version(raw, warnings=warnings)
    alpha = raw.get("apiVersion") in {None, ALPHA_API_VERSION, OLD_API_VERSION}
    if alpha:
        if "data" in raw:
            warnings.append("data: deprecated: write it as dataLayer")
            raw.setdefault("dataLayer", raw.pop("data"))
        _move(raw)
    checked = check(Document, raw, path="")
    problems += checked.problems
    document = checked.value
    if document is None:
        # Without the fields that nobody knows, or whose values are wrong, the rest can often be checked in the same go.
        known = check(Document, _known_only(Document, raw), path="")
        document = known.value or check(Document, _without(_known_only(Document, raw), known.problems), path="").value
    if document is None:
        raise ConfigError([_as_written(each) for each in problems] if alpha else problems, name=name)
    gates: dict[str, bool] = dict(GATES)
    problems += _read_gates(document.feature_gates, gates=gates, warnings=warnings)
    document = _modernise(document, warnings=warnings)
    return Read(document=document, gates=gates, warnings=tuple(warnings), problems=tuple(problems), alpha=alpha)


def _move(raw: dict[str, Any]) -> None:
    """Bring a file of the version before into today's shape; a field that is there already stays."""
    for old, new in _MOVED.items():
        *way, last = old.split(".")
        holder: Any = raw
        for name in way:
            holder = holder.get(name) if isinstance(holder, dict) else None
        if not isinstance(holder, dict) or last not in holder:
            continue
        value = holder.pop(last)
        place: dict[str, Any] = raw
        *way, last = new.split(".")
        for name in way:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place.setdefault(last, value)
    layer = raw.get("dataLayer")
    if isinstance(layer, dict) and layer.get("peerDiscovery") == {}:
        del layer["peerDiscovery"]


def _known_only(kind: type[Any], raw: Any) -> Any:
    """Return the raw value without fields that its type does not have, at any depth but in parameters."""
    if not isinstance(raw, dict):
        return raw
    known: dict[str, Any] = {}
    for name, value in raw.items():
        if name in names_at(kind, ()):
            inner = item_type(kind, name)
            if isinstance(value, list):
                known[name] = [_known_only(item_type(inner, 0), each) for each in value]
            else:
                known[name] = value if name == "parameters" else _known_only(inner, value)
    return known


def _without(raw: Any, problems: Sequence[Problem]) -> Any:
    """Return the raw value without the fields that have problems."""
    for problem in problems:
        parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", problem.path)
        *way, (_, last) = parts or [("", "")]
        place = raw
        for at, name in way:
            if isinstance(place, list) and at and int(at) < len(place):
                place = place[int(at)]
            else:
                place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(last, None)
    return raw


def _without_nulls(value: Any) -> Any:
    """Drop keys without a value, which mean their default in a Kubernetes file."""
    if isinstance(value, dict):
        return {str(key): _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _check_version(raw: Mapping[str, Any], *, warnings: list[str]) -> list[Problem]:
    problems = []
    version = raw.get("apiVersion")
    if version is None:
        warnings.append(f"apiVersion: is missing: write {API_VERSION}")
    elif version in {ALPHA_API_VERSION, OLD_API_VERSION}:
        warnings.append(f"apiVersion: {version} is deprecated: write {API_VERSION}")
    elif version != API_VERSION:
        problems.append(Problem("apiVersion", f"{version!r} is not known: write {API_VERSION}"))
    if "kind" not in raw:
        warnings.append(f"kind: is missing: write {KIND}")
    elif raw["kind"] != KIND:
        problems.append(Problem("kind", f"{raw.get('kind')!r} is not what the picker reads: write {KIND}"))
    return problems


def _read_gates(given: tuple[str, ...], *, gates: dict[str, bool], warnings: list[str]) -> list[Problem]:
    problems = []
    for at, text in enumerate(given):
        name, equals, value = text.partition("=")
        value = value.partition("=")[0].strip().lower() if equals else "true"
        path = f"featureGates[{at}]"
        if name in _OLD_GATES:
            warnings.append(f"{path}: {name} is always on: remove it")
        elif name not in GATES:
            problems.append(
                Problem(path, f"unknown gate {name!r}{nearest(name, GATES) or ': there is '}{_gates(name)}")
            )
        elif value not in _TRUTHS:
            problems.append(Problem(path, f"{value!r} is not true or false"))
        else:
            gates[name] = _TRUTHS[value]
    if gates["flowControl"] and not problems:
        sentence = "flowControl is not implemented yet: remove the gate, requests are then never queued"
        problems.append(Problem("featureGates", sentence))
    return problems


def _gates(name: str) -> str:
    return "" if nearest(name, GATES) else ", ".join(GATES)


def _modernise(document: Document, *, warnings: list[str]) -> Document:
    """Move deprecated fields to their new places, where those are still free."""
    change: dict[str, Any] = {"api_version": API_VERSION, "kind": KIND}
    if document.parser is not None:
        warnings.append("parser: deprecated: write it as an entry of requestHandler.parsers")
        if not document.request_handler.parsers:
            change["request_handler"] = document.request_handler.model_copy(update={"parsers": (document.parser,)})
        change["parser"] = None
    if document.saturation_detector is not None:
        warnings.append("saturationDetector: deprecated: write it as flowControl.saturationDetector")
        if document.flow_control.saturation_detector is None:
            moved = {"saturation_detector": document.saturation_detector}
            change["flow_control"] = document.flow_control.model_copy(update=moved)
        change["saturation_detector"] = None
    return document.model_copy(update=change)
