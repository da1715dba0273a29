"""The administrator's flags about LLMInferenceServices: the operator obeys them, `render` shows what it would do."""

from dataclasses import dataclass

from cyclopts import Parameter

from pointsman.core.errors import UserError
from pointsman.render.serving.settings import ServingSettings

_DEFAULT = ServingSettings()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """How LLMInferenceServices are served."""

    llm_config_namespace: str = _DEFAULT.system_namespace
    "LLMInferenceServices: the namespace with configs for all of them."
    llm_gateway: str = "/".join(_DEFAULT.gateway)
    "LLMInferenceServices: namespace/name of the Gateway of those that name none."
    llm_tls: bool = _DEFAULT.tls
    "LLMInferenceServices: let pickers serve TLS, with certificates that the operator makes and renews."
    llm_picker_image: str = _DEFAULT.picker_image
    "LLMInferenceServices: the image of pickers that name none."
    llm_gateway_image: str = _DEFAULT.gateway_image
    "LLMInferenceServices: the image with Envoy of gateways on clusters without the Gateway API."

    def to_settings(self) -> ServingSettings:
        """Return the settings; raises UserError for what cannot be read."""
        namespace, slash, name = self.llm_gateway.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise UserError(f"--llm-gateway {self.llm_gateway!r} is no Gateway: write namespace/name")
        return ServingSettings(
            system_namespace=self.llm_config_namespace,
            gateway=(namespace, name),
            tls=self.llm_tls,
            picker_image=self.llm_picker_image,
            gateway_image=self.llm_gateway_image,
        )
