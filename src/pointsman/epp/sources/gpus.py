"""The question to NVIDIA's DCGM exporter: how busy an endpoint's GPUs are. Asked only where someone wants it.

The exporter is a sidecar, or one for a whole node; then its lines name Pods, and those of others do not count. The
busiest GPU speaks for the endpoint, as a share of 0 to 1. That an exporter answers says nothing about the model server.
"""

from typing import ClassVar

from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Mark, Member
from pointsman.epp.sources.dialects import share
from pointsman.epp.sources.scan import Finder, Spec, read_labels
from pointsman.epp.sources.scrape import Take

GPU_UTILIZATION = "GPUUtilization"
_FAMILY = Spec("DCGM_FI_DEV_GPU_UTIL")  # in percent


class GpusQuestion:
    """Keeps how busy each member's GPUs are."""

    source: ClassVar[str] = "dcgm-data-source"
    extractor: ClassVar[str] = "dcgm-extractor"
    shows_life: ClassVar[bool] = False

    def __init__(self, *, tally: Polls) -> None:
        self._tally = tally

    def takes(self, member: Member) -> Take:
        """Return what writes to the member."""
        finder = Finder(_FAMILY)

        def take(body: bytes, *, asked_at: float, mark: Mark) -> bool:  # noqa: ARG001 - the question's shape
            busiest = read_utilization(finder, body, pod=member.endpoint.pod or member.endpoint.name)
            if busiest is None:
                self._tally.extract_errors[self.source, self.extractor] += 1
                return False
            member.measured({GPU_UTILIZATION: busiest})
            return True

        return take


def read_utilization(finder: Finder, page: bytes, *, pod: str) -> float | None:
    """Return the share of time that a Pod's busiest GPU is at work; None when the page does not say."""
    shares = (share(series.value / 100) for series in finder.all(page) if _is_of(series.labels, pod))
    return max((one for one in shares if one is not None), default=None)


def _is_of(labels: bytes, pod: str) -> bool:
    """Return whether a line is about a Pod: it names it, or none."""
    return (read_labels(labels).get("pod") or pod) == pod
