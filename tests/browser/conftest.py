"""A real Chromium, and real stacks to look at with it."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from tests.browser import assets, chromium
from tests.browser.looking import CONFIG, PODS, Looking, guarded
from tests.cluster.assets import Missing
from tests.envoy.harness import Lab, Wishes

from pointsman.local.envoy import find

Look = Callable[..., Awaitable[Looking]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))  # one stack for all of them


@pytest.fixture(scope="session")
def programs() -> Path:
    """Return the folder with chromium and prometheus."""
    try:
        return assets.find(os.environ) / "bin"
    except Missing as missing:
        pytest.skip(str(missing))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(programs: Path) -> AsyncIterator[Browser]:
    async with chromium.started(programs.parent) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def look(browser: Browser) -> AsyncIterator[Look]:
    """Return a function that opens a page, and watches for everything that must never happen in it."""
    open_ones: list[Looking] = []

    async def open_page(url: str, *, dark: bool = False) -> Looking:
        context = await browser.new_context(
            viewport={"width": 1280, "height": 760}, color_scheme="dark" if dark else "light"
        )
        page: Page = await context.new_page()
        looking = await guarded(page, url=url)
        open_ones.append(looking)
        return looking

    yield open_page
    for looking in open_ones:
        await looking.page.context.close()
        looking.check()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return a stack whose picker records, with a configuration that a test may change."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "config.yaml").write_text(CONFIG)
    wishes = Wishes(
        replicas=PODS,
        simulator=(
            *("--time-to-first-token", "60ms", "--inter-token-latency", "15ms", "--max-num-seqs", "4"),
            *("--enable-kvcache", "--kv-cache-size", "512", "--zmq-endpoint", ""),
        ),
        picker=("--config-file", str(folder / "config.yaml"), "--record", str(folder / "decisions.jsonl")),
    )
    lab = Lab(folder, envoy=find(os.environ, say=print), wishes=wishes)
    try:
        asyncio.run(lab.start())
        yield lab
    finally:
        lab.close()
