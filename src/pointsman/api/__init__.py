"""Custom resources as people write them: models with defaults, limits and a description for every field.

The definitions that a cluster stores are generated from these models (`crd`), so the two cannot differ.
"""

from pointsman.api.read import parse, read
from pointsman.api.simulator import SIMULATOR_DEPLOYMENT, SimulatorDeployment

__all__ = ["SIMULATOR_DEPLOYMENT", "SimulatorDeployment", "parse", "read"]
