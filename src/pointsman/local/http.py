"""One request to a part of the stack: health, metrics, Envoy's admin. A new connection each, because we ask rarely.

`get` never raises for a peer that is away, slow, wrong or endless: it answers None, which for every caller means "not
yet".
"""

from pointsman.core.http.client import Answer, fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.render.envoy.addresses import Address

_LIMITS = AnswerLimits(body_bytes=64 << 20)  # Envoy's list of a thousand endpoints has two megabytes


async def get(address: Address, path: str, *, timeout: float = 2.0) -> Answer | None:
    """Return the answer, or None when there was none in time."""
    return await ask("GET", address, path, timeout=timeout)


async def ask(method: str, address: Address, path: str, *, timeout: float = 2.0) -> Answer | None:
    """Return the answer to a request without a body, or None when there was none in time."""
    message = request(method, path, host=str(address), headers={"connection": "close"}, body=b"")
    try:
        return await fetch(message, host=address.host, port=address.port, seconds=timeout, limits=_LIMITS)
    except OSError:
        return None
