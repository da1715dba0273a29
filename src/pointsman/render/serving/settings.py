"""What the administrator of an operator has decided about LLMInferenceServices, whichever service it is."""

from dataclasses import dataclass

from pointsman.api.simulator import PickerConfig
from pointsman.render.manifests.proxy import IMAGES


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """The decisions; the defaults are those of an operator without flags."""

    system_namespace: str = "kserve"
    """Where configs are looked for that a service's own namespace does not have."""
    config_prefix: str = "kserve-"
    """What the names of well-known configs begin with."""
    gateway: tuple[str, str] = ("kserve", "kserve-ingress-gateway")
    """Namespace and name of the Gateway of services that name none."""
    tls: bool = True
    """Whether pickers serve TLS, with a certificate of ours."""
    picker_image: str = PickerConfig.model_fields["image"].default
    model_image: str = "ghcr.io/llm-d/llm-d-cuda:v0.4.0"
    sidecar_image: str = "ghcr.io/llm-d/llm-d-routing-sidecar:v0.4.0"
    gateway_image: str = IMAGES["standard"]
