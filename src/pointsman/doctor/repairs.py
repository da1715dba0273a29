"""A change of one object, as a value: what `--fix` does and what a person copies are the same thing.

Names in references, flags and EnvoyFilters are anybody's text, and people paste what we print into a shell: whatever
goes into a command is quoted.

A repair is `safe` when it opens no access, deletes nothing, restarts nothing and changes where no request goes that is
answered today; only those are made by `--fix`.
"""

import json
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from pointsman.core.kinds import Key, Kind


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One change of one object."""

    kind: Kind
    key: Key
    how: Literal["merge", "json", "apply", "delete"]
    body: Any = None
    safe: bool = False

    def command(self) -> str:
        """Return the change as one line for a shell."""
        where = f"-n {shlex.quote(self.key.namespace)} " if self.key.namespace else ""
        name = shlex.quote(self.key.name)
        if self.how == "apply":
            return f"printf %s {_quoted(self.body)} | kubectl apply -f -"
        if self.how == "delete":
            return f"kubectl delete {self.kind} {where}{name}"
        return f"kubectl patch {self.kind} {where}{name} --type={self.how} -p {_quoted(self.body)}"


def _quoted(body: Any) -> str:
    return shlex.quote(json.dumps(body, separators=(",", ":")))
