"""Flags, environment and file: same names, and the right one wins."""

from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.options import IGNORED, help_text, read
from pointsman.sim.settings import OPTIONS, Settings


def settings(*argv: str, environ: dict[str, str] | None = None) -> Settings:
    return read(argv, environ=environ or {}, seed=1).settings


def test_the_forms_of_a_flag() -> None:
    found = settings(
        "--model=m", "--port", "9", "--enable-kvcache", "--omni=false", "--no-enable-sleep-mode",
        "--served-model-name", "a", "b", "--time-to-first-token", "1.5s", "--data-parallel-rank", "-1",
        "--lora-modules", '{"name": "x", "path": "/p"}', '{"name": "y"}', "--fake-metrics", '{"running-requests": 3}',
    )  # fmt: skip
    assert (found.model, found.port, found.enable_kvcache, found.omni) == ("m", 9, True, False)
    assert found.names == ("a", "b") and found.time_to_first_token == 1.5
    assert [module["name"] for module in found.lora_modules] == ["x", "y"]
    assert found.fake_metrics == {"running-requests": 3}


def test_the_command_line_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("model: from-file\nhash-seed: file\nmax_num_seqs: 7\ninter-token-latency: 20ms\nport: 1\n")
    environ = {"SIM_MODEL": "from-env", "PYTHONHASHSEED": "env"}
    found = settings("--config", str(file), "--port", "2", environ=environ)
    assert (found.model, found.hash_seed) == ("from-env", "env")
    assert (found.max_num_seqs, found.inter_token_latency, found.port) == (7, 0.02, 2)
    assert found.block_size == 16
    assert settings("--config", str(file), "--model", "cli", environ=environ).model == "cli"


def test_flags_of_the_real_vllm_are_accepted_and_named() -> None:
    read_ = read(
        ["--model", "m", "--gpu-memory-utilization", "0.9", "--enforce-eager", "--tensor-parallel-size=2", "-v", "4"],
        environ={},
        seed=1,
    )
    assert read_.ignored == ("gpu-memory-utilization", "enforce-eager", "tensor-parallel-size")
    assert read_.verbosity == 4


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        pytest.param([], "--model is missing", id="no model"),
        pytest.param(["--model", "m", "--modell", "x"], "did you mean --model", id="misspelt"),
        pytest.param(["stray"], "stands alone", id="stray word"),
        pytest.param(["--model", "a", "b"], "takes one value, it has 2", id="two values"),
        pytest.param(["--model", "m", "--port", "x"], "--port takes a number", id="not a number"),
        pytest.param(["--model", "m", "--port", "1.5"], "whole number", id="not whole"),
        pytest.param(["--model", "m", "--max-num-seqs", "0"], "at least 1", id="too small"),
        pytest.param(["--model", "m", "--omni=maybe"], "takes true or false", id="not a boolean"),
        pytest.param(["--model", "m", "--mode", "parrot"], "choose from echo, random", id="not a choice"),
        pytest.param(["--model", "m", "--time-to-first-token", "1"], "", id="bare number is milliseconds"),
        pytest.param(
            ["--model", "m", "--inter-token-latency", "10ms", "--inter-token-latency-std-dev", "4ms"],
            "at most 30 %",
            id="deviation",
        ),
        pytest.param(["--model", "m", "--failure-types", "flood"], "choose from rate_limit", id="failure"),
        pytest.param(["--model", "m", "--ssl-certfile", "x"], "go together", id="half a certificate"),
        pytest.param(["--model", "m", "--lora-modules", "x"], "is not JSON", id="bad JSON"),
        pytest.param(
            ["--model", "m", "--lora-modules", '{"name":"a","base_model_name":"z"}'], "it must be the model", id="base"
        ),
        pytest.param(["--model", "m", "--dataset-path", "d", "--mode", "echo"], "no use with", id="dataset"),
        pytest.param(
            ["--model", "m", "--latency-calculator", "step", "--max-num-seqs", "4000"], "at least --max-num-seqs",
            id="budget",
        ),
        pytest.param(
            ["--model", "m", "--kv-events-replay-endpoint", "tcp://*:5558", "--data-parallel-size", "2"], "overlap",
            id="replay over events",
        ),
        pytest.param(
            ["--model", "m", "--kv-events-replay-endpoint", "tcp://*:5555", "--pods", "3"], "overlap", id="pods"
        ),
        pytest.param(["--model", "m", "--time-factor-under-load", "nan"], "finite", id="nan"),
        pytest.param(["--model", "m", "--port", "65535", "--pods", "2"], "leaves no room", id="ports"),
        pytest.param(["--model", "m", "--config", "/nonexistent"], "cannot be read", id="no file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_that_names_the_flag(argv: list[str], complaint: str) -> None:
    if not complaint:
        assert settings(*argv).time_to_first_token == 0.001
        return
    with pytest.raises(UserError, match=complaint):
        settings(*argv)


def test_replay_next_to_the_events_is_fine() -> None:
    assert settings("--model", "m", "--kv-events-replay-endpoint", "tcp://*:5558").kv_events_replay_endpoint
    assert settings("--model", "m", "--kv-events-replay-endpoint", "tcp://*:5557", "--zmq-endpoint", "").model == "m"


def test_unknown_keys_in_a_file_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("model: m\nmax-num-seq: 7\n")
    with pytest.raises(UserError, match="max-num-seq is unknown: did you mean max-num-seqs"):
        settings("--config", str(file))


def test_help_names_every_option_and_no_option_is_also_ignored() -> None:
    assert all(f"--{name} " in help_text() for name in OPTIONS)
    assert not IGNORED & set(OPTIONS)
