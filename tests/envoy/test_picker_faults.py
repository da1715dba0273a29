"""A picker that dies, hangs, drains or changes its certificate, under load, with counts.

FailClose promises a clean refusal at once and recovery; FailOpen promises that nobody notices.
"""

import asyncio
import signal
import ssl
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.envoy.conftest import StartLab
from tests.envoy.harness import Lab
from tests.envoy.load import Tally, completion, load
from tests.waiting import until

from pointsman.core.certificates import self_signed
from pointsman.core.files import replace
from pointsman.local.http import get
from pointsman.local.publisher import hosts
from pointsman.render.envoy.clusters import PICKERS
from pointsman.render.envoy.gateway import FailureMode

SLOW = ("--time-to-first-token", "30ms", "--inter-token-latency", "10ms", "--max-num-seqs", "64")
BOUND = 7.0
"""Keepalive notices a hung picker after 4 s at most; the rest is this machine's."""


def judge(tally: Tally, *, mode: FailureMode, recovered_at: float) -> None:
    late = [outcome for when, outcome in tally.times if when > recovered_at]
    assert late and set(late) == {200}, "no recovery"
    assert tally.slowest < BOUND
    if mode == "FailOpen":
        assert set(tally.answers) == {200}
    else:
        assert set(tally.answers) == {200, 503}


async def recovered(lab: Lab) -> float:
    """Wait until the picker decides again, and say when."""
    before = sum((await lab.picks()).values())

    async def asked() -> bool:
        return sum((await lab.picks()).values()) >= before + 20

    await until(asked)
    return time.monotonic()


async def envoy_knows(lab: Lab, *, healthy: int) -> None:
    """Wait until Envoy's health check has found so many pickers healthy."""

    async def found() -> bool:
        answer = await get(lab.admin, "/clusters")
        return answer is not None and len(hosts(answer.body.decode(), cluster=PICKERS, healthy=True)) == healthy

    await until(found)


@pytest.mark.parametrize("mode", ["FailClose", "FailOpen"])
@pytest.mark.parametrize("size", [pytest.param(1_000, id="1KB"), pytest.param(300_000, id="300KB")])
async def test_picker_killed_and_restarted(start_lab: StartLab, mode: FailureMode, size: int) -> None:
    lab = await start_lab(failure_mode=mode, simulator=(*SLOW, "--max-model-len", "1000000"))
    async with load(lab.url, clients=12, size=size) as tally:
        await tally.grows(60)
        lab.pickers[0].kill()
        await tally.grows(60)
        await envoy_knows(lab, healthy=0)
        await lab.pickers[0].start()
        back = await recovered(lab)
        await tally.grows(60)
    judge(tally, mode=mode, recovered_at=back)


@pytest.mark.parametrize("mode", ["FailClose", "FailOpen"])
async def test_picker_stopped_and_continued(start_lab: StartLab, mode: FailureMode) -> None:
    lab = await start_lab(failure_mode=mode, simulator=SLOW)
    async with load(lab.url, clients=12) as tally:
        await tally.grows(60)
        lab.pickers[0].send(signal.SIGSTOP)
        await asyncio.sleep(BOUND)
        lab.pickers[0].send(signal.SIGCONT)
        back = await recovered(lab)
        await tally.grows(60)
    judge(tally, mode=mode, recovered_at=back)


async def test_fail_open_does_not_cut_an_answer_that_is_under_way(start_lab: StartLab) -> None:
    lab = await start_lab(failure_mode="FailOpen", simulator=("--inter-token-latency", "20ms", "--max-num-seqs", "64"))
    async with load(lab.url, clients=12, tokens=50, stream=True) as tally:
        await tally.grows(12)
        lab.pickers[0].kill()
        await tally.grows(24)
    assert set(tally.answers) == {200}


async def test_refusal_of_the_picker_is_an_answer_not_a_failure(start_lab: StartLab) -> None:
    """FailOpen goes around a picker that is away, not around one that says no."""
    lab = await start_lab(failure_mode="FailOpen")
    await lab.picker_has([])
    async with httpx.AsyncClient(base_url=lab.url) as http:
        for _ in range(5):
            answer = await http.post("/v1/completions", json=completion())
            assert (answer.status_code, answer.headers.get("x-inference-pod")) == (503, None)
            assert answer.text.startswith("inference error: ")
            assert "x-pointsman-unserved" not in answer.headers


async def test_client_cannot_talk_its_way_around_the_picker(start_lab: StartLab) -> None:
    """What the two tiers of FailOpen say to each other counts only when they say it."""
    lab = await start_lab(failure_mode="FailOpen")
    await lab.picker_has(["pod-1"])
    lies = {"x-envoy-attempt-count": "2", "x-pointsman-unserved": "true"}
    orders = {"x-envoy-retry-on": "5xx", "x-return-error": "500", "x-forwarded-for": "10.0.0.1"}
    async with httpx.AsyncClient(base_url=lab.url) as http:
        for headers, status in ((lies, 200), (lies | orders, 500)):
            for _ in range(8):
                answer = await http.post("/v1/completions", json=completion(), headers=headers)
                assert (answer.status_code, answer.headers["x-inference-pod"]) == (status, "pod-1")


async def test_picker_restarts_behind_another_without_a_failed_request(start_lab: StartLab) -> None:
    """Two pickers; each in turn is asked to go, finishes what it has, and comes back."""
    lab = await start_lab(pickers=2, tls=True, simulator=SLOW, picker=("--drain-timeout", "3s"))
    async with load(lab.url, clients=12) as tally:
        await tally.grows(60)
        for n, picker in enumerate(lab.pickers):
            picker.send(signal.SIGTERM)
            assert await picker.ended() == 0
            await picker.start()
            await envoy_knows(lab, healthy=2)
            await until(partial(picked, lab, n))
    assert set(tally.answers) == {200}


async def picked(lab: Lab, picker: int) -> bool:
    """Whether this picker picked an endpoint since it started."""
    return any((await lab.picks(picker=picker)).values())


def write_certificate(folder: Path) -> None:
    certificate, key = self_signed()
    replace(folder / "tls.key", key)
    replace(folder / "tls.crt", certificate)


async def test_certificate_rotated_under_load(start_lab: StartLab, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    write_certificate(folder)
    flags = ("--cert-path", str(folder), "--enable-cert-reload")
    lab = await start_lab(tls=True, simulator=SLOW, picker=flags)
    before = await _served_certificate(lab)
    async with load(lab.url, clients=12) as tally:
        await tally.grows(60)
        write_certificate(folder)

        async def renewed() -> bool:
            return await _served_certificate(lab) not in {before, None}

        await until(renewed)
        await tally.grows(60)
    assert set(tally.answers) == {200}


async def _served_certificate(lab: Lab) -> bytes | None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    address = lab.picker_addresses[0]
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown
