"""Simulators in place of model servers, for machines without accelerators. Pure.

Everything else of a Pod template was for the model server: its image, command, devices, volumes and sidecars go. What
is replaced is told, container by container.
"""

from typing import Any

from pointsman.api.llminferenceservice import LLMInferenceService, LLMSpec, Workload
from pointsman.api.simulator import SimulatorSpec
from pointsman.render.manifests import objects
from pointsman.render.manifests.facts import Facts
from pointsman.render.serving import parts
from pointsman.render.serving.names import ServiceNames
from pointsman.render.serving.presets import MAIN, PORT

Object = dict[str, Any]
IMAGE: str = SimulatorSpec.model_fields["image"].default
_GRACE = 60


def simulated(
    resource: LLMInferenceService, spec: LLMSpec, *, names: ServiceNames, facts: Facts
) -> tuple[LLMSpec, list[str]]:
    """Return the spec with simulators, and what is replaced by what: images do not run here."""
    pod = simulator_pod(resource.model_name, facts=facts)
    told = [_told(spec, name=names.workload, model=resource.model_name)]
    changed: dict[str, Any] = {"template": pod}
    if spec.prefill is not None:
        told.append(_told(spec.prefill, name=names.prefill, model=resource.model_name))
        changed["prefill"] = spec.prefill.model_copy(update={"template": pod})
    if spec.router and spec.router.scheduler:
        main = parts.main_container(spec.router.scheduler.template or {}, MAIN) or {"name": MAIN}
        image = main.get("image", "its image")
        told.append(f"Deployment {names.picker}: {image} is replaced by the picker of this installation")
        rest = {
            name: value for name, value in (spec.router.scheduler.template or {}).items() if name != "initContainers"
        }
        alone = {**rest, "containers": [main]}
        scheduler = spec.router.scheduler.model_copy(update={"template": alone})
        changed["router"] = spec.router.model_copy(update={"scheduler": scheduler})
    return spec.model_copy(update=changed), told


def simulator_pod(model: str, *, facts: Facts) -> Object:
    """Return the template of a Pod that simulates a server of this model."""
    container = {
        "name": MAIN,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--model", model, "--mode", "random", "--port", str(PORT)],
        "env": [*objects.identity(), {"name": "POINTSMAN_COMMAND", "value": "sim"}],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": objects.http_probe("/health", PORT, periodSeconds=1, timeoutSeconds=2, failureThreshold=60),
        "readinessProbe": objects.http_probe("/health", PORT, periodSeconds=2, timeoutSeconds=2, failureThreshold=2),
    }
    return objects.pod(container, facts=facts, grace=_GRACE)


def _told(workload: Workload, *, name: str, model: str) -> str:
    main = parts.main_container(workload.template or {}, MAIN) or {}
    return f"Deployment {name}: {main.get('image', 'its image')} is replaced by simulators of the model {model}"
