"""Model servers that die, come and go while requests are under way."""

from tests.envoy.conftest import StartLab
from tests.envoy.load import load

SLOW = ("--time-to-first-token", "50ms", "--max-num-seqs", "64")


async def test_endpoint_killed_under_load_costs_no_request(start_lab: StartLab) -> None:
    """The first requests are saved by Envoy's retry to the next in the same pick; then the dead one is left alone."""
    lab = await start_lab(simulator=SLOW)
    async with load(lab.url, clients=12) as tally:
        await tally.served_by(lab.pods)
        lab.simulators["pod-0"].kill()
        await tally.grows(50)  # it is still in the picker's file: retries show that it cannot be reached
        picks = (await lab.picks())["pod-0"]
        await tally.grows(150)
        assert (await lab.picks())["pod-0"] == picks  # and nobody finds out at a request's cost whether it is back
        await lab.picker_has(["pod-1", "pod-2"])
        await tally.grows(50)
    assert set(tally.answers) == {200}


async def test_endpoints_come_and_go_under_load(start_lab: StartLab) -> None:
    """Envoy learns of an endpoint first and forgets it last; neither Envoy nor the picker restarts."""
    lab = await start_lab(simulator=SLOW, replicas=4)
    first = ["pod-0", "pod-1"]
    await lab.picker_has(first)
    await lab.envoy_has(first)
    async with load(lab.url, clients=12) as tally:
        await tally.grows(80)
        assert set(tally.pods) == set(first)
        await lab.envoy_has(lab.pods)
        await lab.picker_has(lab.pods)
        await tally.served_by(lab.pods)
        await lab.picker_has(["pod-2", "pod-3"])
        await tally.grows(50)  # more than were under way: nothing of the others is left
        before = tally.pods.copy()
        await lab.envoy_has(["pod-2", "pod-3"])
        await tally.grows(50)
    assert set(tally.answers) == {200}
    assert {pod for pod in lab.pods if tally.pods[pod] > before[pod]} == {"pod-2", "pod-3"}
