"""Plugins that other parts of the picker carry out: who reads bodies, who scrapes, who discovers.

Here are their names' parameters only, so that one loader checks a whole file. `kind` says who takes them up.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.detectors import Seconds


class BodyParser:
    """A reader of request bodies; its type says of which API."""

    kind: ClassVar[str] = "parser"


class HttpSourceParameters(Parameters):
    """What the sources that ask model servers take."""

    scheme: Literal["http", "https"] = "http"
    path: str = ""
    port: int = Field(default=0, ge=0, le=65_535, description="0: the port that serves requests.")
    insecure_skip_verify: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    interval: Annotated[Seconds, Field(ge=0)] = 0.0


class MetricsSourceParameters(HttpSourceParameters):
    """What `metrics-data-source` takes."""

    path: str = "/metrics"


class MetricsSource:
    """Scrapes model servers."""

    kind: ClassVar[str] = "source"

    def __init__(self, parameters: MetricsSourceParameters) -> None:
        self.parameters = parameters


class ModelsSourceParameters(HttpSourceParameters):
    """What `models-data-source` takes."""

    path: str = "/v1/models"


class ModelsSource:
    """Asks model servers for their models."""

    kind: ClassVar[str] = "source"

    def __init__(self, parameters: ModelsSourceParameters) -> None:
        self.parameters = parameters


class CustomMetric(Parameters):
    """A metric that becomes an endpoint's attribute."""

    attribute_key: str
    metric_spec: str


class EngineMetricNames(Parameters):
    """The names of an engine's metrics, as `name` or `name{label=value,…}`."""

    name: str
    queued_requests_spec: str = ""
    running_requests_spec: str = ""
    kv_usage_spec: str = ""
    lora_spec: str = ""
    cache_info_spec: str = ""
    cache_block_size_label_name: str = ""
    cache_num_blocks_label_name: str = ""
    cache_block_size_spec: str = ""
    cache_num_blocks_spec: str = ""
    custom_metrics: tuple[CustomMetric, ...] = ()


class CoreMetricsParameters(Parameters):
    """What `core-metrics-extractor` takes."""

    engine_label_key: str = "llm-d.ai/engine-type"
    default_engine: str = "vllm"
    engine_configs: tuple[EngineMetricNames, ...] = ()

    @field_validator("engine_configs")
    @classmethod
    def _each_once(cls, value: tuple[EngineMetricNames, ...]) -> tuple[EngineMetricNames, ...]:
        names = [config.name for config in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the engine {twice!r} is there twice: remove one")
        return value


class CoreMetricsExtractor:
    """Reads load, adapters and cache configuration from a scrape."""

    kind: ClassVar[str] = "extractor"

    def __init__(self, parameters: CoreMetricsParameters) -> None:
        self.parameters = parameters


class ModelsExtractor:
    """Reads the list of models."""

    kind: ClassVar[str] = "extractor"


class DcgmSourceParameters(HttpSourceParameters):
    """What `dcgm-data-source` takes."""

    path: str = "/metrics"
    port: int = Field(default=9400, ge=0, le=65_535, description="0: the port that serves requests.")
    use_node_address: bool = Field(default=False, description="Ask the Pod's node (a DaemonSet), not the Pod.")


class DcgmSource:
    """Asks NVIDIA's DCGM exporter, beside the model server or on its node."""

    kind: ClassVar[str] = "source"

    def __init__(self, parameters: DcgmSourceParameters) -> None:
        self.parameters = parameters


class DcgmExtractor:
    """Reads how busy an endpoint's GPUs are, as its attribute `GPUUtilization`."""

    kind: ClassVar[str] = "extractor"


class FileDiscoveryParameters(Parameters):
    """What `file-discovery` takes."""

    path: str = Field(min_length=1)
    watch_file: bool = False


class FileDiscovery:
    """Reads endpoints from a file."""

    kind: ClassVar[str] = "discovery"

    def __init__(self, parameters: FileDiscoveryParameters) -> None:
        self.parameters = parameters


class NotificationSource:
    """Tells plugins of endpoints that come and go; here everybody who wants to know is told anyway."""

    kind: ClassVar[str] = "source"


class ClusterNotificationParameters(Parameters):
    """What `k8s-notification-source` takes: the kind of resource to watch."""

    group: str = ""
    version: str = ""
    kind: str = ""


class ClusterNotificationSource:
    """Watches a kind of resource for extractors of one's own; nothing of ours needs more than is watched anyway."""

    kind: ClassVar[str] = "source"

    def __init__(self, parameters: ClusterNotificationParameters) -> None:
        self.parameters = parameters
