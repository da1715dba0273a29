"""What a fit says: errors by metric, the coefficients with their uncertainty, and a plot.

Errors are (simulated - recorded) / recorded, of the mean and of percentiles; percentiles of both sides are taken apart,
so they say whether the distribution is right, and `each` says how far single requests are off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from statistics import fmean
from typing import Any

from pointsman.core.documents import to_yaml
from pointsman.sim.engine.stepmodel import COUNTS, SHARES, StepModel
from pointsman.sim.fit.recorded import Recorded
from pointsman.sim.fit.recordings import Recording
from pointsman.sim.fit.stepfit import StepFit

METRICS = ("ttft", "tpot", "e2e")
PERCENTILES = (50, 90, 99)
_WORDS = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "end to end"}


@dataclass(frozen=True, slots=True)
class Row:
    """How one metric compares: the recorded and our value of a statistic, and the relative error."""

    metric: str
    statistic: str
    recorded: float
    simulated: float

    @property
    def error(self) -> float:
        """(ours - recorded) / recorded."""
        return (self.simulated - self.recorded) / self.recorded if self.recorded else 0.0


Comparison = list[Row]


def compare(recorded: Sequence[Recorded], simulated: Sequence[Recorded]) -> Comparison:
    """Return the error table; `each` is the mean error per request, without its sign."""
    rows = []
    for metric in METRICS:
        pairs = [
            (getattr(a, metric), getattr(b, metric))
            for a, b in zip(recorded, simulated, strict=True)
            if getattr(a, metric)
        ]
        if not pairs:
            continue
        real, ours = sorted(a for a, _ in pairs), sorted(b for _, b in pairs)
        rows.append(Row(metric, "mean", fmean(real), fmean(ours)))
        rows += [Row(metric, f"p{p}", _at(real, p), _at(ours, p)) for p in PERCENTILES]
        rows.append(Row(metric, "each", 1.0, 1.0 + fmean(abs(b - a) / a for a, b in pairs)))
    return rows


def _at(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def show(rows: Comparison) -> str:
    """Return the table as text."""
    lines = [f"{'metric':<8}{'':<6}{'recorded s':>12}{'simulated s':>13}{'error':>9}"]
    for row in rows:
        if row.statistic == "each":
            lines.append(f"{row.metric:<8}{'mean error per request, without its sign':<31}{row.error:>9.2%}")
        else:
            values = f"{row.recorded:>12.4f}{row.simulated:>13.4f}{row.error:>+9.2%}"
            lines.append(f"{row.metric:<8}{row.statistic:<6}{values}")
    return "\n".join(lines) + "\n"


def as_percent(rows: Comparison) -> dict[str, dict[str, float]]:
    """Return the errors in percent, by metric and statistic."""
    errors: dict[str, dict[str, float]] = {}
    for row in rows:
        errors.setdefault(row.metric, {})[row.statistic] = round(100 * row.error, 2)
    return errors


def coefficients(found: StepFit) -> str:
    """Return the coefficients as text, each with its uncertainty."""
    lines = [f"{'coefficient':<22}{'µs':>12}{'± (standard error)':>22}"]
    for name in _timed():
        value, error = getattr(found.model, name) * 1e6, found.errors.get(name, 0.0) * 1e6
        sure = "not identified" if error == inf else f"{error:.3g}" if error else ""
        lines.append(f"{name:<22}{value:>12.6g}{sure:>22}")
    lines += [f"{name:<22}{getattr(found.model, name):>12.4g}" for name in (*COUNTS, *SHARES)]
    return "\n".join(lines) + "\n"


def _timed() -> list[str]:
    return [field.name for field in fields(StepModel) if field.name not in {*COUNTS, *SHARES}]


def document(
    recordings: Sequence[Recording], found: StepFit, *, errors: Mapping[str, Comparison], unidentified: Sequence[str]
) -> str:
    """Return the model as a YAML file: where it comes from, its coefficients, its errors by run."""
    first, model = recordings[0], found.model
    body: dict[str, Any] = {
        "fitted_from": list(dict.fromkeys(each.name for each in recordings)),
        "model": first.model,
        "requests": sum(len(each.requests) for each in recordings),
        "engine": {
            "max-num-seqs": first.engine.max_num_seqs,
            "max-num-batched-tokens": first.engine.max_num_batched_tokens,
            "async-scheduling": first.engine.pipelined,
        },
        "coefficients_us": {name: float(f"{getattr(model, name) * 1e6:.6g}") for name in _timed()},
        "standard_errors_us": {
            name: float(f"{error * 1e6:.2g}") for name, error in found.errors.items() if 0 < error < inf
        },
        "counts": {
            **{name: getattr(model, name) for name in COUNTS},
            **{name: round(getattr(model, name), 3) for name in SHARES},
        },
        "not_identified": list(unidentified),
        "errors_percent": {name: as_percent(rows) for name, rows in errors.items()},
    }
    if first.engine.blocks is not None:
        body["engine"]["num-gpu-blocks"] = first.engine.blocks
    head = "# Written by `pointsman sim fit`. Coefficients in microseconds; errors of replays of the runs.\n"
    return head + to_yaml(body)


def plot(recorded: Sequence[Recorded], simulated: Sequence[Recorded], *, title: str) -> str:
    """Return an SVG: for each metric the share of requests that is done by a time, recorded (grey) and ours (blue)."""
    width, height, gap = 300, 200, 40
    parts = []
    for number, metric in enumerate(METRICS):
        pairs = [
            sorted(x for x in (getattr(each, metric) for each in side) if x is not None)
            for side in (recorded, simulated)
        ]
        left, most = gap + number * (width + gap), max((side[-1] for side in pairs if side), default=1.0) or 1.0
        lines = "".join(
            f'<polyline fill="none" stroke="{colour}" points="{_curve(side, left, most, width, height)}"/>'
            for side, colour in zip(pairs, ("#888", "#06c"), strict=True)
        )
        parts.append(
            f'<rect x="{left}" y="{gap}" width="{width}" height="{height}" fill="none" stroke="#ccc"/>{lines}'
            f'<text x="{left}" y="{gap - 8}">{_WORDS[metric]}, 0 to {most:.3g} s</text>'
        )
    whole = f'width="{3 * (width + gap) + gap}" height="{height + 2 * gap}"'
    label = f'<text x="{gap}" y="{height + 2 * gap - 12}">{_escaped(title)}: recorded grey, simulated blue</text>'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {whole} {style}>{"".join(parts)}{label}</svg>\n'


def _curve(ordered: Sequence[float], left: int, most: float, width: int, height: int) -> str:
    stride = -(-len(ordered) // 200) or 1
    points = [*range(0, len(ordered), stride), *([len(ordered) - 1] if ordered else [])]
    return " ".join(
        f"{left + ordered[i] / most * width:.1f},{40 + height - (i + 1) / len(ordered) * height:.1f}" for i in points
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
