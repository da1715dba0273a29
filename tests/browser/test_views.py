"""What the page shows, in a real browser: equal to `/metrics` and `/debug`, as it happens, and reachable by keys."""

import asyncio
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import expect
from tests.browser.conftest import Look
from tests.browser.looking import CONFIG, PODS, Looking, ask, page_of
from tests.envoy.harness import Lab
from tests.envoy.load import Tally, load
from tests.waiting import eventually, until

from pointsman.core.files import replace

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICTURES = Path(__file__).parents[2] / "docs" / "how-to" / "watch-the-picker"
WIDTH = 1280
BY_QUEUE = CONFIG.replace("weight: 3", "weight: 0")


async def get(lab: Lab, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=20, verify=False) as http:
        return await http.get(f"http://{lab.picker_metrics[0]}{path}")


async def metric(lab: Lab, name: str) -> float:
    lines = (await get(lab, "/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}(\{{| )", line))


async def idle(lab: Lab) -> None:
    async def ended() -> bool:
        return not any((await lab.inflight()).values())

    await until(ended)


async def test_the_endpoints_are_those_of_debug_and_metrics(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    await looking.live()
    before = await looking.total("picked")
    async with load(lab.url, clients=12, tokens=12) as tally:
        await tally.grows(30)
        assert any(row[3] != "0" for row in (await looking.endpoints()).values())  # in flight, as it happens
    await idle(lab)

    async def equal() -> None:
        shown, rows = await looking.endpoints(), await lab.rows()
        assert set(shown) == {row["address"] for row in rows}
        for row in rows:
            name, running, waiting, inflight, kv, age, picks, state = shown[row["address"]]
            said = row["scraped"]
            assert name.startswith(row["name"]) and row["address"] in name
            assert (int(running), int(waiting), int(inflight)) == (said["running"], said["waiting"], row["inflight"])
            assert kv == f"{said['kv_usage'] * 100:.1f} %" and int(picks) == row["picks"]
            assert age == "fresh" and state == "● in"

    await eventually(equal)
    shown = await looking.endpoints()
    assert sum(int(row[6]) for row in shown.values()) == await metric(lab, "pointsman_picks_total")
    picked = await looking.total("picked")
    assert picked == await metric(lab, "pointsman_picks_total") >= before + 30
    assert await looking.total("ended") == await metric(lab, "pointsman_requests_ended_total")
    assert await looking.violations() == []


async def test_a_pick_is_explained_as_debug_explains_it(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    await looking.open("picks")
    await looking.live()
    number = f"explained-{os.getpid()}"
    answer = await ask(lab, prompt="Why?", headers={"x-request-id": number})
    assert answer.status_code == 200
    row = looking.page.locator("ol.picks li", has_text=number)
    await expect(row).to_be_visible()
    (decision,) = (await get(lab, f"/debug/decisions?id={number}")).json()["decisions"]
    text = await row.inner_text()
    names = {str(address): name for name, address in lab.pods.items()}
    scores = sorted((each["score"] for each in decision["candidates"]), reverse=True)
    assert names[decision["picked"][0]] == answer.headers["x-inference-pod"] and decision["picked"][0] in text
    assert f"score {scores[0]:.3f}" in text and f"margin {scores[0] - scores[1]:.3f}" in text
    profile = decision["explain"]["profiles"]["default"]
    (picked,) = [each for each in profile["candidates"] if each["address"] == decision["picked"][0]]
    for scorer, weight in profile["weights"].items():
        assert f"{scorer} {weight * picked['scores'][scorer]:.2f}" in text
    await row.locator("button").click()
    dialog = looking.page.locator("dialog[open]")
    await expect(dialog).to_contain_text(decision["reason"])
    cells: list[list[str]] = await dialog.locator("table.scores tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    about = {each["address"]: each for each in profile["candidates"]}
    for each in decision["candidates"]:
        (shown,) = [row for row in cells if row[0].removeprefix("▶ ") == each["name"]]
        assert shown[5:] == [
            *(f"{score:.3f}" for score in about[each["address"]]["scores"].values()),
            f"{each['score']:.3f}",
        ]
    await looking.page.keyboard.press("Escape")
    await expect(looking.page.locator("dialog[open]")).to_have_count(0)


async def test_filters_losses_and_refusals_are_shown(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    await looking.open("picks")
    await looking.live()
    prefills = [*lab.pods][:2]
    try:
        for number in (2, PODS):
            lab.picker_knows(lab.pods, labels={name: {"llm-d.ai/role": "prefill"} for name in [*lab.pods][:number]})
            await eventually(partial(_prefills, lab, number))
            if number == 2:
                assert (await ask(lab, prompt="Who decodes?")).headers["x-inference-pod"] not in prefills
                await expect(looking.page.locator("ol.picks li").first).to_contain_text("decode-filter dropped 2")
            else:
                assert (await ask(lab, prompt="Does anybody?")).status_code == 429
                await expect(looking.page.locator('[data-total="refused"]')).to_have_text("1")
    finally:
        await lab.picker_has(lab.pods)
        await eventually(lambda: _prefills(lab, 0))


async def _prefills(lab: Lab, number: int) -> None:
    assert sum("llm-d.ai/role" in row["labels"] for row in await lab.rows()) == number


async def test_the_configuration_its_reload_and_what_was_refused(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    await looking.open("config")
    await looking.live()
    section = looking.page.locator("#config")
    await expect(section.locator("pre")).to_contain_text("prefix-cache-scorer")
    path = lab.folder / "config.yaml"
    try:
        replace(path, CONFIG.replace("weight: 3", "weight: 7"))
        await expect(section.locator("pre")).to_contain_text("weight: 7.0")
        replace(path, "kind: Wrong\n")
        await expect(section.locator(".refusal")).to_contain_text("write EndpointPickerConfig")
        await expect(section.locator("pre")).to_contain_text("weight: 7.0")
    finally:
        replace(path, CONFIG)
        await expect(section.locator("pre")).to_contain_text("weight: 3.0")


async def test_a_what_if_changes_picks_and_is_what_replay_says(lab: Lab, look: Look, tmp_path: Path) -> None:
    looking = await look(page_of(lab))
    await looking.live()
    prefix = f"{os.getpid()} " * 400
    for number in range(12):  # the same long beginning: the cache holds them together, queues would spread them
        await ask(lab, prompt=prefix + str(number))
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(ask(lab, prompt=prefix + str(number)))
    await idle(lab)
    await looking.open("whatif")
    await expect(looking.page.locator("#whatif-text")).to_have_value(re.compile("weight: 3.0"))
    await looking.page.fill("#whatif-text", BY_QUEUE)
    await looking.page.click("text=Decide again")
    summary = looking.page.locator("#whatif-result .summary")
    await expect(summary).to_contain_text("made again")
    found = re.match(r"(\d+) decisions .* made again: (\d+) would be different", await summary.inner_text())
    assert found is not None
    shown: list[list[str]] = await looking.page.locator("table.different tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    config, same = tmp_path / "other.yaml", tmp_path / "same.jsonl"
    replace(config, BY_QUEUE)
    _last(lab.folder / "decisions.jsonl", int(found[1]), to=same)
    said = await asyncio.to_thread(_replay, same, config)
    assert f"{found[1]} decisions replayed: {found[2]} would be different" in said
    assert int(found[2]) > 0 and len(shown) == min(int(found[2]), 200)
    for request, was, score, would, other in shown:
        assert re.search(rf"{re.escape(request)}\W+{was}\W+{re.escape(score)}\W+{would}\W+{other}", said), request
    await looking.page.fill("#whatif-text", "kind: [")
    await looking.page.click("text=Decide again")
    await expect(looking.page.locator("#whatif-result .refusal")).to_contain_text("not valid YAML")
    looking.expected = ("400 (Bad Request)",)


def _last(recording: Path, number: int, *, to: Path) -> None:
    to.write_bytes(b"".join(recording.read_bytes().splitlines(keepends=True)[-number:]))


def _replay(recording: Path, config: Path) -> str:
    command = [sys.executable, "-m", "pointsman", "replay", str(recording), "--config", str(config), "--show", "100000"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


async def test_every_view_is_reached_by_keys(lab: Lab, look: Look) -> None:
    looking = await look(page_of(lab))
    await looking.live()
    page = looking.page
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("Tab")
    for view in ("endpoints", "picks", "plots", "config", "whatif"):
        assert await page.evaluate("document.activeElement.id") == f"tab-{view}"
        await expect(page.locator(f"#{view}")).to_be_visible()
        await page.keyboard.press("ArrowRight")
    assert await page.evaluate("document.activeElement.id") == "tab-endpoints"
    await page.keyboard.press("End")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.id") in {"main", "whatif-text"}
    unlabelled = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, canvas")].filter((each) =>
          !(each.innerText || each.getAttribute("aria-label") || (each.labels && each.labels.length))).length"""
    )
    assert unlabelled == 0


async def test_pictures_for_the_documentation(lab: Lab, look: Look, tmp_path: Path) -> None:
    """With POINTSMAN_PICTURES=1 they are written to docs; always they can be made and those of docs are there."""
    folder = PICTURES if os.environ.get("POINTSMAN_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)
    looking = await look(page_of(lab))
    await looking.live()
    clients = 8 if folder is PICTURES else 2
    async with (
        load(lab.url, clients=clients, size=3000, tokens=16, stream=True) as tally,
        asyncio.TaskGroup() as others,
    ):
        for number in range(6):
            others.create_task(_converse(lab, tally, number=number))
        await tally.grows(60)
        await looking.open("plots")
        await expect(looking.page.locator('[data-line="p50"] .value').first).to_contain_text("s", timeout=60_000)
        if folder is PICTURES:
            for _ in range(30):
                await tally.grows(50)
        await _picture_of_an_ejection(lab, looking, folder / "endpoints.png")
        for view in ("picks", "plots", "config"):
            await looking.open(view)
            await expect(looking.page.locator(f"#{view} .none:visible")).to_have_count(0)
            await _picture(looking.page, folder / f"{view}.png")
        await looking.open("picks")
        await looking.page.click("text=Pause")
        await looking.page.locator("ol.picks li button").first.click()
        await expect(looking.page.locator("dialog[open]")).to_contain_text("Profile default")
        await _picture(looking.page, folder / "explanation.png")
        await looking.page.keyboard.press("Escape")
        tally.stop = True  # so that conversations end
    await looking.open("whatif")
    await looking.page.fill("#whatif-text", BY_QUEUE)
    await looking.page.click("text=Decide again")
    await expect(looking.page.locator("#whatif-result .summary")).to_be_visible()
    await _picture(looking.page, folder / "whatif.png")
    dark = await look(page_of(lab), dark=True)
    await dark.live()
    await dark.open("plots")
    background = await dark.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(20, 23, 26)"
    await _picture(dark.page, folder / "dark.png")
    made = {path.name for path in folder.glob("*.png")}
    assert made == {path.name for path in PICTURES.glob("*.png")}


async def _picture_of_an_ejection(lab: Lab, looking: Looking, path: Path) -> None:
    """Kill a model server under load: the page says that it is ejected and why, as /debug does, and when it is back."""
    name, address = [*lab.pods.items()][-1]
    await looking.open("endpoints")
    row = looking.page.locator(f'#endpoints tr[data-target="{address}"]')
    simulator = lab.simulators[name]
    simulator.kill()
    try:
        await expect(row).to_have_attribute("data-state", "out")
        await expect(row.locator(".state")).to_contain_text("ejected: ")
        (said,) = [each for each in await lab.rows() if each["name"] == name]
        assert said["standing"] != "in" and said["ejected_because"] in await row.inner_text()
        await _picture(looking.page, path)
    finally:
        await simulator.start()
    await expect(row.locator(".state")).to_have_text("● in", timeout=60_000)


async def _converse(lab: Lab, tally: Tally, *, number: int) -> None:
    """Send prompts that begin as others did, for as long as the load goes on."""
    begins = f"Conversation {number}. " + "What was said before is sent again. " * 60
    turn = 0
    while not tally.stop:
        await ask(lab, prompt=f"{begins}{turn}")
        turn += 1


async def _picture(page: Any, path: Path) -> None:
    data = await page.screenshot(path=path)
    assert data[:4] == b"\x89PNG" and int.from_bytes(data[16:20], "big") == WIDTH
