"""Which model a session was last served by: a scorer that goes by it, and what is read of responses to know it.

A session is a header of the request. It belongs to the model that the response names, and the response says its id, so
that a client that sent none has one for its next request. So the head of a response waits until its `model` has been
seen, which is near its beginning; a stream of events, and what is compressed, does not wait and counts for the model
that was asked for. A response that names no model, an error for instance, changes nothing.

State is of this process alone, and bounded: the sessions that were used least go, and each after its time.
"""

import hashlib
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec
from pydantic import Field, ValidationInfo, field_validator

from pointsman.epp.bbr.members import MemberScanner
from pointsman.epp.bbr.models import Model
from pointsman.epp.plugins.api import Parameters
from pointsman.wire.protobuf import Data

_MODEL = frozenset(("model",))
_MOST_HELD = 64 << 10  # bytes of a response that are held to see its model
_LONGEST_KEY = 64  # of an id that is kept as it is


class SessionParameters(Parameters):
    """What `session-affinity` takes."""

    session_id_key: str = Field(default="x-session-id", description="The header that names the session.")
    max_sessions: int = Field(default=10_000, le=1_000_000)
    ttl_seconds: int = Field(default=3600, description="How long a session is remembered after its last response.")

    @field_validator("session_id_key", "max_sessions", "ttl_seconds")
    @classmethod
    def _or_default(cls, value: str | int, info: ValidationInfo) -> object:
        """Take nothing, and a number that is not above 0, for the default, as the Go router does."""
        default = cls.model_fields[info.field_name or ""].default
        if isinstance(value, str):
            return value.lower() or default
        return value if value > 0 else default


class Sessions:
    """The models of sessions."""

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[bytes | str, tuple[str, float]] = OrderedDict()  # model, when; least used first
        self.evictions = 0

    def model_of(self, session: str) -> str:
        """Return the model of a session; nothing when it has none, or too old a one."""
        key = _key(session)
        found = self._known.get(key)
        if found is None:
            return ""
        if self._clock() - found[1] > self._seconds:
            self._evict(key)
            return ""
        self._known.move_to_end(key)
        return found[0]

    def bind(self, session: str, model: str) -> None:
        """Note who served a session."""
        key = _key(session)
        self._known[key] = (model, self._clock())
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._evict(next(iter(self._known)))

    def _evict(self, key: bytes | str) -> None:
        del self._known[key]
        self.evictions += 1

    def __len__(self) -> int:
        """Return how many are remembered, having forgotten those that are too old."""
        now = self._clock()
        for key in [key for key, (_, when) in self._known.items() if now - when > self._seconds]:
            self._evict(key)
        return len(self._known)


def _key(session: str) -> bytes | str:
    """Return an id as it is kept: clients choose how long it is, and must not choose what it costs us."""
    if len(session) <= _LONGEST_KEY:
        return session
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).digest()


class SessionAffinity:
    """The model that served the session before."""

    def __init__(self, parameters: SessionParameters, *, clock: Callable[[], float], rng: random.Random) -> None:
        self._rng = rng
        self.header = parameters.session_id_key
        self.sessions = Sessions(most=parameters.max_sessions, seconds=parameters.ttl_seconds, clock=clock)
        self.hits = 0
        self.misses = 0

    def score(self, received: Mapping[str, str], models: Sequence[Model]) -> Sequence[float]:
        """Return 1 for that model; 0 for all when there is no session, or it is new, or its model is no candidate."""
        session = received.get(self.header, "")
        last = self.sessions.model_of(session) if session else ""
        self.hits += bool(last)
        self.misses += bool(session) and not last
        return [1.0 if last and model.name == last else 0.0 for model in models]

    def answered(self, received: Mapping[str, str], model: str) -> tuple[str, str]:
        """Bind the request's session, or a new one, to a model; return the header that tells the client its id."""
        session = received.get(self.header, "") or str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        self.sessions.bind(session, model)
        return self.header, session


class AnsweredBy:
    """One response up to its model."""

    __slots__ = ("_held", "_parts", "_plugins", "_received", "_scanner", "_sent", "waits")

    def __init__(self, plugins: Sequence[SessionAffinity], *, received: Mapping[str, str], sent: object) -> None:
        self._plugins = plugins
        self._received = received
        self._sent = sent  # the model that was asked for
        self._scanner = MemberScanner(_MODEL)
        self._parts: list[bytes] = []
        self._held = 0
        self.waits = False  # for the model, with the head of the response

    def head(self, headers: Mapping[str, str], *, end: bool) -> Sequence[tuple[str, str]]:
        """Take the head; return what to add to it, or nothing: then perhaps it `waits`."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" or headers.get("content-encoding", "identity") != "identity":
            ok = headers.get(":status", "200") == "200"
            return self._found(self._sent) if ok else ()
        self.waits = not end
        return ()

    def part(self, part: Data, *, end: bool) -> Sequence[tuple[str, str]]:
        """Take a part of the body while it waits; return what to add to the head once that is known."""
        piece = bytes(part)
        self._parts.append(piece)
        self._held += len(piece)
        self._scanner.feed(piece)
        raw = self._scanner.found.get("model")
        if raw is not None:
            self.waits = False
            return self._found(_text(raw))
        self.waits = not end and self._held <= _MOST_HELD
        return ()

    def take(self) -> bytes:
        """Return what of the body was held, and hold it no more."""
        parts, self._parts = self._parts, []
        self.waits = False
        return b"".join(parts)

    def _found(self, model: object) -> Sequence[tuple[str, str]]:
        if not isinstance(model, str) or not model:
            return ()
        return [each.answered(self._received, model) for each in self._plugins]


def _text(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
