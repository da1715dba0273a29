"""The parts of one picker, put together as its settings say: everything that decides, and nothing that opens a port.

`server` gives them ports and an end, `discovery` tells them who the endpoints are, `families` reads them.
"""

import os
import random
import time
from collections.abc import Callable, Iterable

from pointsman.core.budget import Budget
from pointsman.core.errors import UserError
from pointsman.core.logs import get_logger
from pointsman.epp.body.tokenizer import Tokenizer
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.follow import ConfigFollower
from pointsman.epp.extproc.deadlines import Deadlines
from pointsman.epp.extproc.health import Health
from pointsman.epp.metrics.picker import PickerMetrics
from pointsman.epp.metrics.request import Bookkeeper
from pointsman.epp.metrics.tracing import Tracer, exporter_of
from pointsman.epp.plugins.api import Trains
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.prediction.questions import Predictor
from pointsman.epp.prediction.training import Trainer
from pointsman.epp.request.objectives import Objectives
from pointsman.epp.request.rewrites import Rewrites, Rewritten
from pointsman.epp.schedule.director import Director, DirectorOptions
from pointsman.epp.schedule.explain_log import DecisionRecorder
from pointsman.epp.schedule.records import Records
from pointsman.epp.settings import Settings
from pointsman.epp.sources.planned import Sources, source_problems

log = get_logger(__name__)

LEAST_INTERVAL = 0.05


def read_configuration(
    settings: Settings, *, clock: Callable[[], float], rng: random.Random
) -> tuple[Builder, ConfigFollower]:
    """Return the configuration that settings name, checked as a picker checks it: `epp check` comes here too.

    Raises UserError.
    """
    builder = Builder(clock=clock, rng=rng, also=source_problems, environment=os.environ)
    follower = ConfigFollower(
        builder=builder,
        path=settings.config_file,
        text=settings.config_text,
        allow_experimental=settings.allow_experimental_plugins,
        clock=clock,
    )
    return builder, follower


class Assembly:
    """What one picker is made of."""

    def __init__(self, settings: Settings, *, rng: random.Random) -> None:
        self.settings = settings
        self.clock = time.monotonic
        self.bad_files = 0  # watched files that were refused after a change
        self._rng = rng
        self.budget = Budget(limit=settings.held_bytes)
        self.deadlines = Deadlines(seconds=settings.body_timeout, clock=self.clock)
        self.pool = Pool(clock=self.clock, staleness=settings.metrics_staleness_threshold)
        self.objectives = Objectives()
        self.rewrites = Rewrites()
        self.polls = Polls()
        tick = max(LEAST_INTERVAL, settings.refresh_metrics_interval)
        unsaid = {
            "scheme": settings.model_server_metrics_scheme,
            "insecure_skip_verify": settings.model_server_metrics_https_insecure_skip_verify,
        }
        self.sources = Sources(pool=self.pool, tally=self.polls, clock=self.clock, tick=tick, unsaid=unsaid)
        self.tokenizer = Tokenizer()
        self.predictor = Predictor(clock=self.clock, rng=rng)
        self.trainer = Trainer(self._trained, clock=self.clock)
        self.metrics = PickerMetrics()
        exporter = exporter_of(os.environ) if settings.tracing else None
        self.tracer = Tracer(exporter, rng=rng) if exporter is not None else None
        self.health = Health(election=settings.ha_enable_leader_election)
        self.builder, self.configuration = read_configuration(settings, clock=self.clock, rng=rng)
        self.configuration.announce()
        self.director = self._director()
        if settings.record is not None:
            self.director.records.listen(DecisionRecorder(settings.record))

    def _director(self) -> Director:
        settings = self.settings
        return Director(
            pool=self.pool,
            scheduler=self.configuration.current.scheduler,
            records=Records(),
            rng=self._rng,
            options=DirectorOptions(
                use_subset=not settings.disable_endpoint_subset_filter,
                emit_scores=settings.emit_endpoint_scores,
                explain=settings.explain,
                explain_on_demand=settings.explain_on_demand,
                priority_of=self.objectives.priority,
                rewrite=self._rewrite,
            ),
            books=Bookkeeper(self.metrics, clock=self.clock, tracer=self.tracer),
        )

    def _trained(self) -> Iterable[Trains]:
        """Return the plugins that have samples for a training sidecar."""
        made = self.configuration.current.made.values()
        return [each.plugin for each in made if isinstance(each.plugin, Trains)]

    def _rewrite(self, model: str) -> Rewritten | None:
        """Return the model that a rewrite rule sends this one to; None when there is no such rule."""
        return self.rewrites.rewrite(model, random=self._rng.random)

    def fresh_id(self) -> str:
        """Return a random UUID, for requests that come without an id."""
        bits = f"{self._rng.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{'89ab'[int(bits[16], 16) % 4]}{bits[17:20]}-{bits[20:]}"

    def use(self, built: Built) -> None:
        """Decide and look by another configuration from now on."""
        self.director.use(built.scheduler)
        try:
            self.sources.use(built.plan)
        except UserError as error:
            self.count_bad_file()
            log.warning("configuration: data sources stay as they were", reason=str(error))

    def count_bad_file(self) -> None:
        """Count a watched file that was refused after a change."""
        self.bad_files += 1

    def sweep(self) -> None:
        """Let time pass: scrapes age, ejections end, requests are late."""
        self.pool.sweep(self.clock())
        self.deadlines.sweep()
