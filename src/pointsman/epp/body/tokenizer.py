"""The shell around a tokenizer service: connections that are kept, questions that wait for nobody but their request.

Whatever goes wrong with the service costs the request its exact tokens and nothing else: no connection, no answer in
time, a refusal or nonsense all end in None, and the tokens are estimated. A kept connection may be closed by the
service in the very moment in which it is used again, so a question that is lost on one is asked once more on a new one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from pointsman.core.http.client import Answer, Line
from pointsman.core.http.limits import AnswerLimits
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
        self._idle: list[Line] = []
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
            async with asyncio.timeout(question.seconds), self._places:
                status, body = await self._exchange(question)
            if status == 200:
                rendered = read_answer(question, body)
                self._answered()
                return rendered
            result, reason = "refused", f"it answered {status}"
        except TimeoutError:
            result, reason = "timeout", f"no answer within {question.seconds:g} s"
        except OSError as error:
            result, reason = "unreachable", error.strerror or str(error)
        except Unreadable as error:
            result, reason = "unreadable", str(error)
        self._failed(result, reason)
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
        if service != self._service:  # another configuration: what is open leads nowhere
            self._service = service
            while self._idle:
                self._idle.pop().close()
        message = _request(question)
        while self._idle:
            line = self._idle.pop()
            if line.open:
                try:
                    return await self._ask_on(line, message, service=service)
                except ConnectionError:
                    break
        return await self._ask_on(await _connect(service), message, service=service)

    async def _ask_on(self, line: Line, message: bytes, *, service: TokenService) -> Answer:
        try:
            answer = await line.ask(message)
        except BaseException:
            line.close()  # an answer may still come, and must not be taken for the next one's
            raise
        if service == self._service and line.open:
            self._idle.append(line)
        return answer


async def _connect(service: TokenService) -> Line:
    line = Line(limits=_LIMITS)
    await line.dial(service.host, service.port)
    return line


def _request(question: TokenQuestion) -> bytes:
    service = question.service
    host = f"[{service.host}]" if ":" in service.host else service.host
    kind = {"content-type": "application/json"}
    return request("POST", question.path, host=f"{host}:{service.port}", headers=kind, body=question.body)
