"""Under which path a rule of an HTTPRoute takes a request for completions, so that the model server sees one."""

from collections.abc import Iterator

from pointsman.core.kinds import Object
from pointsman.doctor.cluster.objects import at, each, mapping

COMPLETIONS = "/v1/completions"


def asked_at(rule: Object) -> str:
    """Return the path; where no match of the rule is for completions, one that is at least the rule's."""
    found = next(_paths(rule), "")
    if found:
        return found
    kind, value = _matches(rule)[0]
    return value if kind == "Exact" else f"{value.rstrip('/')}{COMPLETIONS}"


def takes_completions(rule: Object) -> bool:
    """Tell whether a match of the rule is for completions, as far as paths tell."""
    return bool(next(_paths(rule), ""))


def _matches(rule: Object) -> list[tuple[str, str]]:
    said = [(at(one, "path", "type"), at(one, "path", "value")) for one in each(rule, "matches")]
    return [(str(kind or "PathPrefix"), str(value or "/")) for kind, value in said] or [("PathPrefix", "/")]


def _paths(rule: Object) -> Iterator[str]:
    rewrites = [mapping(one, "urlRewrite", "path") for one in each(rule, "filters") if one.get("type") == "URLRewrite"]
    rewrite = next((one for one in rewrites if one), {})
    for kind, value in _matches(rule):
        start = value.rstrip("/")
        seen = str(rewrite.get("replacePrefixMatch", start)).rstrip("/")
        if "replaceFullPath" in rewrite:
            found = value if rewrite["replaceFullPath"] == COMPLETIONS else ""
        elif kind == "PathPrefix" and f"{COMPLETIONS}/".startswith(f"{seen}/"):
            found = f"{start}{COMPLETIONS.removeprefix(seen)}"
        else:
            found = start if seen.endswith(COMPLETIONS) else ""
        if found and kind in {"Exact", "PathPrefix"}:
            yield found
