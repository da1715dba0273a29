"""The models that a selector may choose from: what a file says of them, and what their requests said since.

The file is the payload processor's `models.json`: names, prices, attributes, groups. A version that cannot be read
leaves the one before in use; a model that stays keeps what is known of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import AliasChoices, ConfigDict, Field

from pointsman.core.documents import parse_yaml
from pointsman.core.values import ConfigError, check
from pointsman.epp.bbr.costs import NOTHING, CostParameters, Costs, CostWindow
from pointsman.epp.bbr.ttft import COLD, Ttft, TtftParameters, TtftWindow
from pointsman.epp.plugins.api import Parameters


class Loose(Parameters):
    """Base of what a file may say more of than we read."""

    model_config = ConfigDict(extra="ignore")


class Pricing(Loose):
    """Prices in dollars for a million tokens."""

    input: float = Field(default=0.0, validation_alias=AliasChoices("inputPerMillion", "input_per_million"))
    output: float = Field(default=0.0, validation_alias=AliasChoices("outputPerMillion", "output_per_million"))


class ListedModel(Loose):
    """One entry of `models`."""

    name: str = ""
    pricing: Pricing = Pricing()
    metrics_url: str = Field(default="", alias="metricsURL")
    attributes: Mapping[str, object] = Field(default_factory=dict)


class ListedGroup(Loose):
    """One entry of `groups`."""

    name: str = ""
    models: tuple[str, ...] = ()


class ModelsDocument(Loose):
    """The whole file."""

    models: tuple[ListedModel, ...] = ()
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLoad:
    """How busy the pool of a model was when that was last read."""

    kv_usage: float  # 0..1, of the fullest
    cpu_usage: float
    waiting: int
    running: int
    at: float


class Model:
    """One model: what is listed of it, and how it does."""

    __slots__ = (
        *("attributes", "cost_window", "groups", "inflight", "load", "metrics_url", "name", "output_price", "price"),
        "window",
    )

    def __init__(self, name: str, *, window: TtftWindow | None = None, cost_window: CostWindow | None = None) -> None:
        self.name = name
        self.price = 0.0  # dollars for an input token
        self.output_price = 0.0
        self.groups: frozenset[str] = frozenset()
        self.attributes: Mapping[str, object] = {}
        self.metrics_url = ""  # where its pool's metrics are
        self.load: PoolLoad | None = None  # None while nobody has read them
        self.inflight = 0
        self.window = window
        self.cost_window = cost_window

    @property
    def ttft(self) -> Ttft:
        """How long its first tokens took of late."""
        return self.window.now if self.window is not None else COLD

    @property
    def costs(self) -> Costs:
        """What its requests cost of late, in dollars."""
        return self.cost_window.now if self.cost_window is not None else NOTHING


class Models:
    """All of them, in the order of the file."""

    def __init__(
        self, *, counts: bool = False, ttft: TtftParameters | None = None, costs: CostParameters | None = None
    ) -> None:
        self._counts = counts or ttft is not None or costs is not None
        self._ttft = ttft
        self._costs = costs
        self._known: dict[str, Model] = {}

    def take(self, text: str | bytes, *, name: str) -> list[str]:
        """Take a version of the file; return what of it is left out and why.

        Raises UserError when it cannot be read at all.
        """
        raw = parse_yaml(text, name=name)
        checked = check(ModelsDocument, {} if raw is None else raw, path="")
        if checked.value is None:
            raise ConfigError(checked.problems, name=name)
        document = checked.value
        left_out = [f"models[{at}]: {why}" for at, each in enumerate(document.models) if (why := _wrong(each))]
        listed = {each.name: each for each in document.models if not _wrong(each)}
        left_out += [f"groups: {each!r} is no model of the list" for each in _unknown(document, listed)]
        self._known = {each: self._known.get(each) or self._new(each) for each in listed}
        for each, model in self._known.items():
            model.price = listed[each].pricing.input / 1e6
            model.output_price = listed[each].pricing.output / 1e6
            model.attributes = listed[each].attributes
            model.metrics_url = listed[each].metrics_url
            model.groups = frozenset(group.name for group in document.groups if group.name and each in group.models)
        return left_out

    def _new(self, name: str) -> Model:
        window = TtftWindow(self._ttft) if self._ttft is not None else None
        cost_window = CostWindow(self._costs) if self._costs is not None else None
        return Model(name, window=window, cost_window=cost_window)

    @property
    def candidates(self) -> list[Model]:
        """All models."""
        return list(self._known.values())

    def counted(self, name: object) -> Model | None:
        """Return the model of a request that is to be counted, if requests are counted and it is one of ours."""
        return self._known.get(name) if self._counts and isinstance(name, str) else None


def _wrong(listed: ListedModel) -> str:
    if not listed.name:
        return "it has no name"
    cheap = listed.pricing.input < 0 or listed.pricing.output < 0
    return f"{listed.name}: a price is below 0" if cheap else ""


def _unknown(document: ModelsDocument, listed: Iterable[str]) -> list[str]:
    known = set(listed)
    return sorted({name for group in document.groups for name in group.models if name not in known})
