"""What the lines of a DCGM exporter say about one endpoint's GPUs."""

import pytest

from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Member
from pointsman.epp.sources.gpus import GpusQuestion

HEAD = b"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"


def line(value: str, **labels: str) -> bytes:
    inside = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"DCGM_FI_DEV_GPU_UTIL{{{inside}}} {value}\n".encode()


def member() -> Member:
    return Member(Endpoint(name="vllm-0-rank-0", pod="vllm-0", address="10.0.0.1", port=80))


@pytest.mark.parametrize(
    ("lines", "utilization"),
    [
        pytest.param([line("40", gpu="0"), line("85", gpu="1")], 0.85, id="the busiest speaks for all"),
        pytest.param(
            [line("90", gpu="0", pod="other"), line("20", gpu="1", pod="vllm-0")], 0.2, id="others' do not count"
        ),
        pytest.param([line("30", gpu="0", pod="")], 0.3, id="an empty name is none"),
        pytest.param([line("130", gpu="0")], 1.0, id="more than all"),
        pytest.param([line("NaN", gpu="0"), line("7", gpu="1")], 0.07, id="not a number"),
        pytest.param([line("90", gpu="0", pod="other")], None, id="only others'"),
        pytest.param([b"DCGM_FI_DEV_GPU_TEMP 50\n"], None, id="another family"),
    ],
)
def test_utilization(lines: list[bytes], utilization: float | None) -> None:
    tally, seen = Polls(), member()
    took = GpusQuestion(tally=tally).takes(seen)(HEAD + b"".join(lines), asked_at=1.0, mark=(0, 0))
    assert took == (utilization is not None)
    assert seen.view.attributes == ({} if utilization is None else {"GPUUtilization": utilization})
    assert tally.extract_errors["dcgm-data-source", "dcgm-extractor"] == (utilization is None)


def test_what_the_server_says_of_itself_stays() -> None:
    seen = member()
    seen.measured({"own": 1.0})
    assert GpusQuestion(tally=Polls()).takes(seen)(line("50", gpu="0"), asked_at=1.0, mark=(0, 0))
    assert seen.view.attributes == {"own": 1.0, "GPUUtilization": 0.5}
