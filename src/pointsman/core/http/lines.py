"""Kept connections to one server, as many as there are questions at a time; and why there was no answer, in a word.

A kept connection may be closed by the server in the very moment in which it is used again, so a question that is lost
on one is asked once more on a new one. Nothing else is asked twice, and how long to wait is for whoever asks to say.
"""

import asyncio
from collections.abc import Awaitable

from pointsman.core.addresses import ServiceAddress
from pointsman.core.http.client import Answer, Line
from pointsman.core.http.limits import AnswerLimits


class Lines:
    """Asks one server."""

    def __init__(self, address: ServiceAddress, *, limits: AnswerLimits) -> None:
        self._address = address
        self._limits = limits
        self._idle: list[Line] = []
        self._closed = False

    async def ask(self, message: bytes) -> Answer:
        """Return the answer to a prepared request. Raises OSError when there is none."""
        while self._idle:
            line = self._idle.pop()
            if line.open:
                try:
                    return await self._ask_on(line, message)
                except ConnectionError:
                    break
        line = Line(limits=self._limits)
        await line.dial(self._address.host, self._address.port)
        return await self._ask_on(line, message)

    async def _ask_on(self, line: Line, message: bytes) -> Answer:
        try:
            answer = await line.ask(message)
        except BaseException:
            line.close()  # an answer may still come, and must not be taken for the next one's
            raise
        if self._closed:
            line.close()
        elif line.open:
            self._idle.append(line)
        return answer

    def close(self) -> None:
        """Hang up; what is under way ends first."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class NoAnswer(Exception):
    """There is none that is any good: what it counts as, and why."""

    def __init__(self, result: str, reason: str) -> None:
        super().__init__(reason)
        self.result = result


async def body_of(asking: Awaitable[Answer], *, seconds: float) -> bytes:
    """Return the body of an answer that comes in time, with status 200.

    Raises NoAnswer: `timeout`, `unreachable` or `refused`.
    """
    try:
        async with asyncio.timeout(seconds):
            status, body = await asking
    except TimeoutError:
        raise NoAnswer("timeout", f"no answer within {seconds:g} s") from None
    except OSError as error:
        raise NoAnswer("unreachable", error.strerror or str(error)) from None
    if status != 200:
        raise NoAnswer("refused", f"it answered {status}")
    return body
