"""`pointsman sim fit`: from folders of runs to what is printed and written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.core.errors import UserError
from pointsman.sim.engine.stepmodel import StepModel
from pointsman.sim.fit import fit, presets, report
from pointsman.sim.fit.recordings import Recording, load
from pointsman.sim.fit.replays import replay
from pointsman.sim.fit.report import Comparison


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    runs: Sequence[Path]
    out: Path | None = None
    model: str | None = None
    as_json: bool = False
    plot: Path | None = None
    blocks: int | None = None
    held_out: bool = False


def run(asked: Asked) -> str:
    """Do what was asked and return what to print.

    Raises UserError naming what is wrong with a run, a model or a file.
    """
    recordings = [
        each for folder in asked.runs for each in load(folder, blocks=asked.blocks, name=_name(folder, asked))
    ]
    if asked.held_out:
        return _printed(dict(fit.judged(recordings)), as_json=asked.as_json)
    if asked.model is not None:
        return _judge(recordings, presets.load(asked.model), asked)
    found = fit.fit(recordings)
    open_ones = fit.unidentified(found)
    errors = _errors(recordings, found.model)
    text = report.document(recordings, found, errors=errors, unidentified=list(open_ones))
    if asked.out is not None:
        _write(asked.out, text)
    if asked.as_json:
        return _judge(recordings, found.model, asked)
    notes = "".join(f"{name} is not identified: record {what}\n" for name, what in open_ones.items())
    shown = "" if asked.out is not None else "\n" + text
    return report.coefficients(found) + notes + "\n" + _judge(recordings, found.model, asked) + shown


def _judge(recordings: Sequence[Recording], model: StepModel, asked: Asked) -> str:
    if asked.plot is not None:
        first = recordings[0]
        _write(asked.plot, report.plot(first.requests, replay(first, model).requests, title=first.name))
    return _printed(_errors(recordings, model), as_json=asked.as_json)


def _errors(recordings: Sequence[Recording], model: StepModel) -> dict[str, Comparison]:
    return {name: fit.errors(each, model) for name, each in fit.runs(recordings).items()}


def _name(folder: Path, asked: Asked) -> str:
    """Return what a run is called: its folder's last name, or all of it where another run has the same."""
    alike = sum(other.name == folder.name for other in asked.runs)
    return folder.name if alike == 1 and folder.name else str(folder)


def _printed(errors: dict[str, Comparison], *, as_json: bool) -> str:
    if not as_json:
        return "\n".join(f"{name}\n{report.show(rows)}" for name, rows in errors.items())
    shown = {name: _statistics(rows) for name, rows in errors.items()}
    return json.dumps(next(iter(shown.values())) if len(shown) == 1 else shown) + "\n"


def _statistics(rows: Comparison) -> dict[str, dict[str, float]]:
    found = report.as_percent(rows)
    return {metric: {name: v for name, v in values.items() if name != "each"} for metric, values in found.items()}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
