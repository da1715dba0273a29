"""What of a service goes beyond the administrator's policy. Pure.

Looked at after the merge: presets and configs are the administrator's or somebody's in the namespace, and what counts
is what would run. Pickers get a token for the API server, so all that runs beside one must be trusted; model servers
get none, and may be anything unless the administrator says otherwise.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pointsman.api.llminferenceservice import LLMSpec
from pointsman.render.manifests.policy import Breach, Policy, is_from


def breaches(spec: LLMSpec, policy: Policy) -> tuple[Breach, ...]:
    """Return all that goes beyond the policy."""
    return (*_sizes(spec, policy), *_images(spec, policy))


def _sizes(spec: LLMSpec, policy: Policy) -> Iterable[Breach]:
    scheduler = spec.router.scheduler if spec.router else None
    wanted = {
        "spec.replicas": spec.replicas,
        "spec.prefill.replicas": spec.prefill.replicas if spec.prefill else None,
        "spec.router.scheduler.replicas": scheduler.replicas if scheduler else None,
    }
    for field, replicas in wanted.items():
        if replicas is not None and replicas > policy.max_replicas:
            limit = f"at most {policy.max_replicas}"
            yield Breach(field=field, value=str(replicas), limit=limit, flag="--max-replicas")


def _images(spec: LLMSpec, policy: Policy) -> Iterable[Breach]:
    scheduler = spec.router.scheduler if spec.router else None
    if scheduler is not None:
        limit = f"pickers, which get a token, only from {', '.join(policy.trusted_images) or 'nowhere'}"
        for field, image in _named(scheduler.template, path="spec.router.scheduler.template"):
            if not any(is_from(image, prefix) for prefix in policy.trusted_images):
                yield Breach(field=field, value=image, limit=limit, flag="--trusted-image-prefixes")
    if not policy.allowed_images:
        return
    prefill = spec.prefill.template if spec.prefill else None
    templates = {"spec.template": spec.template, "spec.prefill.template": prefill}
    for path, template in templates.items():
        for field, image in _named(template, path=path):
            if not any(is_from(image, prefix) for prefix in policy.allowed_images):
                limit = f"images from {', '.join(policy.allowed_images)}"
                yield Breach(field=field, value=image, limit=limit, flag="--allowed-image-prefixes")


def _named(template: Mapping[str, Any] | None, *, path: str) -> Iterable[tuple[str, str]]:
    for kind in ("containers", "initContainers"):
        for each in (template or {}).get(kind) or ():
            if each.get("image"):
                yield f"{path}.{kind}[{each.get('name')}].image", str(each["image"])
