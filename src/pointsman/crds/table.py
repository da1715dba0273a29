"""The state of the definitions at a glance: one line each, then what needs a word. Pure text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.crds.compatibility import Finding
from pointsman.crds.decide import Verdict

HEAD = ("DEFINITION", "OWNER", "VERSION", "STORED", "OBJECTS", "VERDICT")
_WORDS = {
    "create": "missing",
    "nothing": "ok",
    "restore": "drifted",
    "update": "upgradable",
    "leave": "foreign",
    "blocked": "blocked",
    "wait": "being deleted",
}


@dataclass(frozen=True)
class StatusRow:
    """One definition."""

    decision: Verdict
    release: str = ""
    stored: Sequence[str] = ()
    objects: int | None = None
    established: bool = True

    @property
    def verdict(self) -> str:
        word = _WORDS[self.decision.action]
        return word if self.established or self.decision.action == "create" else f"{word}, not served yet"

    def cells(self) -> tuple[str, ...]:
        """Return the columns."""
        held = self.decision.holder
        return (
            self.decision.name,
            "–" if held is None else held.name,
            self.release or "–",
            ",".join(self.stored) or "–",
            "–" if self.objects is None else str(self.objects),
            self.verdict,
        )


def render(rows: Sequence[StatusRow], findings: Iterable[Finding] = ()) -> str:
    """Return the table and, below it, a line for each definition that is not as it should be and each finding."""
    cells = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    notes = [f"{row.decision.name}: {row.decision.why}" for row in rows if row.decision.action != "nothing"]
    notes += [f"warning: {finding.says} ({finding.consumer.where})" for finding in findings]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"
