"""LLMInferenceService and LLMInferenceServiceConfig: KServe's resources, as far as we act on them.

The group is KServe's, and so are the names and limits of every field that both of us have: a test compares the
generated definitions with those of KServe's releases. Fields that only KServe has (`worker`, `scaling`, `lora`, …) and
fields that nobody has are kept by the API server and named in a condition (`unacted`): a resource moves between the two
controllers without losing anything, and nothing is ignored in silence.

There are two versions without a conversion between them. They differ in the pool's inline spec alone, which is read in
both spellings (`render.serving.pools`), and in v1alpha1's `criticality`. `router.scheduler.image` is ours: documents of
2025 have it, KServe never had.

Pod templates are opaque here: the API server checks them when it gets the Deployment.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from pointsman.api.base import Block, Count, Image, Rule, Switch, without_nulls
from pointsman.api.published import NamespaceName, ObjectName
from pointsman.api.simulator import Metadata
from pointsman.core.kinds import Kind

GROUP = "serving.kserve.io"
SERVICE = Kind(GROUP, "v1alpha2", "LLMInferenceService", "llminferenceservices")
CONFIG = Kind(GROUP, "v1alpha2", "LLMInferenceServiceConfig", "llminferenceserviceconfigs")
VERSIONS = ("v1alpha1", "v1alpha2")
STOP = "serving.kserve.io/stop"
"""The annotation that takes everything of a service away, but the service."""
ISSUERS = {"cert-manager.io/issuer": "Issuer", "cert-manager.io/cluster-issuer": "ClusterIssuer"}
"""The annotations that name who issues a service's certificate, as cert-manager itself reads them on an Ingress."""

_OPAQUE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
Opaque = Annotated[dict[str, Any], BeforeValidator(without_nulls), WithJsonSchema(_OPAQUE)]
Strings = Annotated[dict[str, str], BeforeValidator(without_nulls)]
AtLeastOne = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
PortOf = Annotated[int, Field(strict=True, ge=1, le=65_535)]
AnyCount = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)]


class Kept(Block):
    """A block whose unknown fields are kept."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        """Return the schema: the API server keeps what it does not know."""
        schema = super().__get_pydantic_json_schema__(core, handler)
        schema.pop("additionalProperties", None)
        return schema | {"x-kubernetes-preserve-unknown-fields": True}


class NameRef(Kept):
    """An object of the same namespace."""

    name: str = Field(default="", description="Its name.")


class GatewayRef(Kept):
    """A Gateway."""

    name: ObjectName = Field(default="", validate_default=False, description="Its name.")
    namespace: NamespaceName | None = Field(default=None, description="Its namespace; the service's when left out.")
    section_name: ObjectName | None = Field(default=None, description="One of its listeners; all when left out.")


class ModelSpec(Kept):
    """The model."""

    uri: str = Field(description="Where the model is: hf://organisation/name, or pvc://claim/path.")
    name: str | None = Field(default=None, description="What requests call it; the service's name when left out.")


class Parallelism(Kept):
    """How one model server is spread over devices; passed on as vLLM's flags."""

    RULES = (
        Rule(
            field="dataLocal",
            says="and data go together: set both or neither",
            cel="has(self.data) == has(self.dataLocal)",
            holds=lambda self: (self.data is None) == (self.data_local is None),
        ),
        Rule(
            field="pipeline",
            says="and data exclude each other: set one of them",
            cel="!has(self.pipeline) || !has(self.data)",
            holds=lambda self: self.pipeline is None or self.data is None,
        ),
    )

    tensor: AtLeastOne | None = Field(default=None, description="--tensor-parallel-size.")
    pipeline: AtLeastOne | None = Field(default=None, description="--pipeline-parallel-size.")
    data: AtLeastOne | None = Field(default=None, description="--data-parallel-size.")
    data_local: AtLeastOne | None = Field(default=None, description="--data-parallel-size-local.")
    data_rpc_port: PortOf | None = Field(default=None, alias="dataRPCPort", description="--data-parallel-rpc-port.")
    expert: Switch | None = Field(default=None, description="--enable-expert-parallel.")


class Workload(Kept):
    """Model servers that are alike."""

    replicas: Count | None = Field(default=None, description="How many; 1 when left out, or as somebody scaled them.")
    parallelism: Parallelism | None = Field(default=None, description="How one is spread over devices.")
    labels: Strings | None = Field(default=None, description="Labels for the Pods.")
    annotations: Strings | None = Field(default=None, description="Annotations for the Pods.")
    template: Opaque | None = Field(
        default=None, description="PodSpec, merged over the preset; the model server is the container main."
    )


class HttpRoute(Kept):
    """The HTTPRoute: ours, or somebody's."""

    RULES = (
        Rule(
            field="refs",
            says="and spec exclude each other: name routes, or say what ours is",
            cel="!has(self.refs) || self.refs.size() == 0 || !has(self.spec)",
            holds=lambda self: not self.refs or self.spec is None,
        ),
    )

    refs: Annotated[tuple[NameRef, ...], Field(max_length=16)] | None = Field(
        default=None, description="Routes of this namespace that lead here; none is made then."
    )
    spec: Opaque | None = Field(default=None, description="Spec of the HTTPRoute, merged over the preset.")


class Route(Kept):
    """How requests find the service."""

    http: HttpRoute | None = Field(default=None, description="The HTTPRoute.")


class GatewaySpec(Kept):
    """Through which gateways."""

    refs: Annotated[tuple[GatewayRef, ...], Field(max_length=16)] | None = Field(
        default=None, description="Gateways; the default one when left out."
    )


class ConfigRef(Kept):
    """A key of a ConfigMap."""

    name: str = Field(
        default="",
        description="Name of the ConfigMap, in the service's namespace; config-scheduler-… may be in the system's.",
    )
    key: str = Field(default="epp", description="The key that has the configuration.")


class SchedulerConfig(Kept):
    """The picker's EndpointPickerConfig."""

    RULES = (
        Rule(
            field="inline",
            says="and ref exclude each other, and one is needed: set one of them",
            cel="has(self.inline) != has(self.ref)",
            holds=lambda self: (self.inline is None) != (self.ref is None),
        ),
    )

    inline: Opaque | None = Field(default=None, description="The configuration itself.")
    ref: ConfigRef | None = Field(default=None, description="Where the configuration is.")


class PoolSpec(Kept):
    """The InferencePool: ours, or somebody's."""

    spec: Opaque | None = Field(default=None, description="Spec of the pool, merged over the preset.")
    ref: NameRef | None = Field(default=None, description="A pool of this namespace; no picker is made then.")


class Scheduler(Kept):
    """The endpoint picker; `{}` is a picker with all defaults."""

    RULES = (
        Rule(
            field="replicas",
            says="is less than one: leave router.scheduler out to have no picker",
            cel="!has(self.replicas) || self.replicas >= 1",
            holds=lambda self: self.replicas is None or self.replicas >= 1,
        ),
    )

    replicas: AnyCount | None = Field(default=None, description="How many; of several one leads (1 when left out).")
    image: Image | None = Field(
        default=None,
        description="Short for template.containers[main].image, which is KServe's spelling; KServe drops this field.",
    )
    labels: Strings | None = Field(default=None, description="Labels for the Pods; they go before ours.")
    annotations: Strings | None = Field(default=None, description="Annotations for the Pods.")
    template: Opaque | None = Field(
        default=None, description="PodSpec, merged over the preset; the picker is the container main."
    )
    config: SchedulerConfig | None = Field(
        default=None, description="EndpointPickerConfig; the preset's when left out."
    )
    pool: PoolSpec | None = Field(default=None, description="The InferencePool.")


class Router(Kept):
    """How requests come in."""

    route: Route | None = Field(default=None, description="The route; {} for the preset.")
    gateway: GatewaySpec | None = Field(default=None, description="The gateway; {} for the default one.")
    scheduler: Scheduler | None = Field(default=None, description="The endpoint picker; {} for the preset.")


class StorageInitializer(Kept):
    """Who brings the model."""

    enabled: Switch | None = Field(default=None, description="False: the template brings the model itself.")


class LLMSpec(Workload):
    """What to run."""

    model: ModelSpec | None = Field(default=None, description="The model.")
    storage_initializer: StorageInitializer | None = Field(default=None, description="Who brings the model.")
    prefill: Workload | None = Field(default=None, description="Model servers that compute prompts only.")
    router: Router | None = Field(default=None, description="How requests come in.")
    base_refs: Annotated[tuple[NameRef, ...], Field(max_length=32)] | None = Field(
        default=None, description="LLMInferenceServiceConfigs to begin with; later ones win."
    )


class KnativeCondition(Block):
    """One finding."""

    type: str = Field(description="What the finding is about.")
    status: str = Field(description="Whether it holds: True, False or Unknown.")
    severity: str | None = Field(default=None, description="Info for what keeps nothing from serving.")
    reason: str | None = Field(default=None, description="Why, in one word.")
    message: str | None = Field(default=None, description="Why, in a sentence, with what to do about it.")
    last_transition_time: str | None = Field(default=None, description="When the status last changed.")
    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = Field(
        default=None, description="The generation that was looked at."
    )


class ServiceAddress(Kept):
    """One way in."""

    name: str | None = Field(default=None, description="Whether it is for the cluster or for everybody.")
    url: str | None = Field(default=None, description="Where to send requests; /v1/… comes after it.")


class LLMStatus(Kept):
    """What runs."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = Field(
        default=None, description="The generation that was looked at."
    )
    url: str | None = Field(default=None, description="Where to send requests; /v1/… comes after it.")
    addresses: tuple[ServiceAddress, ...] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-list-type": "atomic"}, description="All ways in."
    )
    conditions: tuple[KnativeCondition, ...] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Findings, one per part.",
    )


class LLMMetadata(Metadata):
    """What of the object's metadata concerns us."""

    labels: Strings = Field(default_factory=dict, description="Labels.")
    annotations: Strings = Field(default_factory=dict, description="Annotations.")


class LLMInferenceService(Block):
    """A model, its servers, and optionally a picker and a route in front of them."""

    api_version: Literal["serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2"] = Field(
        description="Group and version."
    )
    kind: Literal["LLMInferenceService"] = Field(description="Kind of the resource.")
    metadata: LLMMetadata = Field(description="Name and namespace.")
    spec: LLMSpec = Field(default_factory=LLMSpec, description="What to run.")
    status: dict[str, Any] | None = Field(default=None, description="What runs; written by the operator.")

    @property
    def stopped(self) -> bool:
        """Whether everything but the service itself is to go."""
        return self.metadata.annotations.get(STOP, "").lower() == "true"

    @property
    def model_name(self) -> str:
        """What requests call the model."""
        return (self.spec.model and self.spec.model.name) or self.metadata.name


def unacted(block: Block, *, path: str) -> Iterable[str]:
    """Yield the fields that are kept and not acted on, by their paths."""
    yield from (f"{path}.{name}" for name in block.model_extra or {})
    for name, field in type(block).model_fields.items():
        value = getattr(block, name)
        here = f"{path}.{field.alias or to_camel(name)}"
        if isinstance(value, Kept):
            yield from unacted(value, path=here)
        elif isinstance(value, tuple):
            for at, each in enumerate(value):
                if isinstance(each, Kept):
                    yield from unacted(each, path=f"{here}[{at}]")
