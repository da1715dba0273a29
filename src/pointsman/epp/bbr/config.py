"""What the router is told to do: `--plugin`, or a file of either kind.

`BodyBasedRoutingConfig` lists request plugins; `PayloadProcessorConfig`, which came after it, has profiles of them, of
which exactly one runs, and may choose between models. Without either the model becomes a header, and its base model
another. Plugins that are listed and not referenced are made all the same, as in Go, so that a mistake in one shows.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from pointsman.core.documents import parse_yaml
from pointsman.core.errors import UserError
from pointsman.core.values import ConfigError, Problem, check, nearest
from pointsman.epp.bbr.kinds import Plugin, Role, Surroundings, make
from pointsman.epp.bbr.models import Models
from pointsman.epp.bbr.pickers import MaxScore
from pointsman.epp.bbr.processors import MODEL_HEADER, BaseModelToHeader, FieldParameters, FieldToHeader, Processor
from pointsman.epp.bbr.program import Program
from pointsman.epp.bbr.selector import ModelSelector
from pointsman.epp.bbr.settings import BbrSettings
from pointsman.epp.config.follow import read_text
from pointsman.epp.plugins.api import Parameters

KINDS = {
    "BodyBasedRoutingConfig": "inference.networking.x-k8s.io/v1alpha1",
    "PayloadProcessorConfig": "llm-d.ai/v1alpha1",
}
_PROFILED = "PayloadProcessorConfig"


class PluginEntry(Parameters):
    """One entry of `plugins`."""

    type: str = Field(min_length=1)
    name: str = ""
    parameters: dict[str, Any] | None = None


class PluginRef(Parameters):
    """A plugin by name; of a scorer with its weight."""

    plugin_ref: str = Field(min_length=1)
    weight: float | None = None


class PluginRefs(Parameters):
    """A list of plugins by name, which some files write without the key before it."""

    plugins: tuple[PluginRef, ...] = ()


class ProfilePlugins(Parameters):
    """What a profile runs."""

    request: tuple[PluginRef, ...] = ()
    response: tuple[PluginRef, ...] = ()


class ProfileEntry(Parameters):
    """One entry of `profiles`."""

    name: str = Field(min_length=1)
    plugins: ProfilePlugins = ProfilePlugins()


class DataLayer(Parameters):
    """What feeds the plugins of a profile."""

    collectors: tuple[PluginRef, ...] = ()
    extractors: tuple[PluginRef, ...] = ()
    datasources: tuple[PluginRef, ...] = ()


class RoutingDocument(Parameters):
    """A file of either kind."""

    api_version: str = ""
    kind: str = ""
    plugins: tuple[PluginEntry, ...] = ()
    request: tuple[PluginRef, ...] = ()
    response: tuple[PluginRef, ...] = ()
    pre_processing: PluginRefs = PluginRefs()
    profile_picker: PluginRef | None = None
    profiles: tuple[ProfileEntry, ...] = ()
    post_processing: PluginRefs = PluginRefs()
    datalayer: DataLayer = DataLayer()

    @field_validator("pre_processing", "post_processing", mode="before")
    @classmethod
    def _with_its_key(cls, value: Any) -> Any:
        return {"plugins": value} if isinstance(value, list) else value


def read_program(settings: BbrSettings, *, around: Surroundings) -> Program:
    """Return what the settings ask for: flags, a text, a file, or the default."""
    if settings.plugin:
        return from_flags(settings.plugin, around=around)
    if settings.config_text:
        return from_text(settings.config_text, name="--config-text", around=around)
    if settings.config_file is not None:
        return from_text(read_text(settings.config_file), name=str(settings.config_file), around=around)
    return default_program(around)


def default_program(around: Surroundings) -> Program:
    """Return what runs when nobody says anything else."""
    model = FieldParameters.model_validate({"fieldName": "model", "headerName": MODEL_HEADER})
    return Program(processors=(FieldToHeader(model, tally=around.tally), BaseModelToHeader(base_of=around.base_of)))


def from_flags(specs: Sequence[str], *, around: Surroundings) -> Program:
    """Return what `--plugin type:name[:json]` asks for, in that order.

    Raises UserError.
    """
    made: list[Processor] = []
    problems: list[Problem] = []
    for spec in specs:
        kind, _, rest = spec.partition(":")
        name, _, text = rest.partition(":")
        if not kind.strip() or not name.strip():
            raise UserError(f"--plugin {spec!r}: write type:name, or type:name:parameters in JSON")
        found = make(kind.strip(), parse_yaml(text or "{}", name=f"--plugin {name}"), path=name, around=around)
        if isinstance(found, tuple):
            problems += found
        elif found.role != "request":
            problems.append(Problem(name, f"{kind} is part of a profile: write it in a file"))
        else:
            made.append(found.made)
    if problems:
        raise ConfigError(problems, name="--plugin")
    return Program(processors=made)


def from_text(text: str | bytes, *, name: str, around: Surroundings) -> Program:
    """Return what a file asks for.

    Raises UserError with all that is wrong with it.
    """
    checked = check(RoutingDocument, parse_yaml(text, name=name), path="")
    if checked.value is None:
        raise ConfigError(checked.problems, name=name)
    document, missing = _with_head(checked.value)
    problems = list(_wrong_head(document))
    reading = _Reading(document, around=around, problems=problems)
    program = reading.program() if not problems else None
    if program is None or problems:
        raise ConfigError(problems, name=name)
    return replace(program, warnings=(*missing, *program.warnings))


def _with_head(document: RoutingDocument) -> tuple[RoutingDocument, list[str]]:
    """Return the document with the kind that it must be where it does not say so, as Go takes it, and warnings."""
    if not document.plugins:
        return document, []
    kind = document.kind or (_PROFILED if document.profiles else "BodyBasedRoutingConfig")
    version = document.api_version or KINDS.get(kind, "")
    missing = [] if document.kind else [f"kind: is missing: write {kind}"]
    missing += [] if document.api_version else [f"apiVersion: is missing: write {version}"]
    return document.model_copy(update={"kind": kind, "api_version": version}), missing


def _wrong_head(document: RoutingDocument) -> Sequence[Problem]:
    version = KINDS.get(document.kind)
    if version is None:
        return [Problem("kind", f"{document.kind!r} is not what the router reads: write {' or '.join(KINDS)}")]
    if document.api_version != version:
        return [Problem("apiVersion", f"{document.api_version!r} is not known for {document.kind}: write {version}")]
    if document.kind == _PROFILED and len(document.profiles) != 1:
        return [Problem("profiles", f"there are {len(document.profiles)}, and exactly one can be run: keep one")]
    return []


class _Reading:
    """One file on its way to a program; what is wrong is collected."""

    def __init__(self, document: RoutingDocument, *, around: Surroundings, problems: list[Problem]) -> None:
        self._document = document
        self._around = around
        self._problems = problems
        self._made = self._make_all()

    def _make_all(self) -> dict[str, Plugin | None]:
        made: dict[str, Plugin | None] = {}
        for at, entry in enumerate(self._document.plugins):
            name = entry.name or entry.type
            if name in made:
                self._problems.append(Problem(f"plugins[{at}].name", f"{name!r} is there twice: give it another name"))
            found = make(entry.type, entry.parameters, path=f"plugins[{at}]", around=self._around)
            if isinstance(found, tuple):
                self._problems += found
            made[name] = None if isinstance(found, tuple) else found
        return made

    def program(self) -> Program:
        document = self._document
        request, response = ("request", document.request), ("response", document.response)
        if document.kind == _PROFILED:
            plugins = document.profiles[0].plugins
            request = ("profiles[0].plugins.request", plugins.request)
            response = ("profiles[0].plugins.response", plugins.response)
        if document.profile_picker is not None:
            self._get(document.profile_picker, "profilePicker", ("profile picker",))
        self._all("preProcessing.plugins", document.pre_processing.plugins, ())
        collectors = self._all("datalayer.collectors", document.datalayer.collectors, ("collector",))
        answers = self._all(*response, ("response", "session"))
        echoes = [each for each in answers if each.role == "response"]
        echoes += self._all("postProcessing.plugins", document.post_processing.plugins, ("response",))
        fed = self._all("datalayer.extractors", document.datalayer.extractors, ("counter", "timer", "payer"))
        sources = self._all("datalayer.datasources", document.datalayer.datasources, ("models",))
        models = Models(
            counts=any(each.role == "counter" for each in fed),
            ttft=next((each.made for each in fed if each.role == "timer"), None),
            costs=next((each.made for each in fed if each.role == "payer"), None),
        )
        return Program(
            processors=self._processors(*request, models=models),
            models=models,
            models_path=Path(sources[0].made.models_path) if sources else None,
            echo=echoes[0].made.header_name if echoes else "",
            collector=collectors[0].made if collectors else None,
            sessions=tuple(each.made for each in self._made.values() if each is not None and each.role == "session"),
            remembers=tuple(each.made for each in answers if each.role == "session"),
            warnings=tuple(each.warning for each in self._made.values() if each is not None and each.warning),
        )

    def _processors(self, where: str, refs: Sequence[PluginRef], *, models: Models) -> list[Processor]:
        roles: tuple[Role, ...] = ("request", "selector", "filter", "scorer", "session", "picker")
        listed = self._resolved(where, refs, roles)
        for at, (ref, each) in enumerate(listed):
            if each.role in {"scorer", "session"} and ref.weight is None:
                message = f"{ref.plugin_ref} is a scorer, which needs a weight: write weight: 1.0 beside it"
                self._problems.append(Problem(f"{where}[{at}].weight", message))
        pickers = [each.made for _, each in listed if each.role == "picker"]
        if len(pickers) > 1:
            self._problems.append(Problem(where, f"there are {len(pickers)} pickers, and one picks: keep one"))
        selector = ModelSelector(
            models,
            filters=[each.made for _, each in listed if each.role == "filter"],
            scorers=[(each.made, ref.weight or 0.0) for ref, each in listed if each.role == "scorer"],
            sessions=[(each.made, ref.weight or 0.0) for ref, each in listed if each.role == "session"],
            picker=pickers[0] if pickers else MaxScore(rng=self._around.rng),
        )
        return [
            selector if each.role == "selector" else each.made
            for _, each in listed
            if each.role in {"request", "selector"}
        ]

    def _all(self, where: str, refs: Sequence[PluginRef], roles: tuple[Role, ...]) -> list[Plugin]:
        return [each for _, each in self._resolved(where, refs, roles)]

    def _resolved(
        self, where: str, refs: Sequence[PluginRef], roles: tuple[Role, ...]
    ) -> list[tuple[PluginRef, Plugin]]:
        found = [(ref, self._get(ref, f"{where}[{at}]", roles)) for at, ref in enumerate(refs)]
        return [(ref, each) for ref, each in found if each is not None]

    def _get(self, ref: PluginRef, where: str, roles: tuple[Role, ...]) -> Plugin | None:
        if ref.plugin_ref not in self._made:
            hint = nearest(ref.plugin_ref, self._made)
            self._problems.append(Problem(f"{where}.pluginRef", f"no plugin is named {ref.plugin_ref!r}{hint}"))
            return None
        found = self._made[ref.plugin_ref]
        if found is not None and found.role not in roles:
            self._problems.append(Problem(f"{where}.pluginRef", f"{ref.plugin_ref!r} is no plugin for this place"))
            return None
        return found
