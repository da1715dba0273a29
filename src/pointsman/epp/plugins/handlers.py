"""Profile handlers: which profiles run for a request, and which of their results serves it.

Exactly one is configured. A handler is asked again and again until it wants no more profiles; it must therefore look
only at what is in `results`, never remember. Stages that run elsewhere than the pick (prefill, encode, a data-parallel
rank) are told to the sidecar by headers, and a client that sends such a header itself is not believed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from pointsman.epp.plugins.api import Conclusion, Context, Decider, HeaderChanges, Parameters, Picked, Results
from pointsman.epp.plugins.deciders import AlwaysPrefillDecider, PrefixBasedDecider, PrefixBasedParameters
from pointsman.epp.request.refusals import BadRequest, ResourceExhausted
from pointsman.epp.request.request import Request

PREFILL_HEADER = "x-prefiller-host-port"
ENCODE_HEADER = "x-encoder-hosts-ports"
RANK_HEADER = "x-data-parallel-host-port"
_MOST_MODELS = 1000


def drained(why: str) -> ResourceExhausted:
    """Return the refusal for a profile whose filters left nobody."""
    return ResourceExhausted(f"failed to find target endpoint: {why}", dropped="rejected-saturated")


class SingleProfileHandler:
    """The only profile is the one."""

    needs_profiles = 1

    def __init__(self, *, context: Context) -> None:
        self._profile = context.profiles[0]
        self.only_profile = self._profile  # so nobody needs to ask

    def next_profiles(self, _request: Request, results: Results) -> Sequence[str]:
        """Run it once."""
        return () if results else (self._profile,)

    def conclude(self, _request: Request, results: Results) -> Conclusion:
        """Take its result."""
        if results[self._profile] is None:
            raise drained("the filters of the profile left no endpoint")
        return Conclusion(primary=self._profile)


class StageProfiles(Parameters):
    """The profile of each stage."""

    decode: str = "decode"
    prefill: str = "prefill"
    encode: str = "encode"


class Deciders(Parameters):
    """The plugin that decides on each stage."""

    prefill: str = ""
    encode: str = ""


_LEGACY = {
    "decodeProfile": ("profiles", "decode"),
    "prefillProfile": ("profiles", "prefill"),
    "encodeProfile": ("profiles", "encode"),
    "prefillDeciderPluginName": ("deciders", "prefill"),
    "encodeDeciderPluginName": ("deciders", "encode"),
    "deciderPluginName": ("deciders", "prefill"),
}


class DisaggParameters(Parameters):
    """What `disagg-profile-handler` takes; the flat names of older files are understood too."""

    stage_order: Literal["decode-first", "prefill-first"] = "decode-first"
    profiles: StageProfiles = StageProfiles()
    deciders: Deciders = Deciders()

    @model_validator(mode="before")
    @classmethod
    def _flat_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        spelled = {key.casefold(): key for key in data}
        flat = {key: given for key in _LEGACY if (given := spelled.get(key.casefold())) is not None}
        if flat and (data.get("profiles") or data.get("deciders")):
            group, stage = _LEGACY[next(iter(flat))]
            raise ValueError(f"{next(iter(flat))} is the old name of {group}.{stage}: write all of them the new way")
        nested: dict[str, Any] = {key: value for key, value in data.items() if key not in flat.values()}
        for key, given in flat.items():
            group, stage = _LEGACY[key]
            nested[group] = {stage: data[given], **(nested.get(group) or {})}
        return nested


class DisaggProfileHandler:
    """Decode here, prefill and encode perhaps elsewhere."""

    def __init__(self, parameters: DisaggParameters, *, context: Context) -> None:
        have = set(context.profiles)
        self._decode = parameters.profiles.decode
        self.requires_profiles: Sequence[str] = (self._decode,)
        self._prefill = parameters.profiles.prefill if parameters.profiles.prefill in have else ""
        self._encode = parameters.profiles.encode if parameters.profiles.encode in have else ""
        self._decode_first = parameters.stage_order == "decode-first"
        self._prefill_decider: Decider | None = context.plugins.get(parameters.deciders.prefill)
        self._encode_decider: Decider | None = context.plugins.get(parameters.deciders.encode)
        self.decisions: dict[tuple[str, str], int] = {}  # by model and by what ran

    @staticmethod
    def references(parameters: DisaggParameters) -> Sequence[str]:
        """Return the deciders, which must be there before the handler."""
        return [name for name in (parameters.deciders.prefill, parameters.deciders.encode) if name]

    def next_profiles(self, request: Request, results: Results) -> Sequence[str]:
        """Return the next stage that is worth it."""
        for stage, wanted in self._stages(request, results):
            if stage and stage not in results and wanted():
                return (stage,)
            if stage == self._decode and results.get(stage) is None:
                return ()  # without a decoder there is nothing to disaggregate
        return ()

    def _stages(self, request: Request, results: Results) -> Sequence[tuple[str, Any]]:
        def decide(decider: Decider | None) -> bool:
            decode = results.get(self._decode)
            return decider is not None and decider.wants(request, decode.first if decode is not None else None)

        decode = (self._decode, lambda: True)
        encode = (self._encode, lambda: decide(self._encode_decider))
        if self._decode_first:
            return (decode, encode, (self._prefill, lambda: decide(self._prefill_decider)))
        return ((self._prefill, lambda: True), encode, decode)

    def conclude(self, request: Request, results: Results) -> Conclusion:
        """Decode serves; what else ran is told by headers. A prefill stage without endpoints costs nothing."""
        if results.get(self._decode) is None:
            raise drained("failed to find available decode workers")
        ran = [stage for stage, name in self._named() if name and results.get(name) is not None]
        model = (request.target_model or "unknown") if len(self.decisions) < _MOST_MODELS else "other"
        decision = (model, "decode-only" if ran == ["decode"] else "-".join(ran))
        self.decisions[decision] = self.decisions.get(decision, 0) + 1
        return Conclusion(primary=self._decode)

    def _named(self) -> Sequence[tuple[str, str]]:
        return (("encode", self._encode), ("prefill", self._prefill), ("decode", self._decode))

    def before_send(self, _request: Request, results: Results, _primary: str) -> HeaderChanges:
        """Name the prefill and encode endpoints, and nothing that the client named."""
        return stage_headers(prefill=results.get(self._prefill), encode=results.get(self._encode))


def stage_headers(*, prefill: Picked | None, encode: Picked | None) -> HeaderChanges:
    """Return the headers that name the endpoints of the stages."""
    wanted: Mapping[str, str] = {
        PREFILL_HEADER: prefill.first.target if prefill is not None else "",
        ENCODE_HEADER: ",".join(each.target for each in encode.endpoints) if encode is not None else "",
    }
    return HeaderChanges(
        set=[(name, value) for name, value in wanted.items() if value],
        remove=[name for name, value in wanted.items() if not value],
    )


class PdParameters(Parameters):
    """What `pd-profile-handler` takes."""

    threshold: int = Field(default=0, ge=0, description="Least uncached tokens for a remote prefill; 0: always.")
    decode_profile: str = "decode"
    prefill_profile: str = "prefill"
    decider_plugin_name: str = ""
    primary_port: int = Field(default=0, ge=0, le=65_535)
    prefix_plugin_type: str = ""
    prefix_plugin_name: str = ""
    hash_block_size: int = 0


class PdProfileHandler(DisaggProfileHandler):
    """Decode here, prefill elsewhere from a threshold on (KServe still writes it)."""

    def __init__(self, parameters: PdParameters, *, context: Context) -> None:
        profiles = StageProfiles(decode=parameters.decode_profile, prefill=parameters.prefill_profile, encode="")
        deciders = Deciders(prefill=parameters.decider_plugin_name)
        super().__init__(DisaggParameters(profiles=profiles, deciders=deciders), context=context)
        self._port = parameters.primary_port
        self.consumes: Sequence[Any] = ()
        if not parameters.decider_plugin_name:
            self._prefill_decider = AlwaysPrefillDecider()
            if parameters.threshold:
                decider = PrefixBasedDecider(PrefixBasedParameters(non_cached_tokens=parameters.threshold))
                self._prefill_decider, self.consumes = decider, decider.consumes

    @staticmethod
    def references(parameters: PdParameters) -> Sequence[str]:  # type: ignore[override] # each handler has its own
        """Return the decider, if one is named."""
        return [parameters.decider_plugin_name] if parameters.decider_plugin_name else []

    def conclude(self, request: Request, results: Results) -> Conclusion:
        """Decode serves, through the sidecar's port where ranks are behind one."""
        found = super().conclude(request, results)
        picked = results[found.primary]
        assert picked is not None
        return Conclusion(primary=found.primary, target=at_port(picked, self._port)) if self._port else found

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges:
        """Name the prefill endpoint, and the rank where there is one."""
        changes, picked = super().before_send(request, results, primary), results[primary]
        if not self._port or picked is None:
            return changes
        return HeaderChanges(set=[*changes.set, (RANK_HEADER, picked.first.target)], remove=changes.remove)


def at_port(picked: Picked, port: int) -> str:
    """Return the addresses of all picked endpoints at another port, each once, as the destination header lists them."""
    return ",".join(dict.fromkeys(f"{each.target.rpartition(':')[0]}:{port}" for each in picked.endpoints))


class StageHeadersParameters(Parameters):
    """What `disagg-headers-handler` takes."""

    prefill_profile: str = "prefill"
    encode_profile: str = "encode"


class StageHeadersHandler:
    """Names the endpoints of the stages (deprecated: `disagg-profile-handler` does it itself)."""

    def __init__(self, parameters: StageHeadersParameters) -> None:
        self._parameters = parameters

    def before_send(self, _request: Request, results: Results, _primary: str) -> HeaderChanges:
        """Name them."""
        names = self._parameters
        return stage_headers(prefill=results.get(names.prefill_profile), encode=results.get(names.encode_profile))


class DataParallelParameters(Parameters):
    """What `data-parallel-profile-handler` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("primary_port",))

    primary_port: int = Field(default=8000, ge=1, le=65_535)


class DataParallelProfileHandler(SingleProfileHandler):
    """The pick is a rank behind a sidecar: send to the sidecar's port and name the rank in a header."""

    def __init__(self, parameters: DataParallelParameters, *, context: Context) -> None:
        super().__init__(context=context)
        self._port = parameters.primary_port
        self.only_profile = ""  # its conclusion matters

    def conclude(self, request: Request, results: Results) -> Conclusion:
        """Redirect to the sidecar."""
        primary = super().conclude(request, results).primary
        picked = results[primary]
        assert picked is not None
        return Conclusion(primary=primary, target=at_port(picked, self._port))

    def before_send(self, _request: Request, results: Results, primary: str) -> HeaderChanges:
        """Name the rank."""
        picked = results[primary]
        assert picked is not None
        return HeaderChanges(set=[(RANK_HEADER, picked.first.target)])


class HeaderProfileParameters(Parameters):
    """What `header-profile-handler` takes."""

    header_name: str = "EPP-Profile"
    default_profile: str = "decode"


class HeaderProfileHandler:
    """The request's header names the profile; a name that nobody configured is the client's mistake, so 400."""

    def __init__(self, parameters: HeaderProfileParameters, *, context: Context) -> None:
        self._name = parameters.header_name
        self._header = parameters.header_name.lower()
        self._default = parameters.default_profile
        self._profiles = context.profiles
        chosen = len(context.profiles) > 1 and "default_profile" in parameters.model_fields_set
        self.requires_profiles: Sequence[str] = (self._default,) if chosen else ()

    def next_profiles(self, request: Request, results: Results) -> Sequence[str]:
        """Run the profile that is named."""
        if results:
            return ()
        if len(self._profiles) == 1:
            return self._profiles
        wanted = request.headers.get(self._header) or self._default
        if wanted not in self._profiles:
            raise BadRequest(f"{self._name} {wanted!r} names no profile: use one of {', '.join(self._profiles)}")
        return (wanted,)

    def conclude(self, _request: Request, results: Results) -> Conclusion:
        """Take its result."""
        primary = next(iter(results))
        if results[primary] is None:
            raise drained(f"the filters of profile {primary} left no endpoint")
        return Conclusion(primary=primary)
