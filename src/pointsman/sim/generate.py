"""The shape of /inference/v1/generate: token ids in, token ids out."""

from typing import Any

from pointsman.sim.frames import encode, event
from pointsman.sim.jobs import Choice
from pointsman.sim.openai import CompletionWriter


class GenerateWriter(CompletionWriter):
    """Writes token ids."""

    def _chunk(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None, **more: Any) -> bytes:
        shown = {"usage": usage} if usage else {}
        return event({"request_id": self.job.id, "choices": choices, **shown, **more})

    def begin(self, _choice: Choice) -> bytes:
        return b""

    def tokens(self, choice: Choice, first: int, end: int) -> bytes:
        ids, last = choice.ids, choice.last - 1
        return b"".join(
            self._chunk(
                [
                    {
                        "index": choice.index,
                        "finish_reason": choice.finish_reason if position == last else None,
                        "token_ids": ids[position : position + 1],
                    }
                ]
            )
            for position in range(first, end)
        )

    def finish(self, _choice: Choice) -> bytes:
        return b""

    def whole(self) -> bytes:
        job = self.job
        choices = [
            {"index": choice.index, "finish_reason": choice.finish_reason, "token_ids": choice.ids}
            for choice in job.choices
        ]
        body: dict[str, Any] = {"choices": choices, "request_id": job.id}
        if job.kv_transfer is not None:
            body["kv_transfer_params"] = job.kv_transfer
        body["ec_transfer_params"] = job.media
        return encode(body)
