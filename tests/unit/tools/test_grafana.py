"""Dashboards are written from panels, whole and each with a place of its own."""

import json

from tools import grafana


def test_the_files_are_what_the_panels_say() -> None:
    """If this fails: python -m tools.grafana."""
    written = dict(grafana.files())
    assert {path: path.read_text() for path in grafana.FOLDER.glob("*.json")} == written


def test_panels_have_places_and_letters_of_their_own() -> None:
    for _, text in grafana.files():
        panels = json.loads(text)["panels"]
        assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels) == 9
        for panel in panels:
            letters = [target["refId"] for target in panel["targets"]]
            assert letters == sorted(set(letters)) and panel["targets"]
