"""A simulator in the test's own event loop, with a client."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from pointsman.sim.server import serving
from pointsman.sim.settings import Settings, check

Connect = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Start simulators with the given settings and return a client for each."""
    async with AsyncExitStack() as stack:

        async def begin(**values: Any) -> httpx.AsyncClient:
            chosen: dict[str, Any] = {"model": "m", "mode": "echo", "host": "127.0.0.1", "port": 0, "seed": 1, **values}
            (served,) = await stack.enter_async_context(serving(check(Settings(**chosen)), environ={}))
            url = f"http://127.0.0.1:{served.listener.port}"
            return await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=10))

        yield begin
