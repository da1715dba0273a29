"""What the answers of OpenAI's completion APIs have in common: the envelope, its events, and how they end."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import DONE, encode, event
from pointsman.sim.jobs.job import Choice, Job


class CompletionWriter(ABC):
    """The envelope of an answer; its heirs write the choices in it."""

    prefix: ClassVar[str]
    suffix: ClassVar[str] = ""
    kind: ClassVar[str]
    kind_streamed: ClassVar[str]

    def __init__(self, job: Job, *, logprobs: int | None = None) -> None:
        self.job = job
        self.logprobs = logprobs

    def _chunk(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
        job = self.job
        body = {
            **more,
            "id": f"{self.prefix}{job.id}{self.suffix}",
            "created": job.created,
            "model": job.model,
            "object": self.kind_streamed,
            "usage": usage,
            "choices": choices,
        }
        return event(body)

    def close(self) -> bytes:
        usage = self._chunk([], usage=self.job.usage()) if self.job.usage_wanted else b""
        return usage + DONE

    def failure(self, refusal: Refusal) -> bytes:
        return event(refusal.document()) + DONE

    def whole(self) -> bytes:
        job = self.job
        body: dict[str, Any] = {"id": f"{self.prefix}{job.id}{self.suffix}", "model": job.model, "object": self.kind}
        if job.kv_transfer is not None:
            body["kv_transfer_params"] = job.kv_transfer
        body["created"] = job.created
        body["usage"] = job.usage()
        body["choices"] = [self._whole_choice(choice) for choice in job.choices]
        if job.media is not None:
            body["ec_transfer_params"] = job.media
        return encode(body)

    @abstractmethod
    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        """Return a choice as it stands in a whole answer."""
