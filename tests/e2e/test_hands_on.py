"""HANDS-ON.md, as it is written: its bash blocks in one shell, in order. What they print is what the page promises."""

import json
import re
from pathlib import Path

import pytest
from tests.e2e.cluster import ROOT, Cluster

PAGE = ROOT / "HANDS-ON.md"
MARK = "--- block"


def blocks(page: Path) -> list[str]:
    """Return the bash blocks of a page."""
    return [
        str(block) for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def told(cluster: Cluster, named: None) -> dict[str, str]:
    """Run the page and return what each block printed, by the block's text."""
    written = blocks(PAGE)
    script = "".join(f"echo '{MARK}'\n{block}" for block in written)
    printed = cluster.bash(script, within=900).split(f"{MARK}\n")[1:]
    assert len(printed) == len(written)
    return dict(zip(written, printed, strict=True))


def after(told: dict[str, str], command: str) -> str:
    """Return what the block with this command printed."""
    (found,) = (text for block, text in told.items() if command in block)
    return found


@pytest.mark.timeout(900)
def test_the_page_runs(told: dict[str, str]) -> None:
    listed = after(told, "kubectl get simulatordeployment -n llm-d-sim\n").splitlines()[-2:]
    assert listed[0].split() == ["NAME", "REPLICAS", "READY", "AGE"]
    assert listed[1].split()[:3] == ["llm-sim-minimal", "2", "2"]
    assert after(told, '"replicas":4').count("Running") == 4
    assert "Ready=True: requests can be served" in after(told, "status.conditions[*]")


def test_the_request_was_answered_by_the_pod_that_was_picked(told: dict[str, str]) -> None:
    answer = after(told, "hands-on-1'")
    assert answer.startswith("HTTP/1.1 200 OK")
    (served,) = re.findall(r"^x-inference-pod: (\S+)\r?$", answer, flags=re.MULTILINE)
    (decision,) = json.loads(after(told, "/debug/decisions?id=hands-on-1"))["decisions"]
    (chosen,) = (one["name"] for one in decision["candidates"] if one["address"] == decision["picked"][0])
    assert served == chosen.removesuffix("-rank-0")
    assert served.startswith("ms-sim-llm-d-modelservice-decode-")


def test_the_answer_came_as_a_stream(told: dict[str, str]) -> None:
    events = [line for line in after(told, '"stream": true').splitlines() if line]
    assert events[-1] == "data: [DONE]"
    assert len(events) > 3 and all(line.startswith("data: ") for line in events)


def test_logs_and_endpoints_are_where_the_page_says(told: dict[str, str]) -> None:
    shown = after(told, "component=epp --tail")
    assert "picker: ready" in shown
    assert ":8200" in shown


def test_nothing_is_left(told: dict[str, str], cluster: Cluster) -> None:
    for kind in ("customresourcedefinitions", "clusterroles", "clusterrolebindings", "namespaces"):
        names = cluster.kubectl("get", kind, "-o", "name")
        assert not re.findall(r"pointsman|llm-d", names), kind
