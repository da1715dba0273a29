"""InferenceModelRewrite: requests for one model name, sent to others by weight. One schema, published in two groups."""

from typing import Annotated, Literal

from pydantic import Field

from pointsman.api.base import Block
from pointsman.api.published import BY_TYPE, INT32, Conditions, PoolReference, pending


class ModelMatch(Block):
    """How a model name is compared."""

    type: Literal["Exact"] = Field(default="Exact", description="How it is compared.")
    value: str = Field(min_length=1, description="The model name in the request.")


class RewriteMatch(Block):
    """Which requests."""

    model: ModelMatch = Field(description="The model that the request asks for.")


class TargetModel(Block):
    """What the model becomes, and how often."""

    model_rewrite: str = Field(description="The model name that the request gets.")
    weight: Annotated[int, Field(strict=True, ge=1, le=1_000_000, json_schema_extra=INT32)] | None = Field(
        default=None, description="Share of the requests, out of the sum of all weights; set on all targets or none."
    )


class RewriteRule(Block):
    """Which requests, and what they become."""

    matches: tuple[RewriteMatch, ...] | None = Field(
        default=None, description="Any of these is enough; every request when left out."
    )
    targets: Annotated[tuple[TargetModel, ...], Field(min_length=1)] | None = Field(
        default=None, description="What the model becomes."
    )


class InferenceModelRewriteSpec(Block):
    """Rules, and the pool that they hold for."""

    pool_ref: PoolReference = Field(description="The pool whose picker follows the rules.")
    rules: tuple[RewriteRule, ...] = Field(description="An exact match goes before a rule for every request.")


class InferenceModelRewriteStatus(Block):
    """What was found about the rules."""

    conditions: Conditions | None = Field(
        default=None,
        json_schema_extra={**BY_TYPE, "default": [pending("Accepted")]},
        description="Findings such as Accepted.",
    )


class InferenceModelRewrite(Block):
    """Requests for one model name, sent to others by weight."""

    spec: InferenceModelRewriteSpec | None = Field(default=None, description="Rules, and the pool.")
    status: InferenceModelRewriteStatus | None = Field(default=None, description="What was found.")
