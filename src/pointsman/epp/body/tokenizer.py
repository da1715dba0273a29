"""The shell around a tokenizer service: connections that are kept, questions that wait for nobody but their request.

Whatever goes wrong with the service costs the request its exact tokens and nothing else: no connection, no answer in
time, a refusal or nonsense all end in None, and the tokens are estimated.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from pointsman.core.addresses import ServiceAddress
from pointsman.core.http.client import Answer
from pointsman.core.http.limits import AnswerLimits
from pointsman.core.http.lines import Lines, NoAnswer, body_of
from pointsman.core.http.messages import request
from pointsman.core.logs import get_logger
from pointsman.epp.body.rendering import TokenQuestion, Unreadable, read_answer
from pointsman.epp.request.request import Rendered, TokenService

log = get_logger(__name__)

_MOST_CONNECTIONS = 64
_LIMITS = AnswerLimits(body_bytes=64 << 20)


class Tokenizer:
    """Asks for the tokens of prompts, many at a time."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None
        self._places = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._service: TokenService | None = None
        self._lines: Lines | None = None
        self._failing = False
        self.results: Counter[str] = Counter()  # answered, timeout, refused, unreadable, unreachable

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Ask from now on, in tasks of this group."""
        self._tasks = tasks

    def ask(self, question: TokenQuestion, done: Callable[[Rendered | None], None]) -> Callable[[], None]:
        """Hand the tokens, or None when there are none, to `done` later; return what makes that not happen."""
        assert self._tasks is not None
        forgotten = False

        async def work() -> None:
            rendered = None
            try:
                rendered = await self._find(question)
            except Exception:  # nothing about one request may end the group
                log.exception("tokenizer: a question failed")
            if not forgotten:
                done(rendered)

        task = self._tasks.create_task(work())

        def forget() -> None:
            nonlocal forgotten
            forgotten = True
            task.cancel()

        return forget

    async def _find(self, question: TokenQuestion) -> Rendered | None:
        try:
            rendered = read_answer(question, await body_of(self._exchange(question), seconds=question.seconds))
        except NoAnswer as error:
            self._failed(error.result, str(error))
        except Unreadable as error:
            self._failed("unreadable", str(error))
        else:
            self._answered()
            return rendered
        return None

    def _answered(self) -> None:
        self.results["answered"] += 1
        if self._failing:
            self._failing = False
            log.info("tokenizer: the service answers again")

    def _failed(self, result: str, reason: str) -> None:
        self.results[result] += 1
        if not self._failing:
            self._failing = True
            log.warning("tokenizer: no tokens from the service, they are estimated", reason=reason)

    async def _exchange(self, question: TokenQuestion) -> Answer:
        service = question.service
        address = ServiceAddress(service.host, service.port)
        if self._lines is None or service != self._service:  # another configuration: what is open leads nowhere
            if self._lines is not None:
                self._lines.close()
            self._service = service
            self._lines = Lines(address, limits=_LIMITS)
        kind = {"content-type": "application/json"}
        message = request("POST", question.path, host=address.authority, headers=kind, body=question.body)
        async with self._places:
            return await self._lines.ask(message)
