"""InferencePoolImport: a pool of another cluster, as the controllers that brought it here report it."""

from typing import Annotated

from pydantic import Field

from pointsman.api.base import Block
from pointsman.api.inferencepool import ATOMIC, ParentStatus
from pointsman.api.published import BY_TYPE, Conditions, ControllerName, ObjectName


class ExportingCluster(Block):
    """A cluster that has the pool."""

    name: ObjectName = Field(description="Name of the cluster.")


class ImportController(Block):
    """What one controller found about the import."""

    name: ControllerName = Field(description="The controller that wrote this.")
    exporting_clusters: tuple[ExportingCluster, ...] | None = Field(
        default=None, description="Clusters that have the pool."
    )
    parents: tuple[ParentStatus, ...] | None = Field(
        default=None, json_schema_extra=ATOMIC, description="One entry for each parent that uses the import."
    )
    conditions: Conditions | None = Field(
        default=None, json_schema_extra=BY_TYPE, description="Findings such as Accepted."
    )


class InferencePoolImportStatus(Block):
    """Who brought the pool here, and what they found."""

    controllers: Annotated[tuple[ImportController, ...], Field(max_length=8)] = Field(
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="One entry for each controller.",
    )


class InferencePoolImport(Block):
    """A pool of another cluster; written by multi-cluster controllers, not by people."""

    status: InferencePoolImportStatus | None = Field(default=None, description="Who brought it here.")
