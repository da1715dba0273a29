"""What a picker says that it picked, asked before and after a request.

Our picker has a page of decisions, by request id; a gateway may give requests ids of its own, so what counts is what is
new on it. Any picker of llm-d counts its picks by endpoint. Both pages may be for readers with a token only. It is
never the token of whoever runs the doctor: what an administrator may do is not sent to a workload.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pointsman.core.numbers import real
from pointsman.doctor.gather.pages import get, get_json
from pointsman.render.envoy.addresses import Address

_LINE = re.compile(r"^\w*scheduler_attempts_total\{([^}\n]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_LAST = 50
_UNREADABLE = "its pages need a token: say --reader NAMESPACE/SERVICEACCOUNT of an account that may read them"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the pages said at one time."""

    decisions: Mapping[str, str] | None
    """The endpoint of each decision, by request; None when there is no such page."""
    counts: Mapping[str, float]
    """Picks by endpoint."""
    why: str = ""


async def look(addresses: Sequence[Address], *, token: str) -> Seen:
    """Return what the pages of all replicas say."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    decisions: dict[str, str] | None = None
    counts: dict[str, float] = {}
    why = "" if addresses else "its pages cannot be reached from here"
    for address in addresses:
        page = await get_json(address, f"/debug/decisions?last={_LAST}", headers=headers)
        if isinstance(page, dict):
            rows = page.get("decisions") or []
            decisions = {**(decisions or {}), **{str(row.get("request_id")): _first(row.get("picked")) for row in rows}}
            continue
        answer = await get(address, "/metrics", headers=headers)
        if answer is None:
            why = f"{address} does not answer"
        elif answer.status != 200:
            why = _UNREADABLE if answer.status in {401, 403} else f"{address}/metrics answers {answer.status}"
        else:
            counts |= read_picks(answer.body.decode(errors="replace"))
    return Seen(decisions=decisions, counts=counts, why=why if decisions is None and not counts else "")


def difference(before: Seen, after: Seen, *, request: str) -> str | None:
    """Return whom the picker chose in between: nobody is empty, and None is that it cannot be told."""
    if after.decisions is not None:
        if request in after.decisions:
            return after.decisions[request]
        fresh = [picked for name, picked in after.decisions.items() if name not in (before.decisions or {})]
        return fresh[0] if len(set(fresh)) == 1 else None if fresh else ""
    if after.why:
        return None
    more = [name for name, count in after.counts.items() if count > before.counts.get(name, 0)]
    return more[0] if len(more) == 1 else None if more else ""


def read_picks(page: str) -> dict[str, float]:
    """Return how often each endpoint was picked, by the counter that llm-d's pickers have, whatever its prefix."""
    best: dict[str, float] = {}
    for labels, value in _LINE.findall(page):
        said = dict(_LABEL.findall(labels))
        name = said.get("endpoint_name") or said.get("pod_name") or ""
        if name and said.get("status") in {None, "success"}:
            # The same counter may be there under several names: the largest is as good as any.
            best[name] = max(best.get(name, 0.0), real(value) or 0.0)
    return best


def _first(picked: object) -> str:
    return str(picked[0]) if isinstance(picked, list) and picked else ""
