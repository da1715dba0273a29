"""A GPU's steps: what they cost, what the host adds, and the files that say so."""

import pytest

from pointsman.core.errors import UserError
from pointsman.sim.engine.chance import Chance
from pointsman.sim.engine.engine import EngineConfig, Step, Work
from pointsman.sim.engine.latency import Batch, Pace
from pointsman.sim.engine.stepmodel import StepModel, StepsAndTransfers, step_model
from pointsman.sim.engine.steps import StepEngine


def test_tokens_are_free_while_the_weights_are_read() -> None:
    model = StepModel(weights=1.0, free_tokens=10, token=0.1, decode_seq=0.5, context_token=0.001)
    assert model.step_time(Batch(decode_seqs=2, context_tokens=1000)) == pytest.approx(1 + 1 + 1)
    assert model.step_time(Batch(decode_seqs=12)) == pytest.approx(1 + 6 + 0.2)


def test_a_prompt_makes_a_step_mixed() -> None:
    model = StepModel(
        weights=1.0, token=0.1, context_token=0.001, mixed_context_token=0.002, prefill_context=0.01, prompt=0.3
    )
    assert model.step_time(Batch(10, 20, 2, 1000, prompts=2)) == pytest.approx(1 + 1.2 + 2 + 0.2 + 0.6)


@pytest.mark.parametrize(
    ("batch", "host"),
    [
        pytest.param(Batch(decode_seqs=8, running=8), (1.8, 2.8), id="one graph"),
        pytest.param(Batch(prefill_tokens=8, running=8), (1.88, 6.88), id="in pieces"),
        pytest.param(Batch(prefill_tokens=60, decode_seqs=8, running=8), (2.4, 22.4), id="kernel by kernel"),
    ],
)
def test_what_the_host_needs_depends_on_how_it_launches(batch: Batch, host: tuple[float, float]) -> None:
    model = StepModel(
        weights=1, prepare=1, launch_graph=1, launch_piecewise=5, launch_eager=20, host_seq=0.1, host_token=0.01,
        graph_tokens=64,
    )  # fmt: skip
    assert model.host_time(batch) == pytest.approx(host)


def test_launches_of_prompts_vary_around_their_mean() -> None:
    model = StepModel(weights=1, launch_piecewise=10, launch_spread=0.2)
    chance = Chance(1)
    drawn = [model.host_time(Batch(prefill_tokens=1, chance=chance))[1] for _ in range(3000)]
    assert sum(drawn) / len(drawn) == pytest.approx(10, rel=0.02)
    assert min(drawn) < 8 and max(drawn) > 12
    assert model.host_time(Batch(decode_seqs=1, chance=chance)) == (0, 0)


def steps_of(model: StepModel, *works: Work, pipelined: bool = True) -> list[Step]:
    engine = StepEngine(EngineConfig(pipelined=pipelined), latency=model)
    for work in works:
        engine.submit(work, now=0.0)
    found: list[Step] = []
    while (wake := engine.next_wake) is not None:
        found += engine.advance(wake)
    return found


def test_an_output_waits_until_the_next_step_was_launched() -> None:
    model = StepModel(weights=10.0, launch_graph=4.0, launch_piecewise=8.0)
    first, second, third = steps_of(model, Work("a", 5, 3))
    assert first.time == 12.0  # done by the GPU at 10, but the next launch takes from 8 to 12
    assert (second.time, third.time) == (20.0, 30.0)  # the GPU is the slower one again
    assert [step.time for step in steps_of(model, Work("a", 5, 3), pipelined=False)] == [10.0, 20.0, 30.0]


def test_a_gpu_that_would_be_faster_waits_for_its_host() -> None:
    model = StepModel(weights=1.0, prepare=2.0, launch_graph=3.0, launch_piecewise=30.0)
    assert [step.time for step in steps_of(model, Work("a", 5, 3))] == [37.0, 42.0, 42.0]


def test_a_request_that_comes_during_a_launch_is_in_the_step_after_next() -> None:
    engine = StepEngine(
        EngineConfig(pipelined=True), latency=StepModel(weights=10.0, launch_graph=1, launch_piecewise=1)
    )
    engine.submit(Work("a", 5, 9), now=0.0)
    engine.advance(5.0)  # at 1 the second step was launched, and with it the pipeline is full
    late = engine.submit(Work("b", 5, 1), now=5.0)
    while late.finished_at < 0:
        wake = engine.next_wake
        assert wake is not None
        engine.advance(wake)
    assert (late.scheduled_at, late.first_token_at) == (10.0, 30.0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_prompt_starts_when_all_of_it_fits(whole: bool) -> None:
    config = EngineConfig(blocks=10, block_size=4, max_num_batched_tokens=8, whole_prompts=whole)
    engine = StepEngine(config, latency=StepModel(weights=1.0))
    engine.submit(Work("a", 20, 8), now=0.0)
    long = engine.submit(Work("b", 24, 1), now=0.0)
    while (wake := engine.next_wake) is not None:
        engine.advance(wake)
    assert (long.scheduled_at >= 10.0) is whole  # a ends at 10; its blocks and b's are more than there are
    assert long.finished_at > 0


def test_transfers_between_engines_that_step_take_what_the_flags_say() -> None:
    model = StepModel(weights=1.0, transfer_token=0.5)
    assert StepsAndTransfers(model, Pace()).transfer_time(10) == 5.0
    assert StepsAndTransfers(model, Pace(kv_cache_transfer_latency=0.2)).transfer_time(10) == 0.2
    assert StepsAndTransfers(model, Pace(kv_cache_transfer_time_per_token=0.01)).transfer_time(10) == pytest.approx(0.1)
    assert StepsAndTransfers(model, Pace()).step_time(Batch()) == 1.0


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        pytest.param([], "coefficients_us is missing", id="no mapping"),
        pytest.param({"coefficients_us": {"weights": 1, "base": 2}}, "coefficients_us.base is unknown", id="unknown"),
        pytest.param({"coefficients_us": {"weights": "x"}}, "write microseconds", id="not a number"),
        pytest.param({"coefficients_us": {"weights": 0}}, "must be above zero", id="no weights"),
        pytest.param({"coefficients_us": {"weights": 1}, "counts": {"free_tokens": 0.5}}, "whole numbers", id="count"),
    ],
)
def test_bad_coefficient_files_are_named(document: object, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        step_model(document, name="f.yaml")
