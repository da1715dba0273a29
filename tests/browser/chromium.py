"""Chromium, started by Playwright's driver, with what both need from the cache and nothing that is installed here."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

_LIBRARIES = "LD_LIBRARY_PATH"


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Browser]:
    """Yield a browser of the programs in `folder`; it ends with the block."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to be root's otherwise
    # The driver gets this process's environment. It wants one library that a small Debian has not.
    before = os.environ.get(_LIBRARIES)
    os.environ[_LIBRARIES] = ":".join(filter(None, [str(folder / "driver"), before]))
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=folder / "bin" / "chromium", args=flags)
            yield browser
            await browser.close()
    finally:
        if before is None:
            del os.environ[_LIBRARIES]
        else:
            os.environ[_LIBRARIES] = before
