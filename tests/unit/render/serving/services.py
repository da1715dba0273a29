"""LLMInferenceServices for the tests of rendering, each on such a cluster; `golden/` has what each becomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pointsman.api import parse_service
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy
from pointsman.render.serving.service import LLMStack, ServingCluster, llm_stack
from pointsman.render.serving.settings import ServingSettings

BARE = Facts()
MESH = Facts(inference_pool=True, gateway_api=True, istio=True, gateway_classes=frozenset({"istio"}))
ALL: dict[str, Any] = {"route": {}, "gateway": {}, "scheduler": {}}
MODEL: dict[str, Any] = {"uri": "hf://microsoft/Phi-3-mini-4k-instruct", "name": "microsoft/phi-3"}


def document(name: str = "phi3", /, *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a service in the namespace `models`."""
    metadata: dict[str, Any] = {"name": name, "namespace": "models"}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": metadata,
        "spec": spec,
    }


def rendered(
    written: Mapping[str, Any], facts: Facts = BARE, *, configs: Mapping[str, Any] | None = None, **more: Any
) -> LLMStack:
    """Return a service on a cluster."""
    resource = parse_service(written, source="a test")
    return llm_stack(resource, written, ServingCluster(facts=facts, **more), configs=configs or {})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A service, and the cluster it is for."""

    name: str
    written: Mapping[str, Any]
    facts: Facts = MESH
    settings: ServingSettings = field(default_factory=ServingSettings)
    policy: Policy = field(default_factory=Policy)
    simulate: bool = False
    configs: Mapping[str, Any] = field(default_factory=dict)

    def render(self) -> LLMStack:
        return rendered(
            self.written,
            self.facts,
            configs=self.configs,
            settings=self.settings,
            policy=self.policy,
            simulate=self.simulate,
        )


REQUIREMENT = {
    "apiVersion": "serving.kserve.io/v1alpha1",
    "kind": "LLMInferenceService",
    "metadata": {"name": "phi3-gpu-alpn-test", "namespace": "rhaii-inference"},
    "spec": {"replicas": 3, "router": ALL},
}
CUSTOM = "gcr.io/ecoeng-llmd/llm-d-inference-scheduler:alpn-fix"

CASES = [
    Case(name="requirement", written=REQUIREMENT),
    Case(name="requirement-without-gateway-api", written=REQUIREMENT, facts=BARE),
    Case(name="single-node", written=document(model=MODEL, replicas=2, router=ALL)),
    Case(
        name="single-node-without-tls", written=document(model=MODEL, router=ALL), settings=ServingSettings(tls=False)
    ),
    Case(
        name="prefill-decode",
        written=document(
            model=MODEL,
            replicas=2,
            prefill={"replicas": 1, "parallelism": {"tensor": 2}},
            parallelism={"tensor": 4},
            router=ALL,
        ),
    ),
    Case(
        name="custom-scheduler-image",
        written=document(model=MODEL, router=ALL | {"scheduler": {"image": CUSTOM}}),
        policy=Policy(trusted_images=("gcr.io/ecoeng-llmd/",)),
    ),
    Case(name="two-schedulers", written=document(model=MODEL, router=ALL | {"scheduler": {"replicas": 2}})),
    Case(name="no-scheduler", written=document(model=MODEL, router={"route": {}, "gateway": {}})),
    Case(
        name="issuer-named",
        written=document(annotations={"cert-manager.io/cluster-issuer": "mine"}, model=MODEL, router={"scheduler": {}}),
        facts=Facts(cert_manager=True),
    ),
    Case(name="simulated", written=document(model=MODEL, prefill={}, router=ALL), facts=BARE, simulate=True),
    Case(
        name="servers-speak-tls",
        written=document(
            model=MODEL,
            router=ALL,
            template={"containers": [{"name": "main", "args": ["--ssl-certfile", "/var/run/kserve/tls/tls.crt"]}]},
        ),
        facts=Facts(istio=True),
    ),
]
