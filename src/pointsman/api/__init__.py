"""Custom resources as people write them: models with defaults, limits and a description for every field.

The definitions that a cluster stores are generated from these models (`crd`), so the two cannot differ.
"""

from pointsman.api.llminferenceservice import LLMInferenceService
from pointsman.api.read import parse, parse_any, parse_install, parse_service, read
from pointsman.api.scheduler import SCHEDULER_INSTALL, SchedulerInstall
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment

__all__ = [
    "SCHEDULER_INSTALL",
    "SIMULATOR_DEPLOYMENT",
    "LLMInferenceService",
    "SchedulerInstall",
    "SimulatorDeployment",
    "parse",
    "parse_any",
    "parse_install",
    "parse_service",
    "read",
]
