"""What came of requests, told to the sidecar that learns from it: in batches, beside the requests.

Plugins keep samples in a buffer of their own that drops the oldest (`request.predictions`), so a request never waits
for this, and a trainer that is gone costs samples and nothing else. A batch that was not taken is lost, as in the Go
picker: sent again it might be counted twice.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from pointsman.core.addresses import ServiceAddress
from pointsman.core.http.client import fetch
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.epp.plugins.api import Trains
from pointsman.epp.prediction.breaker import Breaker
from pointsman.epp.request.predictions import TRAIN, Samples, TrainingService, training_body

log = get_logger(__name__)

_LIMITS = AnswerLimits(body_bytes=64 << 10)
_LOOK_SECONDS = 1.0  # how often somebody who has samples is looked for
_SILENCE = 60.0  # seconds between two lines about failures


class Trainer:
    """Sends what plugins have."""

    def __init__(
        self,
        plugins: Callable[[], Iterable[Trains]],
        *,
        clock: Callable[[], float],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plugins = plugins
        self._clock = clock
        self._wall = wall
        self._breakers: dict[ServiceAddress, Breaker] = {}
        self._said = float("-inf")

    async def run(self) -> None:
        """Send batch after batch, until cancelled."""
        while True:
            trained = [(each.training, each.samples) for each in self._plugins() if each.training is not None]
            await asyncio.sleep(min((service.every_seconds for service, _ in trained), default=_LOOK_SECONDS))
            for service, samples in trained:
                await self._send(service, samples)

    async def _send(self, service: TrainingService, samples: Samples) -> None:
        breaker = self._breakers.setdefault(service.address, Breaker(clock=self._clock))
        batch = samples.take() if breaker.allows() else []
        if not batch:
            return
        address = service.address
        body = training_body(batch, now=self._clock(), wall=self._wall())
        kind = {"content-type": "application/json"}
        message = request("POST", f"{address.prefix}{TRAIN}", host=address.authority, headers=kind, body=body)
        reason = ""
        breaker.begin()
        try:
            answer = await fetch(message, host=address.host, port=address.port, seconds=service.seconds, limits=_LIMITS)
            reason = "" if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except OSError as error:
            reason = error.strerror or str(error)
        samples.results["lost" if reason else "sent"] += len(batch)
        if reason:
            self._failed(breaker, address, reason)
        else:
            breaker.succeeded()

    def _failed(self, breaker: Breaker, address: ServiceAddress, reason: str) -> None:
        breaker.failed()
        now = self._clock()
        if now - self._said >= _SILENCE:
            self._said = now
            log.warning("predictor: the training sidecar takes no samples", address=address.authority, reason=reason)
