"""Who owns the inference definitions of a cluster, and what may be done to them. Pure: no client, no clock, no await.

    definition ─ changes ─┐
    marks ────────────────┼─ decide ─► Decision (create, update, leave, blocked …)
    releases ─────────────┘
    consumers ─ compatibility ─► findings      previous, migration: what is kept on a definition

`operator.definitions` carries decisions out; `docs/explanation/crd-ownership.md` says why they are as they are.
"""

from pointsman.crds.changes import SchemaChange, compare
from pointsman.crds.decide import Intent, Verdict, decide
from pointsman.crds.definition import Definition, our_definitions, read_definitions

__all__ = [
    "Definition",
    "Intent",
    "SchemaChange",
    "Verdict",
    "compare",
    "decide",
    "our_definitions",
    "read_definitions",
]
