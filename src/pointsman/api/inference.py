"""The inference definitions, all of them: which resources there are, in which groups, of which published release.

`BUNDLE` and `ROUTER` are the releases whose schema the models carry; they stand on each definition under the annotation
that its project uses, so that other installers recognise what is there. Published in two groups are the objective and
the rewrite: pickers of before 2026 read the older one.
"""

from pydantic import BaseModel

from pointsman.api.crd import Schema, column, definition, published
from pointsman.api.inferencemodelrewrite import InferenceModelRewrite
from pointsman.api.inferenceobjective import InferenceObjective, LegacyObjective
from pointsman.api.inferencepool import AlphaPool, InferencePool
from pointsman.api.inferencepoolimport import InferencePoolImport
from pointsman.core.kinds import Kind

GROUP = "inference.networking.k8s.io"
LEGACY_GROUP = "inference.networking.x-k8s.io"
LLM_D_GROUP = "llm-d.ai"

BUNDLE = "v1.5.0"
LAST_ALPHA_POOL = "v1.4.0"  # later releases publish the v1 pool alone
ROUTER = "v0.10.0"
BUNDLE_VERSION = "inference.networking.k8s.io/bundle-version"
ROUTER_VERSION = "llm-d.ai/bundle-version"
_APPROVAL = "api-approved.kubernetes.io"
_APPROVED = "https://github.com/kubernetes-sigs/gateway-api-inference-extension/pull/1173"
# The API server refuses unmarked definitions under *.k8s.io; this is the mark of those that nobody reviewed.
_UNAPPROVED = "unapproved, experimental-only"

POOL = Kind(GROUP, "v1", "InferencePool", "inferencepools")
ALPHA_POOL = Kind(LEGACY_GROUP, "v1alpha2", "InferencePool", "inferencepools")
POOL_IMPORT = Kind(LEGACY_GROUP, "v1alpha1", "InferencePoolImport", "inferencepoolimports")
OBJECTIVES = tuple(
    Kind(group, "v1alpha2", "InferenceObjective", "inferenceobjectives") for group in (LLM_D_GROUP, LEGACY_GROUP)
)
REWRITES = tuple(
    Kind(group, "v1alpha2", "InferenceModelRewrite", "inferencemodelrewrites") for group in (LLM_D_GROUP, LEGACY_GROUP)
)

_OF_POOL = column("Inference Pool", ".spec.poolRef.name", "The pool that it is for.")
_PRIORITY = column("Priority", ".spec.priority", "Higher goes first.")
_AGE = column("Age", ".metadata.creationTimestamp", "Since when it is there.", type="date")


def inference_definitions() -> list[Schema]:
    """Return the definitions, the ones that others refer to first."""
    approved = {_APPROVAL: _APPROVED, BUNDLE_VERSION: BUNDLE}
    alpha = {_APPROVAL: _UNAPPROVED, BUNDLE_VERSION: LAST_ALPHA_POOL}
    return [
        _define(POOL, InferencePool, short="infpool", annotations=approved),
        _define(ALPHA_POOL, AlphaPool, short="xinfpool", annotations=alpha),
        _define(POOL_IMPORT, InferencePoolImport, short="infpimp", annotations={BUNDLE_VERSION: BUNDLE}),
        *(_objective(kind) for kind in OBJECTIVES),
        *(_rewrite(kind) for kind in REWRITES),
    ]


def _objective(kind: Kind) -> Schema:
    model = LegacyObjective if kind.group == LEGACY_GROUP else InferenceObjective
    return _define(kind, model, annotations=_released(kind), columns=[_OF_POOL, _PRIORITY, _AGE])


def _rewrite(kind: Kind) -> Schema:
    return _define(kind, InferenceModelRewrite, annotations=_released(kind), columns=[_OF_POOL, _AGE])


def _released(kind: Kind) -> dict[str, str]:
    return {ROUTER_VERSION: ROUTER} if kind.group == LLM_D_GROUP else {BUNDLE_VERSION: BUNDLE}


def _define(
    kind: Kind,
    model: type[BaseModel],
    *,
    annotations: dict[str, str],
    short: str = "",
    columns: list[Schema] | None = None,
) -> Schema:
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": published(kind, model)},
        "subresources": {"status": {}},
        **({"additionalPrinterColumns": columns} if columns else {}),
    }
    names = {"shortNames": [short]} if short else {}
    return definition(kind, names=names, versions=[version], metadata={"annotations": annotations})
