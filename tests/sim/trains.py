"""A model that clients ask for: nothing but pydantic is needed to import it."""

from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Kind(Enum):
    FREIGHT = "freight"
    EXPRESS = "express"


class Wagon(BaseModel):
    number: Annotated[int, Field(ge=10, le=20)]
    load: str | None


class Departure(BaseModel):
    """The same without recursion, for clients that cannot send it."""

    name: str
    kind: Kind
    leader: Wagon | Literal["none"]
    wagons: list[Wagon]
    platform: int | None


class Train(BaseModel):
    """Nested, optional, recursive, with enums and alternatives: what `parse` sends is made from it."""

    name: str
    kind: Kind
    stops: list[str]
    leader: Wagon | Literal["none"]
    wagons: list[Wagon]
    behind: "Train | None"
