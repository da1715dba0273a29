"""The picker's flags: names, defaults and syntax of the Go picker, so that an existing command line works unchanged.

One frozen dataclass that the command line fills and the server reads. What differs from the Go picker says so in its
help: health is served on the ext_proc port too unless switched off (Envoy's health check needs it there, and without it
all traffic bypasses the picker silently when failing open).
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pointsman.core.durations import Duration
from pointsman.core.errors import UserError
from pointsman.core.numbers import SAFE, whole

# Flags that named a metric, with the name that vLLM has for it, which is read anyway.
REPLACED = {
    "total_queued_requests_metric": "vllm:num_requests_waiting",
    "total_running_requests_metric": "vllm:num_requests_running",
    "kv_cache_usage_percentage_metric": "vllm:kv_cache_usage_perc",
    "lora_info_metric": "vllm:lora_requests_info",
    "cache_info_metric": "vllm:cache_config_info",
}
_POOL_GROUPS = ("inference.networking.k8s.io", "inference.networking.x-k8s.io")
_QUANTITIES = {"": 1, "k": 1000, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that `pointsman epp` can be told."""

    grpc_port: int = 9002
    "Port of ext_proc."
    grpc_health_port: int = 9003
    "Port of gRPC health, in plaintext."
    metrics_port: int = 9090
    "Port of /metrics and /debug."
    host: str = "0.0.0.0"  # noqa: S104 - a pod serves on all addresses; the local stack says 127.0.0.1
    "Address to listen on."

    endpoints_file: Path | None = None
    "YAML file with the endpoints, watched (file discovery without a configuration file)."
    config_file: Path | None = None
    "EndpointPickerConfig file."
    config_text: str = ""
    "EndpointPickerConfig as text; not together with --config-file."
    allow_experimental_plugins: bool = False
    "Allow plugins that llm-d calls alpha."
    pool_name: str = ""
    "InferencePool to serve (Kubernetes discovery)."
    pool_namespace: str = ""
    "Its namespace; else $NAMESPACE, else default."
    pool_group: str = "inference.networking.k8s.io"
    "Its API group; inference.networking.x-k8s.io for a pool of v1alpha2."
    pool_grace_period: Duration = 60.0
    "How long a pool that was deleted, or whose definition was, is still served."
    endpoint_selector: str = ""
    "Label selector of model-server pods (Kubernetes discovery without a pool)."
    endpoint_target_ports: str = ""
    "Their ports, with commas between: one endpoint each."
    ha_enable_leader_election: bool = False
    "Of several replicas only one is ready; the others follow the cluster and wait."

    secure_serving: bool = True
    "Serve ext_proc over TLS (ALPN h2)."
    cert_path: Path | None = None
    "Folder with tls.crt and tls.key; without it a self-signed certificate is made."
    enable_cert_reload: bool = False
    "Take new certificates from --cert-path into use when they change."
    tls_min_version: str = "VersionTLS12"
    "VersionTLS10 … VersionTLS13."
    tls_cipher_suites: str = ""
    "Go's names of TLS 1.2 suites, with commas between."
    health_checking: bool = True
    "Serve gRPC health on the ext_proc port too (the Go picker's default is false)."

    drain_timeout: Duration = 30.0
    "After SIGTERM: not ready at once, but serving for this long, or until every peer has left."
    grpc_max_recv_msg_size: str = ""
    "Largest ext_proc message, as a quantity such as 10MiB (default 4MiB)."
    max_body: str = "64MiB"
    "Largest request body; more is answered with 413."
    body_timeout: Duration = 60.0
    "How long a request's body may take to arrive; one that is not complete by then is answered with 408."
    max_held_bytes: str = "384MiB"
    "Bytes of bodies and unsent answers that are held for all peers together; beyond it the largest gets 429."

    disable_endpoint_subset_filter: bool = False
    "Ignore the proxy's subset hint."

    emit_endpoint_scores: bool = False
    "Tell Envoy every candidate's score, in the metadata x-gateway-destination-endpoint-scores."

    explain: bool = False
    "Keep every plugin's part in each of the last 1000 decisions, for /debug/decisions (a little slower)."
    explain_on_demand: bool = False
    "The same for requests with the header x-pointsman-explain: 1 only."
    record: Path | None = None
    "Append every decision to this file as JSON, for `pointsman replay`; rotated at 256 MiB, four old ones are kept."

    refresh_metrics_interval: Duration = 0.05
    "How often each endpoint's metrics are read; 50ms is the least."
    model_server_metrics_scheme: Literal["http", "https"] = "http"
    "How model servers are asked where the configuration's data source says no scheme."
    model_server_metrics_https_insecure_skip_verify: bool = True
    "With https: take any certificate."
    metrics_staleness_threshold: Duration = 2.0
    "The age at which an endpoint's metrics count nothing any more and our own counts take their place."

    metrics_endpoint_auth: bool = True
    "On a cluster: serve metrics only to tokens that the API server knows and lets read them."
    metrics_cert_dir: Path | None = None
    "Folder with tls.crt and tls.key for the metrics port; without it that port is plaintext."
    metrics_client_ca_file: Path | None = None
    "Serve metrics only to clients with a certificate of this authority."

    enable_grpc_stream_metrics: bool = False
    "Count ext_proc streams by status, and time our work on requests and responses (costs a little per message)."
    tracing: bool = True
    "Send spans to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, if it names one."

    # Taken because existing manifests set them; `without_effect` names those that were set in vain.
    grpc_max_send_msg_size: str = ""
    "Accepted, without effect."
    refresh_prometheus_metrics_interval: Duration = 5.0
    "Accepted, without effect: gauges are computed when they are scraped."
    enable_pprof: bool = True
    "Accepted, without effect."
    zap_log_level: str = ""
    "Accepted, without effect: -v sets the log level."
    zap_devel: bool = True
    "Accepted, without effect."
    zap_stacktrace_level: str = ""
    "Accepted, without effect."
    zap_time_encoding: str = ""
    "Accepted, without effect."

    # Refused when set to another name than vLLM's own, which KServe's manifests say: metric names belong to engines.
    total_queued_requests_metric: str = ""
    "Accepted with vLLM's own name; others belong in engineConfigs of the configuration."
    total_running_requests_metric: str = ""
    "Accepted with vLLM's own name; others belong in engineConfigs of the configuration."
    kv_cache_usage_percentage_metric: str = ""
    "Accepted with vLLM's own name; others belong in engineConfigs of the configuration."
    lora_info_metric: str = ""
    "Accepted with vLLM's own name; others belong in engineConfigs of the configuration."
    cache_info_metric: str = ""
    "Accepted with vLLM's own name; others belong in engineConfigs of the configuration."

    verbosity: Annotated[int, Parameter(name=["--v", "-v"])] = 2
    "Log verbosity: 2 default, 3 verbose, 4 debug, 5 trace."
    zap_encoder: Literal["json", "console"] = "console"
    "Log format."

    def check(self) -> None:
        """Refuse what cannot work before anything is started."""
        self._check_ports()
        self._check_certificates()
        for name, read_anyway in REPLACED.items():
            if getattr(self, name) not in {"", read_anyway}:
                raise UserError(
                    f"--{name.replace('_', '-')} is gone: name the metric in engineConfigs of core-metrics-extractor, "
                    "in the file that --config-file names"
                )
        if self.held_bytes < 1 << 20:
            raise UserError(f"--max-held-bytes {self.max_held_bytes} is too little to serve anyone: give 1MiB or more")
        if self.body_timeout <= 0:
            raise UserError("--body-timeout must be longer than nothing: write a duration such as 60s")
        if self.config_file and self.config_text:
            raise UserError("--config-file and --config-text exclude each other: give one")
        self._check_discovery()

    def _check_ports(self) -> None:
        ports = {"--grpc-port": self.grpc_port, "--grpc-health-port": self.grpc_health_port}
        for flag, port in (*ports.items(), ("--metrics-port", self.metrics_port)):
            if not 0 <= port <= 65_535:
                raise UserError(f"{flag} {port} is not a port: choose one from 1 to 65535 (0 lets the system choose)")
        used = [port for port in (self.grpc_port, self.grpc_health_port, self.metrics_port) if port]
        if len(set(used)) < len(used):
            raise UserError("--grpc-port, --grpc-health-port and --metrics-port must differ: change one of them")

    def _check_certificates(self) -> None:
        if self.enable_cert_reload and self.cert_path is None:
            raise UserError("--enable-cert-reload watches --cert-path: name that folder too")
        if self.metrics_client_ca_file is not None and self.metrics_cert_dir is None:
            raise UserError("--metrics-client-ca-file needs TLS on the metrics port: name --metrics-cert-dir too")
        open_to_all = self.metrics_client_ca_file is None and not self.metrics_endpoint_auth
        if self.metrics_cert_dir is not None and open_to_all:
            raise UserError(
                "--metrics-cert-dir without knowing who asks: name --metrics-client-ca-file, or leave "
                "--metrics-endpoint-auth on"
            )

    def _check_discovery(self) -> None:
        if self.pool_name and self.endpoint_selector:
            raise UserError("--pool-name and --endpoint-selector exclude each other: give one")
        if self.pool_group not in _POOL_GROUPS:
            raise UserError(f"--pool-group {self.pool_group!r} is unknown: use one of {', '.join(_POOL_GROUPS)}")
        if self.endpoint_selector and not self.target_ports:
            raise UserError("--endpoint-selector needs --endpoint-target-ports: name the ports of the model servers")
        if self.in_cluster and self.endpoints_file is not None:
            raise UserError("--endpoints-file and discovery in a cluster exclude each other: give one")
        if self.ha_enable_leader_election and not self.in_cluster:
            raise UserError("--ha-enable-leader-election needs a cluster: name --pool-name or --endpoint-selector")

    @property
    def in_cluster(self) -> bool:
        """Whether endpoints come from Kubernetes."""
        return bool(self.pool_name or self.endpoint_selector)

    @property
    def target_ports(self) -> tuple[int, ...]:
        """The ports of `--endpoint-target-ports`, each once.

        Raises UserError when one is not a port, or there are too many.
        """
        words = [word.strip() for word in self.endpoint_target_ports.strip("[]").split(",") if word.strip()]
        ports = tuple(dict.fromkeys(port for word in words if (port := whole(word, most=65_535))))
        if len(ports) != len(set(words)) or len(ports) > 8:
            raise UserError(
                f"--endpoint-target-ports {self.endpoint_target_ports!r}: write one to eight ports from 1 to 65535, "
                "with commas between"
            )
        return ports

    def without_effect(self) -> list[str]:
        """Return the flags that were set to something and change nothing in this version."""
        names = [field.name for field in fields(self)]
        inert = names[names.index("grpc_max_send_msg_size") : names.index("total_queued_requests_metric")]
        defaults = Settings()
        changed = [name for name in inert if getattr(self, name) != getattr(defaults, name)]
        return [f"--{name.replace('_', '-')}" for name in changed]

    @property
    def message_bytes(self) -> int:
        """The largest ext_proc message in bytes."""
        text = self.grpc_max_recv_msg_size
        return parse_quantity(text, flag="--grpc-max-recv-msg-size") if text else 4 << 20

    @property
    def body_bytes(self) -> int:
        """The largest request body in bytes."""
        return parse_quantity(self.max_body, flag="--max-body")

    @property
    def held_bytes(self) -> int:
        """The bytes that may be held for all peers together."""
        return parse_quantity(self.max_held_bytes, flag="--max-held-bytes")


def parse_quantity(text: str, *, flag: str) -> int:
    """Return the bytes of `4MiB`, `10MB`, `64Ki`, `1000`.

    Raises UserError naming the flag.
    """
    digits = text.strip().removesuffix("B").rstrip("iKkMG")
    unit = text.strip().removesuffix("B")[len(digits) :].replace("K", "k" if "i" not in text else "K")
    number = whole(digits, most=SAFE)
    if not number or unit not in _QUANTITIES:
        raise UserError(f"{flag} {text!r} is not a size: write a number with a unit, such as 10MiB or 25MB")
    return number * _QUANTITIES[unit]
