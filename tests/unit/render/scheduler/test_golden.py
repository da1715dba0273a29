"""Whole installs to the letter, one file for each way in `golden/`.

After a change that is meant, write them anew and read the difference:
`POINTSMAN_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/unit/render/scheduler/test_golden.py && git diff`.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.render.golden import check_golden
from tests.unit.render.scheduler.installs import HERE, ON, rendered

from pointsman.render.manifests.facts import Facts

GOLDEN = Path(__file__).parent / "golden"
SLICE = {
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": True, "serving": True, "terminating": False}}],
}
TLS = {"args": ["--secure-serving"], "failureMode": "FailClose"}
CASES: dict[str, dict[str, Any]] = {
    "native-tls-failclose": {"simulatorNamespace": HERE, "epp": TLS},
    "endpoint-slice": {"around": {"slices": (SLICE,)}, "destinationRule": ON},
    "route-patch": {"routing": {"way": "RoutePatch"}, "around": {"slices": (SLICE,)}},
    "filter-patch": {"routing": {"way": "FilterPatch"}},
    "own-envoy": {"facts": Facts()},
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    check_golden(GOLDEN / f"{name}.yaml", rendered(**CASES[name]))


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == CASES.keys()
