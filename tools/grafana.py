"""Write the dashboards for Grafana, `config/monitoring/*.json`, from `tools/panels.yaml`.

A panel is a title, a unit and queries; the rest of a dashboard's JSON is the same for all of them. The metric names are
those that the picker and vLLM have today; `tests/browser/test_monitoring.py` has a Prometheus evaluate every query.

    python -m tools.grafana
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.core.documents import read_yaml

PANELS = Path(__file__).with_name("panels.yaml")
FOLDER = Path(__file__).parents[1] / "config" / "monitoring"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


def dashboard(name: str, *, title: str, panels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"pointsman-{name}",
        "title": title,
        "tags": ["llm-d", "pointsman"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(panel, number=at) for at, panel in enumerate(panels)],
    }


def _panel(panel: Mapping[str, Any], *, number: int) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("about", ""),
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short"), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel["queries"].items())
        ],
    }


def files() -> Iterator[tuple[Path, str]]:
    """Yield what is written, and where."""
    for name, board in read_yaml(PANELS).items():
        yield FOLDER / f"{name}.json", json.dumps(dashboard(name, **board), indent=2) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text)
