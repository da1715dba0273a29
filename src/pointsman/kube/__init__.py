"""The controller runtime: caches, queues and safe writes over one API server. Knows no resource of ours.

    Runtime ─ Reflector ─ Store ─ View ─┐
       │          └─ Change ─ Queue ─ Worker ─ reconcile(key, view)
       └─ Election (fence) ─ Client ─ Applier, EventRecorder ─┘

`docs/explanation/controller-runtime.md` tells it with one figure and an example that a test runs.
"""

from pointsman.core.kinds import Key, Kind, Object, Source
from pointsman.kube.apply import Applier, ApplyOutcome
from pointsman.kube.client import Client, connect
from pointsman.kube.conditions import Condition, merge
from pointsman.kube.controller import Controller, Result, Watch, owned, referred
from pointsman.kube.errors import Conflict, Retry, Terminal
from pointsman.kube.lease import LeaseTerms
from pointsman.kube.ownership import Owner, Ownership, owner_of
from pointsman.kube.runtime import Runtime
from pointsman.kube.view import View

__all__ = [
    "Applier",
    "ApplyOutcome",
    "Client",
    "Condition",
    "Conflict",
    "Controller",
    "Key",
    "Kind",
    "LeaseTerms",
    "Object",
    "Owner",
    "Ownership",
    "Result",
    "Retry",
    "Runtime",
    "Source",
    "Terminal",
    "View",
    "Watch",
    "connect",
    "merge",
    "owned",
    "owner_of",
    "referred",
]
