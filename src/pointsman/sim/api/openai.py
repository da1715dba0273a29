"""What the answers of OpenAI's completion APIs have in common: the envelope, its events, and how they end."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.frames import DONE, encode, event
from pointsman.sim.jobs.job import Choice, usage
from pointsman.sim.jobs.spec import Spec


class CompletionWriter(ABC):
    """The envelope of an answer; its heirs write the choices in it."""

    prefix: ClassVar[str]
    suffix: ClassVar[str] = ""
    kind: ClassVar[str]
    kind_streamed: ClassVar[str]

    def __init__(self, spec: Spec, *, logprobs: int | None = None) -> None:
        self.spec = spec
        self.logprobs = logprobs

    def _chunk(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
        spec = self.spec
        body = {
            **more,
            "id": f"{self.prefix}{spec.id}{self.suffix}",
            "created": spec.created,
            "model": spec.model,
            "object": self.kind_streamed,
            "usage": usage,
            "choices": choices,
        }
        return event(body)

    def close(self, choices: Sequence[Choice]) -> bytes:
        return (self._chunk([], usage=self._usage(choices)) if self.spec.usage_wanted else b"") + DONE

    def failure(self, refusal: Refusal, _choices: Sequence[Choice]) -> bytes:
        return event(refusal.document()) + DONE

    def whole(self, choices: Sequence[Choice]) -> bytes:
        spec = self.spec
        body: dict[str, Any] = {"id": f"{self.prefix}{spec.id}{self.suffix}", "model": spec.model, "object": self.kind}
        if spec.kv_transfer is not None:
            body["kv_transfer_params"] = spec.kv_transfer
        body["created"] = spec.created
        body["usage"] = self._usage(choices)
        body["choices"] = [self._whole_choice(choice) for choice in choices]
        if spec.media is not None:
            body["ec_transfer_params"] = spec.media
        return encode(body)

    def _usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        return usage(choices, details=self.spec.usage_details)

    @abstractmethod
    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        """Return a choice as it stands in a whole answer."""
