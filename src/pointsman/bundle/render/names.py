"""Names that OLM would give, so that an operator moved from OLM to Helm finds its own objects again.

A role's name ends in a hash of the rights that it grants: base 36 of SHA-224 of their JSON as Go writes it. OLM cuts
names so that they fit 63 characters, but lets 64 pass; for a Service that is refused by the API server, so there we cut
once more.
"""

import hashlib

from pointsman.bundle.model import Permission, PolicyRule, go_json

MAX_LABEL = 63
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def suffixed(base: str, suffix: str) -> str:
    """Return `base-suffix`, the base cut as OLM cuts it."""
    if len(base) + len(suffix) > MAX_LABEL:
        base = base[: MAX_LABEL - len(suffix) - 1]
    return f"{base}-{suffix}"


def role_name(csv_name: str, permission: Permission) -> str:
    """Return the name of the role and binding for a permission."""
    return suffixed(f"{csv_name}-{permission.account}", rights_hash(permission))


def service_name(deployment: str) -> str:
    """Return the name of the Service in front of a Deployment's webhooks."""
    name = suffixed(deployment.replace(".", "-"), "service")
    return name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - len('-service')]}-service"


def certificate_name(deployment: str) -> str:
    """Return the name of the certificate of that Service, and of its Secret."""
    return suffixed(service_name(deployment), "cert")


def rights_hash(permission: Permission) -> str:
    """Return the hash of a permission."""
    rules = None if permission.rules is None else [_fields(each) for each in permission.rules]
    text = go_json({"serviceAccountName": permission.service_account_name, "rules": rules})
    number = int.from_bytes(hashlib.sha224(f"{text}\n".encode()).digest())
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _fields(rule: PolicyRule) -> dict[str, list[str] | None]:
    """Return the fields in Go's order; empty ones are left out, but for verbs."""
    optional = {
        "apiGroups": rule.api_groups,
        "resources": rule.resources,
        "resourceNames": rule.resource_names,
        "nonResourceURLs": rule.non_resource_urls,
    }
    return {"verbs": rule.verbs, **{name: values for name, values in optional.items() if values}}
