"""One page in a browser, read as a person reads it; and everything that must never happen while it is open."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Page, Request, expect
from tests.envoy.harness import MODEL, Lab

expect.set_options(timeout=30_000)  # milliseconds: a busy machine is slow

PODS = 4
CONFIG = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: decode-filter}
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
"""
WATCH = """() => {
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(`${event.violatedDirective}: ${event.blockedURI || event.sample}`));
}"""


@dataclass
class Looking:
    """A page, and what was wrong with it so far."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()  # parts of faults that a test brings about

    def check(self) -> None:
        """Fail when anything happened that must not."""
        assert [fault for fault in self.faults if not any(part in fault for part in self.expected)] == []

    async def open(self, view: str) -> None:
        await self.page.click(f"#tab-{view}")
        await expect(self.page.locator(f"#{view}")).to_be_visible()

    async def live(self) -> None:
        await expect(self.page.locator("#status")).to_have_attribute("data-state", "live")

    async def state(self, state: str) -> None:
        await expect(self.page.locator("#status")).to_have_attribute("data-state", state)

    async def endpoints(self) -> dict[str, list[str]]:
        """Return the table of endpoints: by target, the texts of its cells."""
        rows: dict[str, list[str]] = await self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll("#endpoints tbody tr")].map((row) =>
              [row.dataset.target, [...row.children].map((cell) => cell.innerText.trim())]))"""
        )
        return rows

    async def total(self, name: str) -> int:
        return int(await self.page.inner_text(f'[data-total="{name}"]'))

    async def violations(self) -> list[str]:
        found: list[str] = await self.page.evaluate("window.violations")
        return found


async def guarded(page: Page, *, url: str) -> Looking:
    """Open a page; note errors, dialogs, refused content, and every question to anybody else."""
    looking = Looking(page=page, url=url)
    home = urlsplit(url).netloc

    def asked(request: Request) -> None:
        if urlsplit(request.url).netloc != home:
            looking.faults.append(f"asked {request.url}")

    async def dialog(found: Any) -> None:
        looking.faults.append(f"dialog {found.message}")
        await found.dismiss()

    page.on("request", asked)
    page.on("dialog", dialog)
    page.on("pageerror", lambda error: looking.faults.append(f"error {error}"))
    page.on("console", lambda line: looking.faults.append(line.text) if line.type in {"error", "warning"} else None)
    await page.add_init_script(f"({WATCH})()")
    await page.goto(url)
    return looking


def page_of(lab: Lab) -> str:
    return f"http://{lab.picker_metrics[0]}/"


async def ask(lab: Lab, *, prompt: str, model: str = MODEL, headers: dict[str, str] | None = None) -> httpx.Response:
    """Send one request through the gateway."""
    body = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": prompt}]}
    async with httpx.AsyncClient(trust_env=False, timeout=30, verify=False) as http:
        return await http.post(f"{lab.url}/v1/chat/completions", content=json.dumps(body), headers=headers)
