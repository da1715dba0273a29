"""Leave LLMInferenceServices to KServe's own controller where it is installed, and say so.

KServe is known by the configuration of its admission. In its definition the list of conditions is one value that is not
ours alone, so it is replaced as it was read, with the version that was read: nothing of KServe's is lost.
"""

from typing import Any

from pointsman.api.llminferenceservice import SERVICE
from pointsman.kube import Key, Object, Retry, Runtime, View
from pointsman.kube.conditions import timestamp
from pointsman.kube.errors import NotFound, Stale
from pointsman.operator.kinds import WEBHOOKS

KSERVE = "llminferenceservice.serving.kserve.io"
STANDING_DOWN = "llm-d.ai/StandingDown"
_SOON = 1.0


async def stands_down(runtime: Runtime, live: Object, view: View) -> bool:
    """Tell whether a service is KServe's to look after, and have its status say so.

    Raises Retry when the status is to be looked at again.
    """
    known = live.get("status", {}).get("conditions") or []
    rest = [one for one in known if one["type"] != STANDING_DOWN]
    said = len(rest) < len(known)
    if view.get(WEBHOOKS, Key("", KSERVE)) is not None:
        if not said:
            await _put(runtime, live, [*known, _word(runtime)])
        return True
    if said:
        await _put(runtime, live, rest)
        raise Retry("it is looked after again", delay=_SOON)
    return False


def _word(runtime: Runtime) -> dict[str, Any]:
    return {
        "type": STANDING_DOWN,
        "status": "True",
        "severity": "Info",
        "reason": "KServeInstalled",
        "message": f"KServe's own controller is installed ({KSERVE}) and looks after this service; we do not",
        "lastTransitionTime": timestamp(runtime.wall()),
    }


async def _put(runtime: Runtime, live: Object, conditions: list[Any]) -> None:
    metadata = live["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": {"conditions": conditions}}
    try:
        key = Key(metadata["namespace"], metadata["name"])
        await runtime.client.patch(SERVICE, key, body, how="merge", subresource="status")
    except Stale:
        raise Retry("it was written meanwhile", delay=_SOON) from None
    except NotFound:  # it went while we looked
        pass
