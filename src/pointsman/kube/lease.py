"""Leader election by a Lease: at most one replica writes.

`decide` is pure; `Election` is its shell. Two clocks never mix: decisions use the event loop's monotonic
clock and what was observed when, so neither a jump of the wall clock nor another machine's wrong one can make
two leaders; the wall clock only fills in the times that people read.

Invariant (the fence): `check` raises NotLeader once `renew_deadline` has passed since the last renewal was
*sent*. It compares times instead of waiting for a task, so it also holds for a process that was stopped and
continued: its first write after waking is withheld. Others wait for `duration`, which is longer, before they
take over.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pointsman.core.kinds import LEASE, Key, Object
from pointsman.core.logs import get_logger
from pointsman.kube.client import Client
from pointsman.kube.errors import ApiError, NotFound, NotLeader, Stale, Unreachable

log = get_logger(__name__)

_RELEASE = 5.0  # seconds for giving a lease back; without an answer it ends by itself


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a lease lasts; the defaults are client-go's."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


Step = Literal["create", "renew", "take", "wait"]


def decide(lease: Object | None, *, identity: str, unchanged_for: float) -> Step:
    """Return what to do about a lease that we have seen as it is for `unchanged_for` seconds."""
    if lease is None:
        return "create"
    spec = lease.get("spec", {})
    if spec.get("holderIdentity") == identity:
        return "renew"
    expired = unchanged_for > float(spec.get("leaseDurationSeconds") or 0)
    return "take" if expired or not spec.get("holderIdentity") else "wait"


def claimed(lease: Object | None, *, key: Key, identity: str, terms: LeaseTerms, now: datetime) -> Object:
    """Return the lease as it reads once it is ours."""
    spec = dict(lease.get("spec", {})) if lease else {}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = stamp
        spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(lease)
    spec |= {
        "holderIdentity": identity,
        "leaseDurationSeconds": max(1, round(terms.duration)),
        "renewTime": stamp,
    }
    base = lease or {"metadata": {"namespace": key.namespace, "name": key.name}}
    return {**base, "apiVersion": LEASE.api_version, "kind": LEASE.kind, "spec": spec}


class Election:
    """One replica's part in the election."""

    def __init__(
        self,
        client: Client,
        *,
        key: Key,
        identity: str,
        terms: LeaseTerms | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._key = key
        self._identity = identity
        self._terms = terms or LeaseTerms()
        self._wall = wall
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._seen: object = None
        self._seen_at = 0.0
        self._until = float("-inf")

    @property
    def leading(self) -> bool:
        """Tell whether writing is allowed at this moment."""
        return asyncio.get_running_loop().time() < self._until

    def check(self) -> None:
        """Raise NotLeader unless the lease is ours with time to spare."""
        if not self.leading:
            raise NotLeader(f"the lease {self._key} is not held by {self._identity}")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, do the work while it is held, stop it when it is lost, and stand again."""
        while True:
            await self._acquire()
            log.info("leading", lease=str(self._key), identity=self._identity)
            try:
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(_awaited(work))
                    await self._keep()
                    task.cancel()
            finally:
                await self._release()
            log.warning("lease lost, work stopped", lease=str(self._key), identity=self._identity)

    async def _acquire(self) -> None:
        while not await self._try():  # noqa: ASYNC110 - the server is asked, nobody could set an Event
            await asyncio.sleep(self._terms.retry * (1.0 + 0.2 * self._rng.random()))

    async def _keep(self) -> None:
        """Renew until the lease is lost: taken by another, or not renewed in time."""
        while self.leading:
            pause = min(self._terms.retry, self._until - asyncio.get_running_loop().time())
            await asyncio.sleep(max(pause, 0.0))
            if self.leading:
                await self._try()

    async def _try(self) -> bool:
        """Read the lease and do the next step; True when it is ours now."""
        try:
            async with asyncio.timeout(self._terms.renew_deadline / 2):
                return await self._step()
        except (ApiError, Unreachable, TimeoutError) as error:
            log.debug("lease not written", lease=str(self._key), why=str(error) or "timed out")
            return False

    async def _step(self) -> bool:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        try:
            lease: Object | None = await self._client.get(LEASE, self._key)
        except NotFound:
            lease = None
        record = (lease or {}).get("spec")
        if record != self._seen:
            self._seen, self._seen_at = record, loop.time()
        step = decide(lease, identity=self._identity, unchanged_for=loop.time() - self._seen_at)
        if step == "wait":
            self._until = float("-inf")
            return False
        document = claimed(lease, key=self._key, identity=self._identity, terms=self._terms, now=self._wall())
        write = self._client.create if lease is None else self._client.replace
        try:
            await write(LEASE, document)
        except Stale:  # another was faster; the next reading shows who
            return False
        self._until = sent + self._terms.renew_deadline
        return True

    async def _release(self) -> None:
        """Give a lease that we still hold back, so that the next replica need not wait for its end."""
        held, self._until = self.leading, float("-inf")
        if not held:
            return
        try:
            async with asyncio.timeout(_RELEASE):
                while not await self._given_back():
                    pass
        except (ApiError, Unreachable, TimeoutError) as error:
            log.info("lease not given back, it ends by itself", lease=str(self._key), why=str(error) or "timed out")

    async def _given_back(self) -> bool:
        """Write that nobody holds it, if we do; False when a last renewal of ours came in between."""
        lease = await self._client.get(LEASE, self._key)
        if lease["spec"].get("holderIdentity") == self._identity:
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                await self._client.replace(LEASE, lease)
            except Stale:  # cancelled here, but on its way already
                return False
        return True


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
