"""From a plan to a scheduler: plugins are made, what they consume is produced, and everything is put in order.

Plugins that others refer to are made first. Whatever a plugin consumes must be produced by the plugin it names; the
producers that llm-d creates by itself are created here too. State survives a reload: a plugin whose type, name and
parameters did not change, and whose references did not either, is the same object as before.
"""

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pointsman.core.documents import to_yaml
from pointsman.core.values import ConfigError, Problem, dump, nearest
from pointsman.epp.config.defaults import ConfigPlan, Declared, declare
from pointsman.epp.config.registry import LATER, UnknownType
from pointsman.epp.plugins.api import (
    ENCODER_MATCHES,
    INFLIGHT_LOAD,
    LATENCY_PREDICTIONS,
    PREFIX_MATCHES,
    SESSION_ID,
    TOKENIZED_PROMPT,
    Context,
    Key,
    Reserves,
)
from pointsman.epp.schedule.explain import Meters
from pointsman.epp.schedule.points import (
    ADMIT,
    ANSWER,
    BEFORE_SEND,
    CONCLUDE,
    FILTER,
    IDENTIFY,
    LEARN,
    NEEDS,
    NEXT_PROFILES,
    ON_ENDPOINTS,
    ON_RESPONSE,
    PICK,
    PRODUCE,
    QUESTION,
    REPORT,
    SATURATION,
    SCORE,
    WANTS,
    Hooked,
    Point,
)
from pointsman.epp.schedule.profile import Profile
from pointsman.epp.schedule.scheduler import Parts, Scheduler

_DEFAULT_PRODUCERS: Mapping[str, str] = {
    TOKENIZED_PROMPT: "token-producer",
    PREFIX_MATCHES: "approx-prefix-cache-producer",
    INFLIGHT_LOAD: "inflight-load-producer",
    ENCODER_MATCHES: "mm-embeddings-cache-producer",
    LATENCY_PREDICTIONS: "predicted-latency-producer",
    SESSION_ID: "session-id-producer",
}


@dataclass(frozen=True, kw_only=True)
class Made:
    """A plugin object with what it was made from."""

    declared: Declared
    plugin: Any
    identity: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Built:
    """A scheduler with the plan and the objects behind it."""

    plan: ConfigPlan
    scheduler: Scheduler
    made: Mapping[str, Made]

    def to_yaml(self) -> str:
        """Return the effective configuration: everything that was added or defaulted, written out."""
        return to_yaml(_effective(self.plan))


class Builder:
    """Makes schedulers; keeps what they share over reloads."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        meters: Meters | None = None,
        also: Callable[[ConfigPlan], Sequence[Problem]] = lambda _plan: (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._environment = environment or {}
        self._also = also  # what those who carry out the rest of a plan find wrong with it
        self.meters = meters or Meters()

    def build(
        self,
        plan: ConfigPlan,
        *,
        problems: Sequence[Problem] = (),
        previous: Built | None = None,
        name: str = "configuration",
    ) -> Built:
        """Return the scheduler of a plan, with the state of the previous one where nothing changed.

        Raises ConfigError when the plugins do not fit together, or when there are `problems` already: then with both,
        so that nobody corrects a file twice.
        """
        work = _Work(plan, previous=previous, clock=self._clock, rng=self._rng, environment=self._environment)
        work.make_all()
        order = work.producers_in_order()
        found = [*problems, *work.problems, *self._also(plan)]
        if found:
            raise ConfigError(found, name=name)
        made = tuple(each.declared for each in work.made.values())
        plan = replace(plan, plugins=made, warnings=(*plan.warnings, *work.missing(), *work.unknown_profiles()))
        return Built(plan=plan, scheduler=Scheduler(self._parts(plan, work.made, order)), made=work.made)

    def _parts(self, plan: ConfigPlan, made: Mapping[str, Made], producers: Sequence[str]) -> Parts:
        def hooked(point: Point, *names: str) -> tuple[Hooked, ...]:
            return tuple(self._hook(point, made[name]) for name in names)

        def everyone(point: Point) -> tuple[Hooked, ...]:
            return hooked(point, *(name for name, each in made.items() if point.on(each.plugin)))

        readers = [name for name, each in made.items() if NEEDS.on(each.plugin)]
        produced = [key for name in producers for key in made[name].plugin.produces]
        return Parts(
            profiles={each.name: self._profile(each.name, each.plugins, made) for each in plan.profiles},
            handler=hooked(NEXT_PROFILES, plan.handler)[0],
            asks=next((self._hook(QUESTION, made[name]) for name in producers if QUESTION.on(made[name].plugin)), None),
            concludes=hooked(CONCLUDE, plan.handler)[0],
            detector=hooked(SATURATION, plan.detector)[0],
            producers=hooked(PRODUCE, *producers),
            readers=hooked(NEEDS, *sorted(readers, key=lambda name: name not in producers)),
            admitters=everyone(ADMIT),
            before_send=everyone(BEFORE_SEND),
            on_response=everyone(ON_RESPONSE),
            on_endpoints=everyone(ON_ENDPOINTS),
            responders=everyone(ANSWER),
            reserves=any(isinstance(each.plugin, Reserves) for each in made.values()),
            identities=everyone(IDENTIFY),
            reporters=everyone(REPORT),
            learners=everyone(LEARN),
            parsers=tuple(made[name].declared.type.name for name in plan.parsers),
            cost=next((key for key in produced if key.kind == INFLIGHT_LOAD), None),
            matches=next((key for key in produced if key.kind == PREFIX_MATCHES), None),
        )

    def _profile(self, name: str, plugins: Sequence[tuple[str, float]], made: Mapping[str, Made]) -> Profile:
        each = [(made[plugin], weight) for plugin, weight in plugins]
        picker = next(one for one, _ in each if PICK.on(one.plugin))
        return Profile(
            name,
            filters=[self._hook(FILTER, one) for one, _ in each if FILTER.on(one.plugin)],
            scorers=[self._hook(SCORE, one, weight=weight) for one, weight in each if SCORE.on(one.plugin)],
            picker=self._hook(PICK, picker),
        )

    def _hook(self, point: Point, made: Made, *, weight: float = 1.0) -> Hooked:
        meter = self.meters.get(point.label, type_name=made.declared.type.name, name=made.declared.name)
        return Hooked(made.plugin, meter, weight)


class _Work:
    """One build in progress."""

    def __init__(
        self,
        plan: ConfigPlan,
        *,
        previous: Built | None,
        clock: Callable[[], float],
        rng: random.Random,
        environment: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._previous = previous
        self._clock = clock
        self._rng = rng
        self._wanted = {each.name: each for each in plan.plugins}
        self.made: dict[str, Made] = {}
        self.problems: list[Problem] = []

    def make_all(self) -> None:
        for name in list(self._wanted):
            self._make(name, chain=())
        waiting = list(self.made.values())
        while waiting:
            one = waiting.pop(0)
            for key in getattr(one.plugin, "consumes", ()):
                if key.producer not in self.made and self._create_producer(key, consumer=one.declared):
                    waiting.append(self.made[key.producer])
                self._check_produced(key, consumer=one.declared)

    def _make(self, name: str, *, chain: tuple[str, ...]) -> Made | None:
        if name in self.made:
            return self.made[name]
        declared = self._wanted[name]
        if name in chain:
            self._report(declared, f"refers to itself through {' → '.join((*chain, name))}: break the circle")
            return None
        references = self._references(declared, chain=(*chain, name))
        if references is None:
            return None
        identity = (*declared.identity, *(each.identity for each in references.values()))
        if declared.name == self._plan.handler:
            identity = (*identity, tuple(each.name for each in self._plan.profiles))
        old = self._previous.made.get(name) if self._previous is not None else None
        same = old is not None and old.identity == identity
        plugin = old.plugin if old is not None and same else self._instantiate(declared, references)
        if plugin is None:
            return None
        self.made[name] = Made(declared=declared, plugin=plugin, identity=identity)
        return self.made[name]

    def _references(self, declared: Declared, *, chain: tuple[str, ...]) -> dict[str, Made] | None:
        find = getattr(declared.type.cls, "references", None)
        found: dict[str, Made] = {}
        for name in find(declared.parameters) if find is not None else ():
            if name in self._plan.broken:
                return None
            if name not in self._wanted:
                self._report(declared, f"refers to {name!r}, which is no plugin{nearest(name, self._wanted)}")
                return None
            made = self._make(name, chain=chain)
            if made is None:
                return None
            if not WANTS.on(made.plugin):
                self._report(
                    declared, f"refers to {name!r}, which is no decider: name one, as always-disagg-pd-decider"
                )
                return None
            found[name] = made
        return found

    def _instantiate(self, declared: Declared, references: Mapping[str, Made]) -> Any:
        cls, kind = declared.type.cls, declared.type.parameters
        if kind is cls:
            return declared.parameters
        arguments = () if kind is None else (declared.parameters,)
        context = Context(
            name=declared.name,
            clock=self._clock,
            rng=self._rng,
            plugins={name: made.plugin for name, made in references.items()},
            profiles=tuple(each.name for each in self._plan.profiles),
            environment=self._environment,
        )
        try:
            return cls(*arguments, context=context) if _wants_context(cls) else cls(*arguments)
        except (Exception, SystemExit) as error:  # a user's class may fail in any way
            self._report(declared, f"cannot be made: {type(error).__name__}: {error}")
            return None

    def _create_producer(self, key: Key[Any], *, consumer: Declared) -> bool:
        if key.producer != _DEFAULT_PRODUCERS.get(key.kind):
            return False
        try:
            self._wanted[key.producer] = declare(key.producer)
        except UnknownType as error:
            self._report(consumer, f"needs a plugin that produces {key.kind}: {error}")
            return False
        return self._make(key.producer, chain=()) is not None

    def _check_produced(self, key: Key[Any], *, consumer: Declared) -> None:
        made = self.made.get(key.producer)
        if key.producer in self._plan.broken or (made is None and key.producer in self._wanted):
            return  # it has a problem of its own
        if made is not None and any(each.name == key.name for each in getattr(made.plugin, "produces", ())):
            return
        if made is not None:
            self._report(consumer, f"needs {key.kind} from {key.producer!r}, which does not produce it")
        elif key.producer in LATER:
            self._report(consumer, f"needs {key.producer!r}, which this version does not implement yet")
        elif key.producer != _DEFAULT_PRODUCERS.get(key.kind):
            hint = nearest(key.producer, self.made)
            self._report(consumer, f"needs {key.kind} from {key.producer!r}, which is no plugin{hint}")

    def missing(self) -> list[str]:
        """Return whom filters and scorers would read from, and nobody declared; they work without, as in llm-d."""
        return [
            f"{made.declared.path}: no plugin is named {key.producer!r}, so it works without: add it, or mend the name"
            for made in self.made.values()
            if not PRODUCE.on(made.plugin)
            for key in getattr(made.plugin, "prefers", ())
            if key.producer not in self.made
        ]

    def unknown_profiles(self) -> list[str]:
        """Return the profiles that the handler would run and nobody declared: the Go picker starts, and refuses."""
        handler, known = self.made[self._plan.handler], [each.name for each in self._plan.profiles]
        return [
            f"{handler.declared.path}: no profile is named {name!r}, so it refuses requests{nearest(name, known)}"
            for name in getattr(handler.plugin, "requires_profiles", ())
            if name not in known
        ]

    def producers_in_order(self) -> list[str]:
        graph: dict[str, set[str]] = {}
        for name, made in self.made.items():
            if PRODUCE.on(made.plugin):
                keys = (*getattr(made.plugin, "consumes", ()), *getattr(made.plugin, "prefers", ()))
                graph[name] = {key.producer for key in keys if key.producer in self.made}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            circle = " → ".join(error.args[1])
            self.problems.append(Problem("plugins", f"producers wait for each other: {circle}: break the circle"))
            return []

    def _report(self, declared: Declared, message: str) -> None:
        self.problems.append(Problem(declared.path or f"plugin {declared.name!r}", message))


def _wants_context(cls: type[Any]) -> bool:
    return "context" in inspect.signature(cls).parameters


def _effective(plan: ConfigPlan) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": plan.document.api_version, "kind": plan.document.kind}
    document["featureGates"] = [f"{name}={str(value).lower()}" for name, value in plan.gates.items()]
    document["plugins"] = [_plugin(each) for each in plan.plugins]
    document["schedulingProfiles"] = [
        {"name": profile.name, "plugins": [_profile_ref(plan, name, weight) for name, weight in profile.plugins]}
        for profile in plan.profiles
    ]
    layer: dict[str, Any] = {"injectDefaults": plan.document.data_layer.inject_defaults}
    layer["sources"] = [
        {"pluginRef": source, "extractors": [{"pluginRef": each} for each in extractors]}
        for source, extractors in plan.sources
    ]
    if plan.discovery:
        layer["discovery"] = {"endpoints": {"pluginRef": plan.discovery}}
    document["dataLayer"] = layer
    document["requestHandler"] = {"parsers": [{"pluginRef": name} for name in plan.parsers]}
    if plan.document.request_handler.propagate_priority:
        document["requestHandler"]["propagatePriority"] = True
    said = plan.document.flow_control.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    document["flowControl"] = {**said, "saturationDetector": {"pluginRef": plan.detector}}
    return document


def _plugin(declared: Declared) -> dict[str, Any]:
    row: dict[str, Any] = {"name": declared.name, "type": declared.type.name}
    parameters = {key: value for key, value in dump(declared.parameters).items() if value is not None}
    return {**row, "parameters": parameters} if parameters else row


def _profile_ref(plan: ConfigPlan, name: str, weight: float) -> dict[str, Any]:
    declared = plan.get(name)
    scores = declared is not None and SCORE.on(declared.type.cls)
    return {"pluginRef": name, "weight": weight} if scores else {"pluginRef": name}
