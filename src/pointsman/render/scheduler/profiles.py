"""The picker's configuration by the name of its profile.

One meaning in two dialects. A picker of llm-d's first project (`llm-d-inference-scheduler`, the default image) has the
prefix index in its scorer and stops at a plugin type that it does not know; its successors have the index in a producer
of its own. `hashBlockSize`, which no picker has read since that was renamed, is a block of 5 characters: `blockSize` in
the first dialect, and in the second the smallest block that there is, which is 64 tokens.
"""

from pointsman.api.scheduler import Profile
from pointsman.render.manifests.objects import Object

_MATCHED, _KEPT = 256, 31_250
_BY_BACKEND = {"matchLabels": {"llm-d.ai/kv-backend": "nvlink"}}
_ACTIVE: Object = {"type": "active-request-scorer", "parameters": {"requestTimeout": "2m"}}
_ENDS: list[Object] = [{"type": "max-score-picker"}, {"type": "single-profile-handler"}]


def configuration(profile: Profile, *, image: str) -> Object:
    """Return the EndpointPickerConfig of a profile, as the picker in this image reads it."""
    first = _is_first(image)
    if profile == "default":
        plugins = [{"type": "load-aware-scorer"}, *_prefixes(first=first), {"type": "kv-cache-utilization-scorer"}]
        plugins.append({"type": "decode-filter"})
        steps = [_step("decode-filter"), _step("load-aware-scorer", 1), _step("prefix-cache-scorer", 2)]
        steps.append(_step("kv-cache-utilization-scorer", 1))
    elif profile == "proxy-performance":
        plugins, steps = [_ACTIVE], [_step("active-request-scorer", 1)]
    else:
        kind = "by-label-selector" if first else "label-selector-filter"
        plugins = [_ACTIVE, {"type": kind, "name": "by-kv-backend", "parameters": _BY_BACKEND}]
        steps = [_step("by-kv-backend"), _step("active-request-scorer", 1)]
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*plugins, *_ENDS],
        "schedulingProfiles": [{"name": "default", "plugins": [*steps, _step("max-score-picker")]}],
    }


def _is_first(image: str) -> bool:
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return repository == "llm-d-inference-scheduler"


def _prefixes(*, first: bool) -> list[Object]:
    both = {"autoTune": False, "maxPrefixBlocksToMatch": _MATCHED, "lruCapacityPerServer": _KEPT}
    if first:
        return [{"type": "prefix-cache-scorer", "parameters": {**both, "blockSize": 5}}]
    # A limit in tokens, which has a default, would go before the one in blocks.
    index = {**both, "blockSizeTokens": 64, "maxPrefixTokensToMatch": 0}
    return [{"type": "approx-prefix-cache-producer", "parameters": index}, {"type": "prefix-cache-scorer"}]


def _step(plugin: str, weight: int | None = None) -> Object:
    return {"pluginRef": plugin} | ({} if weight is None else {"weight": weight})
