"""One question to an HTTP page: Envoy's admin, the picker's metrics. No answer is None."""

import json
from collections.abc import Mapping
from typing import Any

from pointsman.core.http.client import Answer, fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.render.envoy.addresses import Address

_LIMITS = AnswerLimits(body_bytes=256 << 20)  # the config_dump of a gateway of a large mesh


async def get(
    address: Address, path: str, *, headers: Mapping[str, str] | None = None, seconds: float = 10.0
) -> Answer | None:
    """Return the answer to a GET."""
    message = request("GET", path, host=str(address), headers={"connection": "close", **(headers or {})}, body=b"")
    try:
        return await fetch(message, host=address.host, port=address.port, seconds=seconds, limits=_LIMITS)
    except OSError:
        return None


async def get_json(
    address: Address, path: str, *, headers: Mapping[str, str] | None = None, seconds: float = 10.0
) -> Any:
    """Return the document of an answer with status 200."""
    answer = await get(address, path, headers=headers, seconds=seconds)
    if answer is None or answer.status != 200:
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
