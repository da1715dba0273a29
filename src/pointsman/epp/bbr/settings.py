"""The router's flags: those of the body-based router, and the few that the payload processor has besides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pointsman.core.durations import Duration
from pointsman.core.errors import UserError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BbrSettings:
    """Everything that `pointsman bbr` can be told."""

    grpc_port: int = 9004
    "Port of ext_proc."
    grpc_health_port: int = 9005
    "Port of gRPC health, in plaintext."
    metrics_port: int = 9090
    "Port of /metrics."
    host: str = "0.0.0.0"  # noqa: S104 - a pod serves on all addresses
    "Address to listen on."

    streaming: bool = False
    "What to take for Envoy's body mode where it does not say: FULL_DUPLEX_STREAMED, or else BUFFERED."
    plugin: tuple[str, ...] = ()
    "What to do, as type:name[:json]; may be repeated."
    config_file: Path | None = None
    "BodyBasedRoutingConfig or PayloadProcessorConfig file; not together with --plugin."
    config_text: str = ""
    "The same as text; wins over --config-file."

    secure_serving: bool = True
    "Serve ext_proc over TLS (ALPN h2), with a certificate of our own unless --cert-path names one."
    cert_path: Path | None = None
    "Folder with tls.crt and tls.key."
    metrics_endpoint_auth: bool = True
    "On a cluster: serve metrics only to tokens that the API server knows and lets read them."
    drain_timeout: Duration = 5.0
    "After SIGTERM: not ready at once, but serving for this long, or until every peer has left."
    body_timeout: Duration = 60.0
    "How long the part of a body that is looked at may take to arrive; after that it is answered with 408."

    # Taken because existing manifests set them; they change nothing here.
    enable_pprof: bool = True
    "Accepted, without effect."
    tracing: bool = True
    "Accepted, without effect."
    zap_log_level: str = ""
    "Accepted, without effect."
    zap_devel: bool = True
    "Accepted, without effect."
    zap_stacktrace_level: str = ""
    "Accepted, without effect."
    zap_time_encoding: str = ""
    "Accepted, without effect."

    verbosity: Annotated[int, Parameter(name=["--v", "-v"])] = 2
    "Log verbosity: 2 default, 3 verbose, 4 debug, 5 trace."
    zap_encoder: Literal["json", "console"] = "console"
    "Log format."

    def check(self) -> None:
        """Refuse what cannot work before anything is started."""
        ports = (self.grpc_port, self.grpc_health_port, self.metrics_port)
        for flag, port in zip(("--grpc-port", "--grpc-health-port", "--metrics-port"), ports, strict=True):
            if not 0 <= port <= 65_535:
                raise UserError(f"{flag} {port} is not a port: choose one from 1 to 65535 (0 lets the system choose)")
        used = [port for port in ports if port]
        if len(set(used)) < len(used):
            raise UserError("--grpc-port, --grpc-health-port and --metrics-port must differ: change one of them")
        if self.plugin and (self.config_file is not None or self.config_text):
            raise UserError("--plugin and a configuration exclude each other: give one")
