"""Writers are pure: the same choice gives the same bytes, however often and in whichever order they are asked."""

from collections.abc import Callable

import pytest

from pointsman.core.http import Response
from pointsman.sim.api.chat import ChatWriter
from pointsman.sim.api.completions import TextWriter
from pointsman.sim.api.generate import GenerateWriter
from pointsman.sim.api.images import ImageWriter
from pointsman.sim.api.messages import MessagesWriter
from pointsman.sim.api.responses import ResponsesWriter
from pointsman.sim.grpc.rpc import GrpcWriter
from pointsman.sim.jobs.job import Job, Sink, Writer
from pointsman.sim.jobs.spec import ChoiceSpec, Spec
from pointsman.sim.text.answers import Answer
from pointsman.sim.text.bodies import Responses
from pointsman.sim.text.prompts import Prompt

WRITERS: dict[str, Callable[[Spec], Writer]] = {
    "chat": ChatWriter,
    "chat with logprobs": lambda spec: ChatWriter(spec, logprobs=2),
    "text": TextWriter,
    "text with logprobs": lambda spec: TextWriter(spec, logprobs=2),
    "image": ImageWriter,
    "messages": MessagesWriter,
    "responses": lambda spec: ResponsesWriter(spec, read=Responses(input="hi")),
    "generate": GenerateWriter,
    "grpc": GrpcWriter,
}


class Nobody:
    """A peer that nothing is sent to."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.on_disconnect: Callable[[], None] | None = None
        self.on_choke: Callable[[], None] | None = None

    def respond(self, response: Response, /) -> None:
        raise AssertionError(response)

    def stream(self, *, headers: bytes = b"") -> Sink:
        raise AssertionError(headers)


def spec() -> Spec:
    answer = Answer(["one ", "two ", "three "], "stop")
    return Spec(
        id="1", model="m", lora=None, created=1, streaming=True, headers=b"", max_tokens=None,
        choices=(ChoiceSpec(Prompt("hello"), answer, "stop"),), usage_wanted=True, usage_details=True,
        kv_transfer=None, media=None, hangs=False, cut_at=None,
    )  # fmt: skip


def everything(writer: Writer, job: Job) -> list[bytes]:
    (choice,) = job.choices
    choice.frame = writer.frame(choice)
    late, early = writer.tokens(choice, 1, 3), writer.tokens(choice, 0, 1)
    ends = [writer.begin(choice), writer.finish(choice), writer.close(job.choices), writer.whole(job.choices)]
    return [early, late, writer.tokens(choice, 0, 3), *ends]


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_does_not_depend_on_what_was(name: str) -> None:
    writer = WRITERS[name](spec())
    job = Job(Nobody(), spec(), writer, done=lambda _: None)
    first, again = everything(writer, job), everything(writer, job)
    assert first == again
    early, late, together, *_ = first
    assert early + late == together


def test_an_answer_without_words_keeps_its_choices() -> None:
    (silent,) = spec().without_words("cache_threshold").choices
    assert (silent.finish_reason, silent.answer.pieces, silent.calls) == ("cache_threshold", (), ())
