"""Settings: the documentation names them all, and what it ships as an example works."""

from pathlib import Path

from pointsman.sim.api.routes import CONTROLS, GENERATION
from pointsman.sim.settings import OPTIONS, Settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "simulator.md"


def test_the_reference_lists_every_option_and_every_route() -> None:
    text = PAGE.read_text()
    assert not [name for name in OPTIONS if f"`--{name}`" not in text]
    assert not [path for path in (*GENERATION, *CONTROLS) if f"`{path}`" not in text]


def test_the_pace_takes_over_every_latency_setting() -> None:
    pace = Settings(model="m", time_to_first_token=1.0, latency_calculator="constant", max_num_seqs=9).pace()
    assert (pace.time_to_first_token, pace.calculator, pace.max_num_seqs) == (1.0, "constant", 9)
