"""What one router does with requests and responses, put together from its configuration."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.epp.bbr.collector import CollectorParameters
from pointsman.epp.bbr.models import Models
from pointsman.epp.bbr.processors import Processor
from pointsman.epp.bbr.sessions import SessionAffinity


@dataclass(frozen=True, kw_only=True)
class Program:
    """The one profile that runs, and what feeds it."""

    processors: Sequence[Processor]
    models: Models = field(default_factory=Models)
    models_path: Path | None = None
    """The file that lists the models, if one does."""
    echo: str = ""
    """The response header that tells which model was chosen, if one does."""
    sessions: Sequence[SessionAffinity] = ()
    """Who goes by sessions …"""
    remembers: Sequence[SessionAffinity] = ()
    """… and which of them look at responses."""
    collector: CollectorParameters | None = None
    """How pools' metrics are read, if they are."""
    warnings: tuple[str, ...] = ()
    """What should be changed in the configuration some day."""
