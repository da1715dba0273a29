"""A page that is open while things go wrong: it says so, harms nobody, and goes on by itself."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from playwright.async_api import expect
from tests.browser.conftest import Look
from tests.browser.looking import CONFIG, Looking, ask, page_of
from tests.browser.test_views import get
from tests.envoy.harness import Lab
from tests.waiting import eventually, until

from pointsman.core.documents import to_yaml
from pointsman.core.files import replace
from pointsman.epp.page.live import MOST_VIEWERS
from pointsman.local import programs

pytestmark = pytest.mark.asyncio(loop_scope="module")

BROKEN = ("Failed to load resource", "ERR_")
HOUR = 3600 * 1000


async def viewers(lab: Lab) -> int:
    line = next(
        line for line in (await get(lab, "/metrics")).text.splitlines() if line.startswith("pointsman_page_viewers ")
    )
    return int(line.rpartition(" ")[2])


async def test_a_picker_that_is_killed_and_started_again(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    looking.expected = BROKEN
    await looking.live()
    await ask(lab, prompt="before")
    await eventually(lambda: _picked(looking, least=1))
    (picker,) = lab.pickers
    picker.kill()
    try:
        await looking.state("lost")
    finally:
        await picker.start()
    await looking.live()
    await until(lab.answers)
    assert (await ask(lab, prompt="after")).status_code == 200
    await eventually(lambda: _same(lab, looking))


async def _picked(looking: Looking, *, least: int) -> None:
    assert await looking.total("picked") >= least


async def _same(lab: Lab, looking: Looking) -> None:
    shown = await looking.endpoints()
    assert {target: int(row[6]) for target, row in shown.items()} == {
        row["address"]: row["picks"] for row in await lab.rows()
    }


async def test_a_picker_that_hangs(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    looking.expected = BROKEN
    await looking.live()
    (picker,) = lab.pickers
    picker.send(signal.SIGSTOP)
    try:
        await expect(looking.page.locator("#status")).to_contain_text("no word from the picker")
    finally:
        picker.send(signal.SIGCONT)
    await looking.live()


async def test_a_tab_that_slept_for_an_hour(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    looking.expected = BROKEN
    page = looking.page
    await page.clock.install()
    await page.reload()
    await looking.live()
    await ask(lab, prompt="before")
    await page.clock.fast_forward(HOUR)
    await ask(lab, prompt="meanwhile")
    await looking.live()
    await eventually(lambda: _same(lab, looking))


async def test_a_page_that_nobody_sees_stops_to_watch(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    looking.expected = BROKEN
    page = looking.page
    await page.clock.install()
    await page.reload()
    await looking.live()

    async def hide(*, hidden: bool) -> None:
        await page.evaluate(
            """(hidden) => {
              Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            hidden,
        )

    async def unwatched() -> bool:
        return await viewers(lab) == 0

    await hide(hidden=True)
    await page.clock.fast_forward(31_000)
    await looking.state("asleep")
    await until(unwatched)
    await hide(hidden=False)
    await looking.live()


@pytest.fixture
def crowd(lab: Lab) -> Iterator[None]:
    """As many viewers as a picker has, for the duration of a test."""
    address = (lab.picker_metrics[0].host, lab.picker_metrics[0].port)
    with ExitStack() as stack:
        for _ in range(MOST_VIEWERS):
            other = stack.enter_context(socket.create_connection(address, timeout=20))
            other.sendall(b"GET /debug/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            other.recv(100)
        yield


@pytest.mark.usefixtures("crowd")
async def test_one_viewer_too_many_is_told_so(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    looking.expected = BROKEN
    await expect(looking.page.locator("#status")).to_contain_text("are watching this picker already: close one")
    assert await viewers(lab) == MOST_VIEWERS


async def test_script_in_every_field_is_text(lab: Lab, look: Look) -> None:
    evil = "javascript:pwned=1//\"'><script>pwned=1</script><img src=x onerror=pwned=1><svg/onload=pwned=1>"
    first, *others = lab.pods.items()
    hostile = {evil: first[1], **dict(others)}
    document = programs.picker_endpoints(list(hostile.items()))
    for row in document["endpoints"]:
        row["namespace"] = evil
        row["labels"] = {evil: evil}
    name = json.dumps(evil)
    config = CONFIG.replace("- {type: decode-filter}", f"- {{type: decode-filter, name: {name}}}")
    config = config.replace("{type: queue-scorer}", f"{{type: queue-scorer, name: {json.dumps(evil + 'Q')}}}")
    config = config.replace("pluginRef: decode-filter", f"pluginRef: {name}")
    config = config.replace("pluginRef: queue-scorer", f"pluginRef: {json.dumps(evil + 'Q')}")
    config = config.replace("name: default", f"name: {name}")
    looking = await look(page_of(lab))
    page = looking.page
    await looking.live()
    endpoints = lab.folder / "endpoints.yaml"
    try:
        replace(endpoints, to_yaml(document))
        replace(lab.folder / "config.yaml", config)
        await expect(page.locator("#endpoints tbody")).to_contain_text(evil)
        await looking.open("config")
        await expect(page.locator("#config pre")).to_contain_text(evil[:20])
        await looking.open("picks")
        identity = f"{evil}-{os.getpid()}"
        await ask(lab, prompt=evil, model=evil, headers={"x-request-id": identity, "x-a": evil})
        row = page.locator("ol.picks li", has_text=identity)
        await expect(row).to_contain_text(evil + "Q")
        await row.locator("button").click()
        await expect(page.locator("dialog[open]")).to_contain_text(f"Profile {evil}")
        await page.keyboard.press("Escape")
        await looking.open("whatif")
        await page.fill(
            "#whatif-text", config.replace("type: kv-cache-utilization-scorer", f"type: {json.dumps(evil + 'T')}")
        )
        await page.click("text=Decide again")
        await expect(page.locator("#whatif-result .refusal")).to_contain_text("is not loaded")
        await page.fill("#whatif-text", CONFIG.replace("weight: 2", "weight: 1"))
        await page.click("text=Decide again")
        await expect(page.locator("#whatif-result .summary")).to_be_visible()
        replace(lab.folder / "config.yaml", f"apiVersion: {name}\nkind: {name}\n{name}: 1\n")
        await looking.open("config")
        await expect(page.locator("#config .refusal")).to_contain_text(evil[:20])
        assert await page.evaluate("window.pwned") is None
        strange = "script:not([src]), [onerror], [onload], svg, img, iframe, a[href^=javascript]"
        assert await page.locator(strange).count() == 0
        assert await looking.violations() == []
    finally:
        looking.expected = ("400 (Bad Request)",)
        replace(lab.folder / "config.yaml", CONFIG)
        await lab.picker_has(lab.pods)
        await eventually(lambda: _restored(lab))


async def _restored(lab: Lab) -> None:
    assert (await ask(lab, prompt="all well again?")).status_code == 200
    async with (
        httpx.AsyncClient(trust_env=False, verify=False, timeout=20) as http,
        http.stream("GET", f"{page_of(lab)}debug/live") as stream,
    ):
        now = json.loads((await anext(stream.aiter_lines())).removeprefix("data: "))
        assert "pwned" not in f"{now['config']['text']} {now['endpoints']}"
