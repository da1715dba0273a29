"""What a configuration means when it says little: the default document, and everything that is added to a document.

A `ConfigPlan` is a document with all names resolved to types, all parameters checked, and all parts that llm-d injects
in place: a profile of everything when there is none, the handler of a single profile, a picker for profiles without
one, parsers, a saturation detector, the metrics source. Pure: nothing is instantiated here, so a plan can be compared,
printed and thrown away.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pointsman.core.values import ConfigError, Problem, check, dump, nearest
from pointsman.epp.config.document import Document, Ref, SourceRef, read_config
from pointsman.epp.config.lenient import lenient, moved
from pointsman.epp.config.registry import PluginType, UnknownType, find_type
from pointsman.epp.schedule.points import NEXT_PROFILES, PICK, SATURATION, SCORE, Point

DEFAULT_CONFIG = """\
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 3}  # two more for Envoy's retries, when the first cannot be reached
- type: metrics-data-source
- type: core-metrics-extractor
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}]
"""

DEFAULT_PARSERS = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
DEFAULT_DETECTOR = "utilization-detector"
DEFAULT_PICKER = "max-score-picker"
DEFAULT_HANDLER = "single-profile-handler"
METRICS_SOURCE = "metrics-data-source"
METRICS_EXTRACTOR = "core-metrics-extractor"
MODELS_SOURCE = "models-data-source"
MODELS_EXTRACTOR = "models-data-extractor"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A plugin of a plan."""

    name: str
    type: PluginType
    parameters: Any = None
    path: str = ""  # where it stands in the file; empty when it was added

    @property
    def identity(self) -> tuple[str, str, str]:
        """What must be the same for its state to be kept over a reload."""
        return (self.type.name, self.name, repr(dump(self.parameters)))


@dataclass(frozen=True, kw_only=True)
class ProfilePlan:
    """A profile: its plugins' names with their weights, in order."""

    name: str
    plugins: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class ConfigPlan:
    """A configuration with nothing left to guess."""

    plugins: tuple[Declared, ...]
    profiles: tuple[ProfilePlan, ...]
    handler: str
    detector: str
    parsers: tuple[str, ...]
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    discovery: str
    gates: Mapping[str, bool]
    warnings: tuple[str, ...]
    document: Document
    broken: frozenset[str] = frozenset()
    """Plugins that are in the file and, being wrong, not here."""

    def get(self, name: str) -> Declared | None:
        """Return the plugin of that name."""
        return next((each for each in self.plugins if each.name == name), None)


def load(text: str | bytes, *, name: str = "configuration", allow_experimental: bool = False) -> ConfigPlan:
    """Return the plan of a file's text; of the default document when the text is empty.

    Raises ConfigError with all mistakes.
    """
    plan, problems = draft(text, name=name, allow_experimental=allow_experimental)
    if problems:
        raise ConfigError(problems, name=name)
    return plan


def draft(
    text: str | bytes,
    *,
    name: str = "configuration",
    allow_experimental: bool = False,
    find: Callable[[str], PluginType] = find_type,
) -> tuple[ConfigPlan, list[Problem]]:
    """Return the plan of a file's text as far as there is one, and what is wrong with it; `find` knows the types.

    Raises ConfigError when the text is no document.
    """
    read = read_config(text or DEFAULT_CONFIG, name=name)
    planner = _Planner(read.document, allow_experimental=allow_experimental, find=find)
    plan = planner.plan(gates=read.gates)
    problems = [read.as_written(problem) for problem in (*read.problems, *planner.problems)]
    return replace(plan, warnings=(*read.warnings, *planner.warnings)), problems


def declare(type_name: str, *, name: str = "") -> Declared:
    """Return a plugin that is added with its default parameters.

    Raises UnknownType when its type is not there, or cannot do without parameters.
    """
    kind = find_type(type_name)
    if kind.parameters is None:
        return Declared(name=name or type_name, type=kind)
    checked = check(kind.parameters, {}, path="")
    if checked.problems:
        raise UnknownType(f"{type_name!r} must be configured: {checked.problems[0]}")
    return Declared(name=name or type_name, type=kind, parameters=checked.value)


class _Planner:
    """Collects problems and warnings while it resolves one document."""

    def __init__(self, document: Document, *, allow_experimental: bool, find: Callable[[str], PluginType]) -> None:
        self._document = document
        self._find = find
        self._experimental = allow_experimental
        self._plugins: dict[str, Declared] = {}
        self._broken: set[str] = set()  # declared, but wrong: not to be reported as undefined too
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def plan(self, *, gates: Mapping[str, bool]) -> ConfigPlan:
        document = self._document
        self._declare_all()
        profiles = self._profiles()
        handler = self._handler(profiles)
        profiles = self._with_pickers(profiles)
        flow = document.flow_control.saturation_detector
        detector = (flow.plugin_ref if flow is not None else "") or DEFAULT_DETECTOR
        self._expect(detector, point=SATURATION, what="saturation detector", path=_DETECTOR_PATH, add=True)
        layer = document.data_layer
        discovery = layer.discovery.endpoints.plugin_ref if layer.discovery.endpoints is not None else ""
        if discovery:
            path = "dataLayer.discovery.endpoints.pluginRef"
            self._expect(discovery, kind="discovery", what="discovery", path=path)
        self._refuse_replicas()
        parsers, sources = self._parsers(), self._sources()
        return ConfigPlan(
            plugins=tuple(self._plugins.values()),
            profiles=profiles,
            handler=handler,
            detector=detector,
            parsers=parsers,
            sources=sources,
            discovery=discovery,
            gates=gates,
            warnings=(),
            document=document,
            broken=frozenset(self._broken),
        )

    # -- plugins ------------------------------------------------------------------------------------------------

    def _declare_all(self) -> None:
        seen: dict[str, int] = {}
        for at, spec in enumerate(self._document.plugins):
            path, name = f"plugins[{at}]", spec.name or spec.type
            if seen.setdefault(name, at) != at:
                self._report(f"{path}.name", f"{name!r} is the name of plugins[{seen[name]}] already: rename one")
                continue
            try:
                kind = self._find(spec.type)
            except UnknownType as error:
                self._broken.add(name)
                self._report(f"{path}.type", str(error))
                continue
            self._check_stability(kind, path=path)
            self._declare(kind, name=name, raw=spec.parameters, path=path)

    def _declare(self, kind: PluginType, *, name: str, raw: Mapping[str, Any], path: str) -> None:
        where = f"{path}.parameters"
        if kind.parameters is None:
            if raw:
                self.warnings.append(f"{where}: {kind.name} takes no parameters: remove {', '.join(raw)}")
            self._plugins[name] = Declared(name=name, type=kind, path=path)
            return
        raw, other, theirs = moved(kind.name, raw)
        if other:
            self.warnings.append(f"{where}: {', '.join(sorted(theirs))} belong to {other}: write them there")
            if all((spec.name or spec.type) != other for spec in self._document.plugins):
                self._declare(find_type(other), name=other, raw=theirs, path=path)
        raw, warnings = lenient(kind.parameters, raw, path=where)
        self.warnings += warnings
        checked = check(kind.parameters, raw, path=where)
        self.problems += checked.problems
        if checked.value is None:
            self._broken.add(name)
        else:
            self._plugins[name] = Declared(name=name, type=kind, parameters=checked.value, path=path)

    def _check_stability(self, kind: PluginType, *, path: str) -> None:
        if kind.stability == "alpha" and not self._experimental:
            self._report(f"{path}.type", f"{kind.name} is experimental: allow it with --allow-experimental-plugins")
        if kind.stability == "deprecated":
            self.warnings.append(f"{path}.type: {kind.name} is deprecated: use {kind.instead}")

    def _add(self, type_name: str) -> None:
        """Add a plugin under the name of its type, which nobody else may have then."""
        taken = self._plugins.get(type_name)
        if taken is not None and taken.type.name != type_name:
            message = f"{type_name!r} is what a plugin that is added here is called: rename this {taken.type.name}"
            self._report(f"{taken.path}.name", message)
        elif taken is None and type_name not in self._broken:
            self._plugins[type_name] = declare(type_name)

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def _expect(
        self, name: str, *, what: str, path: str, point: Point | None = None, kind: str = "", add: bool = False
    ) -> Declared | None:
        """Return the plugin that a reference names, or report why it cannot be the `what` of something."""
        if name in self._broken:
            return None
        if name not in self._plugins and add and name in {DEFAULT_DETECTOR, *DEFAULT_PARSERS}:
            self._add(name)
        found = self._plugins.get(name)
        if found is None:
            known = [*self._plugins, *((DEFAULT_DETECTOR, *DEFAULT_PARSERS) if add else ())]
            self._report(path, f"no plugin is named {name!r}{nearest(name, known)}")
        elif (point and not point.on(found.type.cls)) or (kind and getattr(found.type.cls, "kind", "") != kind):
            self._report(path, f"{name!r} is {_a(_words(found.type.kinds))}, not {_a(what)}")
            return None
        return found

    # -- profiles -----------------------------------------------------------------------------------------------

    def _profiles(self) -> tuple[ProfilePlan, ...]:
        if not self._document.scheduling_profiles:
            named = [name for name, each in self._plugins.items() if each.type.in_profiles]
            return (ProfilePlan(name="default", plugins=tuple((name, 1.0) for name in named)),)
        seen: set[str] = set()
        plans = []
        for at, spec in enumerate(self._document.scheduling_profiles):
            path = f"schedulingProfiles[{at}]"
            if spec.name in seen:
                self._report(f"{path}.name", f"{spec.name!r} is the name of another profile: rename one")
            seen.add(spec.name)
            refs = tuple(self._profile_ref(ref, path=f"{path}.plugins[{i}]") for i, ref in enumerate(spec.plugins))
            plans.append(ProfilePlan(name=spec.name, plugins=tuple(ref for ref in refs if ref is not None)))
        return tuple(plans)

    def _profile_ref(self, ref: Any, *, path: str) -> tuple[str, float] | None:
        name = ref.plugin_ref
        found = self._expect(name, what="filter, scorer or picker", path=f"{path}.pluginRef")
        if found is None:
            return None
        if not found.type.in_profiles:
            kinds = _a(_words(found.type.kinds))
            why = "which works for every request: remove it from the profile"
            self.warnings.append(f"{path}.pluginRef: {name!r} is {kinds}, {why}")
            return None
        if ref.weight is not None and not SCORE.on(found.type.cls):
            self.warnings.append(f"{path}.weight: {name!r} is not a scorer, so its weight means nothing: remove it")
        return name, 1.0 if ref.weight is None else ref.weight

    def _with_pickers(self, profiles: Sequence[ProfilePlan]) -> tuple[ProfilePlan, ...]:
        any_picker = next((name for name, each in self._plugins.items() if PICK.on(each.type.cls)), "")
        done = []
        for at, profile in enumerate(profiles):
            pickers = [name for name, _ in profile.plugins if PICK.on(self._plugins[name].type.cls)]
            if len(pickers) > 1:
                self._report(f"schedulingProfiles[{at}].plugins", f"two pickers, {' and '.join(pickers)}: keep one")
            if not pickers:
                if not any_picker:
                    self._add(DEFAULT_PICKER)
                    any_picker = DEFAULT_PICKER
                profile = replace(profile, plugins=(*profile.plugins, (any_picker, 1.0)))
            done.append(profile)
        return tuple(done)

    def _handler(self, profiles: Sequence[ProfilePlan]) -> str:
        named = [name for name, each in self._plugins.items() if NEXT_PROFILES.on(each.type.cls)]
        if not named and self._broken:
            return ""
        if not named and len(profiles) > 1:
            self._report("plugins", f"{len(profiles)} profiles and no profile handler: add disagg-profile-handler")
            return ""
        if not named:
            self._add(DEFAULT_HANDLER)
            return DEFAULT_HANDLER
        if len(named) > 1:
            self._report("plugins", f"two profile handlers, {' and '.join(named)}: keep one")
        wants = getattr(self._plugins[named[0]].type.cls, "needs_profiles", 0)
        if wants and len(profiles) > wants:
            kind = self._plugins[named[0]].type.name
            self._report("schedulingProfiles", f"{len(profiles)} profiles, but {kind} runs only one: remove the others")
        return named[0]

    # -- the other sections -------------------------------------------------------------------------------------

    def _parsers(self) -> tuple[str, ...]:
        refs = self._document.request_handler.parsers or tuple(Ref(plugin_ref=name) for name in DEFAULT_PARSERS)
        for at, ref in enumerate(refs):
            path = f"requestHandler.parsers[{at}].pluginRef"
            self._expect(ref.plugin_ref, kind="parser", what="parser", path=path, add=True)
        return tuple(ref.plugin_ref for ref in refs)

    def _sources(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        layer = self._document.data_layer
        for at, source in enumerate(layer.sources):
            path = f"dataLayer.sources[{at}]"
            self._expect(source.plugin_ref, kind="source", what="data source", path=f"{path}.pluginRef")
            seen: set[str] = set()
            for i, each in enumerate(source.extractors):
                if each.plugin_ref in seen:
                    self._report(f"{path}.extractors[{i}].pluginRef", f"{each.plugin_ref!r} is there twice: remove one")
                seen.add(each.plugin_ref)
                where = f"{path}.extractors[{i}].pluginRef"
                self._expect(each.plugin_ref, kind="extractor", what="extractor", path=where)
        return tuple(
            (source.plugin_ref, tuple(each.plugin_ref for each in source.extractors))
            for source in (*layer.sources, *self._added_sources(layer.sources))
        )

    def _added_sources(self, given: Sequence[SourceRef]) -> Sequence[SourceRef]:
        types = {self._plugins[each.plugin_ref].type.name for each in given if each.plugin_ref in self._plugins}
        wanted = []
        if self._document.data_layer.inject_defaults and METRICS_SOURCE not in types:
            wanted.append((METRICS_SOURCE, METRICS_EXTRACTOR))
        if MODELS_SOURCE not in types and any(
            getattr(each.type.cls, "wants_models", False) for each in self._plugins.values()
        ):
            wanted.append((MODELS_SOURCE, MODELS_EXTRACTOR))
        for source, extractor in wanted:
            self._add(source)
            self._add(extractor)
        return [SourceRef(plugin_ref=source, extractors=(Ref(plugin_ref=reader),)) for source, reader in wanted]

    def _refuse_replicas(self) -> None:
        layer = self._document.data_layer
        for path, given in (
            ("dataLayer.discovery.peers.pluginRef", layer.discovery.peers is not None),
            ("dataLayer.crossReplica.syncerPluginRef", bool(layer.cross_replica.syncer_plugin_ref)),
        ):
            if given:
                self._report(path, "shared state of replicas is not implemented yet: leave it out")


_DETECTOR_PATH = "flowControl.saturationDetector.pluginRef"


def _words(kinds: Iterable[str]) -> str:
    return " and ".join(kinds) or "plugin"


def _a(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
