"""What a gateway is made of, in our words: the input of the Envoy renderer.

Two names travel between Envoy and the picker and must be spelled alike everywhere: the metadata namespace
`envoy.lb` and the keys of the endpoint picker protocol. They are defined here once.

Times are what a request may feel. A picker that hangs is noticed by HTTP/2 keepalive after at most
`keepalive_interval + keepalive_timeout`; one that is away by the health check after `health_interval`. Neither
limits how long an answer may take: language models stream for minutes.
"""

from dataclasses import dataclass, field
from typing import Literal

from pointsman.render.envoy.addresses import Address
from pointsman.render.envoy.limits import GatewayLimits
from pointsman.render.envoy.paths import INFERENCE

FailureMode = Literal["FailClose", "FailOpen"]
Algorithm = Literal["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM"]

NAMESPACE = "envoy.lb"
DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
EXTERNAL_PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"


@dataclass(frozen=True)
class FilePool:
    """Model servers from a file that Envoy watches; the pick is one of them, and the list of picks is walked."""

    path: str


@dataclass(frozen=True, kw_only=True)
class ServicePool:
    """Model servers behind a headless Service.

    Cluster DNS learns of a new Pod seconds after the picker did, so a pick is obeyed as the address that it is, and the
    Service's addresses serve only when nobody picks.
    """

    service: Address
    algorithm: Algorithm = "ROUND_ROBIN"
    pending_requests: int | None = None
    requests_per_connection: int | None = None


@dataclass(frozen=True, kw_only=True)
class PickerPulse:
    """How soon a picker that is dead or hung is noticed, in seconds."""

    keepalive_interval: float = 1.0
    keepalive_timeout: float = 3.0
    health_interval: float = 1.0
    health_timeout: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """One Envoy in front of one pool of model servers."""

    listen: Address
    admin: Address
    pickers: tuple[Address, ...]
    """Who decides; with none, the pool's own policy does."""
    pool: FilePool | ServicePool
    ready: Address | None = None
    """Where `/ready` and the statistics are served when the admin is not for everyone."""
    picker_tls: bool = True
    picker_health_port: int | None = None
    """Where the pickers' gRPC health is, in plaintext, when it is not on their own port."""
    failure_mode: FailureMode = "FailClose"
    message_timeout: float = 10.0
    pulse: PickerPulse = field(default_factory=PickerPulse)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    """What clients may cost."""
    paths: tuple[str, ...] = INFERENCE
    """What may be asked for, each with everything below it; `/` is everything."""
    prefix: str = ""
    """Under which the same paths are served once more; model servers do not see it."""
    tls_pool: bool = False
    """Model servers speak TLS, with a certificate that nobody checks."""
    retries: int = 3
    retry_buffer_bytes: int = 16 << 20
    """Bodies up to this size can be sent again to the next endpoint; larger ones are tried once."""
