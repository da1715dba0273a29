"""What keeps a resource from being made true: one word and one sentence for people, an error for the queue."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from pointsman.core.errors import PointsmanError
from pointsman.kube import Condition, Conflict, Retry, Terminal
from pointsman.kube.errors import ApiError, Forbidden, Invalid, NotFound
from pointsman.render.manifests.policy import Breach, refusal

REFUSED = "LimitExceeded"
_LOOK_AGAIN = 5.0  # whether a name that was taken is free, or a namespace is there: no event of ours would tell


@dataclass(frozen=True)
class ReconcileFailure:
    """Why a resource could not be made true: for people, and for the queue."""

    reason: str
    message: str
    error: PointsmanError


def misread(error: ValidationError) -> str:
    """Return what is wrong with a resource that the server took, perhaps by an older definition."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}: apply the current definition (config/crd) and correct the field"


def refused(breaches: Iterable[Breach]) -> ReconcileFailure:
    """Return what it means that the administrator does not allow something."""
    message = refusal(breaches)
    return ReconcileFailure(REFUSED, message, Terminal(message))


def is_leaving(error: Conflict | ApiError) -> bool:
    """Tell whether a write failed because the definition of its kind goes or has just gone."""
    gone = isinstance(error, NotFound) and not _is_homeless(error)
    return gone or "custom resource definition is terminating" in str(error)


def _is_homeless(error: ApiError) -> bool:
    return isinstance(error, NotFound) and str(error).startswith("namespaces ")


def judge(error: Conflict | ApiError, *, otherwise: str) -> ReconcileFailure:
    """Return what a refusal means; `otherwise` says what else can be done about a name that is taken."""
    if isinstance(error, Conflict):
        message = f"{error}; or {otherwise}"
        return ReconcileFailure("Conflict", message, Retry(message, delay=_LOOK_AGAIN))
    if _is_homeless(error):
        message = f"{error}: create it, or name another"
        return ReconcileFailure("NamespaceMissing", message, Retry(message, delay=_LOOK_AGAIN))
    if isinstance(error, Forbidden):
        message = f"{error}: grant it (config/rbac), or raise the quota"
        return ReconcileFailure("Forbidden", message, Retry(str(error)))
    if isinstance(error, Invalid):
        message = f"the API server refused an object of the stack: {error}"
        return ReconcileFailure("Refused", message, Retry(str(error)))
    return ReconcileFailure("ApiError", str(error), error)


def amended(conditions: Iterable[Condition], trouble: ReconcileFailure | None) -> list[Condition]:
    """Return the conditions as they are with the trouble: whatever runs, this is not what was asked for."""
    if trouble is None:
        return list(conditions)
    words = {"Ready": Condition("Ready", "False", trouble.reason, trouble.message)}
    if trouble.reason == REFUSED:
        words["Progressing"] = Condition("Progressing", "False", REFUSED, "nothing is changed until that is put right")
    result = [words.get(found.type, found) for found in conditions]
    if trouble.reason == "Conflict":
        result.append(Condition("Conflict", "True", "NameTaken", trouble.message))
    return result
