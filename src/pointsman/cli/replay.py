"""`pointsman replay`: what another configuration would have decided, from a recording."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from pointsman.epp.config.defaults import load
from pointsman.epp.config.follow import allow_imports, read_text
from pointsman.epp.replay import Comparison, replay
from pointsman.epp.schedule.explain_log import read_recording


def run(
    recording: Path,
    /,
    *,
    config: Path | None = None,
    show: int = 20,
    allow_experimental_plugins: bool = False,
) -> None:
    """Decide the recorded requests again under another configuration and show those that come out differently.

    Parameters
    ----------
    recording
        File that `pointsman epp --record` wrote.
    config
        EndpointPickerConfig file; else the default configuration.
    show
        How many of the decisions that differ to show; 0 for none.
    allow_experimental_plugins
        Allow plugins that llm-d calls alpha.

    """
    text = ""
    if config is not None:
        allow_imports(config.parent)
        text = read_text(config)
    plan = load(text, name=str(config or "default configuration"), allow_experimental=allow_experimental_plugins)
    results = list(replay(read_recording(recording), plan=plan))
    different = [each for each in results if not each.same]
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    if different and show:
        console.print(_table(different[:show]))
    refused = sum(1 for each in different if not each.replayed)
    console.print(
        f"{len(results)} decisions replayed: {len(different)} would be different"
        + (f", {refused} of them refused" if refused else "")
        + (f" (the first {show} are shown)" if len(different) > show > 0 else "")
    )


def _table(rows: list[Comparison]) -> Table:
    table = Table("request", "was sent to", "its score now", "would be sent to", "score")
    for row in rows:
        table.add_row(
            row.request_id,
            row.recorded,
            _number(row.recorded_score) if row.replayed else "",
            row.replayed or f"nobody: {row.refusal}",
            _number(row.replayed_score) if row.replayed else "",
        )
    return table


def _number(score: float | None) -> str:
    return "filtered out" if score is None else f"{score:.3f}"
