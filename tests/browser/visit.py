"""Open a picker's page as a person does, and say what it shows: `python -m tests.browser.visit FOLDER URL [TOKEN]`.

A program of its own because it may have to run in another network namespace than the test, beside a port-forward; the
folder has the browser, since the home may be another one there, too.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import expect
from tests.browser import chromium

TIMEOUT = 30_000


async def visit(url: str, *, folder: Path, token: str = "") -> dict[str, Any]:
    """Return what the page shows once it is live."""
    async with chromium.started(folder) as browser:
        page = await browser.new_page()
        await page.goto(url)
        if token:
            await expect(page.locator("#token")).to_be_visible(timeout=TIMEOUT)
            await page.fill("#bearer", token)
            await page.click("#token button")
        status = page.locator("#status")
        await expect(status).to_have_attribute("data-state", "live", timeout=TIMEOUT)
        return {
            "status": await status.inner_text(),
            "endpoints": await page.locator("#endpoints tbody .name").all_inner_texts(),
            "picked": int(await page.inner_text('[data-total="picked"]')),
        }


if __name__ == "__main__":
    where, url, token = [*sys.argv[1:], ""][:3]
    json.dump(asyncio.run(visit(url, folder=Path(where), token=token)), sys.stdout)
