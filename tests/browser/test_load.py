"""The page beside a busy picker: a hundred endpoints, a thousand picks a second."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import expect
from tests.browser.conftest import Look
from tests.ports import fresh_port
from tests.waiting import NOT_YET, wait_until

from pointsman.local.processes import die_with_parent

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
ENDPOINTS, RATE, SECONDS = 100, 1000, 3
NOT_THERE = (*NOT_YET, httpx.HTTPError)
DRAWS = """async (seconds) => {
  const draws = [], frames = [];
  new PerformanceObserver((list) => draws.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "measure" });
  const end = performance.now() + seconds * 1000;
  let last = performance.now();
  while (performance.now() < end) {
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
  return { draws: draws.length, draw: middle(draws), frames: frames.length, frame: middle(frames) };
}"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = fresh_port()
    command = [sys.executable, "-m", "bench.busy_picker", "--port", str(port)]
    with (tmp_path_factory.mktemp("busy") / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--endpoints", str(ENDPOINTS), "--rate", str(RATE)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, takes no lock
        )
    try:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success, despite=NOT_THERE)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("view", ["endpoints", "picks"])
async def test_the_page_stays_fluent_beside_a_busy_picker(busy: str, look: Look, view: str) -> None:
    looking = await look(f"{busy}#{view}")
    await looking.live()
    page = looking.page
    await expect(page.locator("#endpoints tbody tr" if view == "endpoints" else "ol.picks li").nth(59)).to_be_attached()
    before, began = await looking.total("picked"), time.monotonic()
    seen = await page.evaluate(DRAWS, SECONDS)
    rate = (await looking.total("picked") - before) / (time.monotonic() - began)
    print(view, seen, f"{rate:.0f} picks/s")
    assert seen["draws"] <= 4 * SECONDS + 2  # no more than four messages a second are drawn …
    assert seen["draws"] >= SECONDS and seen["frames"] >= 5 * SECONDS  # … and frames are made in between
    assert seen["draw"] < 100  # milliseconds, on whatever machine
    assert rate > RATE / 50  # where the machine has other things to do
    rows, picks = await page.locator("#endpoints tbody tr").count(), await page.locator("ol.picks li").count()
    assert (rows, picks) == ((ENDPOINTS, 0) if view == "endpoints" else (0, 60))
