"""Filter, score, pick: which model serves a request. The body then names it, as if the client had asked for it."""

from collections.abc import Sequence

from pointsman.epp.bbr.filters import Filter
from pointsman.epp.bbr.models import Model, Models
from pointsman.epp.bbr.pickers import ModelPicker
from pointsman.epp.bbr.processors import Draft
from pointsman.epp.bbr.scorers import Scorer
from pointsman.epp.bbr.sessions import SessionAffinity
from pointsman.epp.request.refusals import Internal, ResourceExhausted


class ModelSelector:
    """One profile's `model-selector` with the plugins that are named beside it."""

    def __init__(
        self,
        models: Models,
        *,
        filters: Sequence[Filter] = (),
        scorers: Sequence[tuple[Scorer, float]] = (),
        sessions: Sequence[tuple[SessionAffinity, float]] = (),
        picker: ModelPicker,
    ) -> None:
        self._models = models
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        self._sessions = tuple(sessions)
        self._picker = picker
        self.reads = frozenset(("model",)).union(*(each.reads for each in filters))

    def process(self, draft: Draft) -> None:
        """Let the body name the model that was chosen.

        Raises Refusal when there is none to choose from.
        """
        draft.rename(self.choose(draft).name)

    def choose(self, draft: Draft) -> Model:
        """Return the model. Raises Refusal when there is none to choose from."""
        left: Sequence[Model] = self._models.candidates
        if not left:
            raise Internal("model selection failed: no candidate models available in datastore")
        for each in self._filters:
            left = each.keep(draft.members, left)
            if not left:
                raise ResourceExhausted("no models available after filtering")
        totals = [0.0] * len(left)
        scored = [(scorer.score(left), weight) for scorer, weight in self._scorers]
        scored += [(session.score(draft.received, left), weight) for session, weight in self._sessions]
        for scores, weight in scored:
            for at, score in enumerate(scores):
                totals[at] += weight * max(0.0, min(1.0, score))
        return self._picker.pick(list(zip(left, totals, strict=True)))
