"""A picker that asks for a token: so does its page, and sends it with everything that it asks for."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect
from tests.browser.conftest import Look
from tests.browser.visit import visit
from tests.waiting import until

from pointsman.core.http import Request, Response
from pointsman.epp.server import PickerServer
from pointsman.epp.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "right"


class OneToken:
    """Lets one token in, as `kube.guard` lets in those that an API server knows."""

    async def answer(self, request: Request, route: Callable[[], Any]) -> Response | None:
        if request.headers.get(b"authorization") != f"Bearer {TOKEN}".encode():
            return Response(401, b"this needs the bearer token of an account that the cluster knows\n", b"text/plain")
        answer = route()
        return answer if answer is None or isinstance(answer, Response) else await answer


@pytest_asyncio.fixture(loop_scope="module")
async def guarded_url(tmp_path: Path) -> AsyncIterator[str]:
    endpoints = tmp_path / "endpoints.yaml"
    await asyncio.to_thread(endpoints.write_text, "endpoints: [{name: pod-a, address: 127.0.0.1, port: 1}]\n")
    settings = Settings(
        host="127.0.0.1",
        grpc_port=0,
        grpc_health_port=0,
        metrics_port=0,
        endpoints_file=endpoints,
        secure_serving=False,
        drain_timeout=0.1,
    )
    picker = PickerServer(settings, rng=random.Random(1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(picker._serve(client=None, guard=OneToken()))  # type: ignore[arg-type]  # no API server
        await until(lambda: picker.parts.health.serving)
        yield f"http://127.0.0.1:{picker.metrics_port}/"
        picker.stop()


async def test_the_page_asks_for_a_token_and_uses_it(guarded_url: str, look: Look) -> None:
    looking = await look(guarded_url)
    looking.expected = ("401 (Unauthorized)", "404 (Not Found)")
    page = looking.page
    await expect(page.locator("#token")).to_be_visible()
    assert await looking.endpoints() == {}
    await page.fill("#bearer", "wrong")
    await page.keyboard.press("Enter")
    await expect(page.locator("#status")).to_contain_text("this needs the bearer token")
    await page.fill("#bearer", TOKEN)
    await page.keyboard.press("Enter")
    await looking.live()
    await expect(page.locator("#token")).to_be_hidden()
    await looking.open("whatif")
    await page.click("text=Decide again")
    await expect(page.locator("#whatif-result .summary")).to_contain_text("No decision")
    await page.reload()
    await expect(page.locator("#token")).to_be_visible()  # nothing was stored


async def test_a_visitor_is_shown_the_endpoints(guarded_url: str, programs: Path) -> None:
    assert await visit(guarded_url, folder=programs.parent, token=TOKEN) == {
        "status": "● live",
        "endpoints": ["pod-a"],
        "picked": 0,
    }
