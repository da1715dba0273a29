"""Step models by name: those that are shipped, and files."""

from importlib.resources import files
from pathlib import Path

from pointsman.core.documents import parse_yaml, read_yaml
from pointsman.core.errors import UserError
from pointsman.sim.engine.stepmodel import StepModel, step_model

DEFAULT = "rtxpro6000-llama-3.1-8b"


def load(name: str) -> StepModel:
    """Return the shipped model of that name, or the one in that file.

    Raises UserError when there is neither, or the file is not one.
    """
    folder = files("pointsman.sim") / "models"
    shipped = sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml"))
    if name in shipped:
        return step_model(parse_yaml((folder / f"{name}.yaml").read_bytes(), name=name), name=name)
    if not Path(name).exists():
        raise UserError(f"--latency-model {name} is no file and not shipped: choose from {', '.join(shipped)}")
    return step_model(read_yaml(Path(name)), name=name)
