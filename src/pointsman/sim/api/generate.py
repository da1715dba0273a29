"""The shape of /inference/v1/generate: token ids in, token ids out."""

from collections.abc import Sequence
from typing import Any

from pointsman.sim.api.openai import CompletionWriter
from pointsman.sim.jobs.frames import encode, event
from pointsman.sim.jobs.job import Choice


class GenerateWriter(CompletionWriter):
    """Writes token ids."""

    def _chunk(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
        shown = {"usage": usage} if usage else {}
        return event({"request_id": self.spec.id, "choices": choices, **shown, **more})

    def frame(self, _choice: Choice) -> None:
        return None

    def begin(self, _choice: Choice) -> bytes:
        return b""

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        return b"".join(
            self._ids(choice, choice.ids[i : i + 1], reason=choice.finish_reason if i == choice.last - 1 else None)
            for i in range(first, end)
        )

    def _ids(self, choice: Choice, ids: Sequence[int], *, reason: str | None) -> bytes:
        return self._chunk([{"index": choice.index, "finish_reason": reason, "token_ids": ids}])

    def finish(self, choice: Choice) -> bytes:
        """The reason came with the last token, if there was one."""
        return b"" if choice.cursor else self._ids(choice, [], reason=choice.finish_reason)

    def whole(self, choices: Sequence[Choice]) -> bytes:
        spec = self.spec
        body: dict[str, Any] = {"choices": [self._whole_choice(c) for c in choices], "request_id": spec.id}
        if spec.kv_transfer is not None:
            body["kv_transfer_params"] = spec.kv_transfer
        body["ec_transfer_params"] = spec.media
        return encode(body)

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        return {"index": choice.index, "finish_reason": choice.finish_reason, "token_ids": choice.ids}
