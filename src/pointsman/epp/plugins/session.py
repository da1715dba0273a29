"""Session affinity: the next request of a conversation goes where the last one went, if that endpoint is still there.

Two ways to know. The endpoint's id travels in a header of the response and comes back in the next request, so we
remember nothing; or a session id is found in the request and we remember its endpoint for a while.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from pointsman.epp.plugins.api import SESSION_ID, Context, Endpoints, HeaderChanges, Key, Parameters, Results
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Request

_MAX_SESSIONS = 100_000


class EncodedHeader(Parameters):
    """Where the endpoint's id travels."""

    header: str = "x-session-token"


class SessionSource(Parameters):
    """Where a session id is found: a header, or what a producer found out."""

    header: str = ""
    attribute: str = ""
    producer: str = "session-id-producer"

    @model_validator(mode="after")
    def _one(self) -> "SessionSource":
        if bool(self.header) == bool(self.attribute):
            raise ValueError("give exactly one of header and attribute")
        return self


class SessionIdConfig(Parameters):
    """How sessions are known and for how long."""

    or_default: ClassVar[frozenset[str]] = frozenset(
        (
            "eviction_ttl_seconds",
            "eviction_sweep_seconds",
        )
    )

    sources: tuple[SessionSource, ...] = (SessionSource(header="x-session-id"),)
    eviction_ttl_seconds: float = Field(default=300, gt=0)
    eviction_sweep_seconds: float = Field(default=10, gt=0)


class SessionParameters(Parameters):
    """What the session plugins take."""

    strategy: Literal["encoded_endpoint_header", "session_id"] = "encoded_endpoint_header"
    profile_name: str = ""
    encoded_endpoint_header_config: EncodedHeader = EncodedHeader()
    session_id_config: SessionIdConfig = SessionIdConfig()


class _Session:
    """What filter and scorer share: which endpoint the request's session belongs to."""

    def __init__(self, parameters: SessionParameters, *, context: Context) -> None:
        self._by_id = parameters.strategy == "session_id"
        self._profile = parameters.profile_name
        self._header = parameters.encoded_endpoint_header_config.header.lower()
        self._config = parameters.session_id_config
        self._clock = context.clock
        self._bound: OrderedDict[str, tuple[str, float]] = (
            OrderedDict()
        )  # session → endpoint id, last use; oldest first
        self.consumes: Sequence[Key[Any]] = tuple(
            Key[str](SESSION_ID, producer=source.producer)
            for source in self._config.sources
            if self._by_id and source.attribute
        )

    def _wanted(self, request: Request) -> str:
        """Return the id of the session's endpoint, or nothing."""
        if not self._by_id:
            return decode_token(request.headers.get(self._header, ""))
        bound = self._bound.get(self._session(request))
        return bound[0] if bound is not None and self._fresh(bound[1]) else ""

    def _fresh(self, used: float) -> bool:
        return self._clock() - used <= self._config.eviction_ttl_seconds

    def _session(self, request: Request) -> str:
        for source in self._config.sources:
            if source.header:
                found: str | None = request.headers.get(source.header.lower())
            else:
                found = Key[str](SESSION_ID, producer=source.producer).of(request)
            if found:
                return found
        return ""

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Bind the session to the pick, or anew only when its endpoint was not there to be picked."""
        session = self._session(request) if self._by_id else ""
        picked = results.get(self._profile or primary)
        if session and picked is not None:
            wanted = self._wanted(request)
            stays = wanted and any(endpoint.id == wanted for endpoint in picked.candidates)
            self._bound[session] = (wanted if stays else picked.first.id, self._clock())
            self._bound.move_to_end(session)
            self._sweep()
        return None

    def _sweep(self) -> None:
        """Drop what is too old; the oldest are in front, so this costs what it drops."""
        while self._bound:
            _, used = next(iter(self._bound.values()))
            if self._fresh(used) and len(self._bound) <= _MAX_SESSIONS:
                return
            self._bound.popitem(last=False)

    def on_response(self, _request: Request, endpoint: EndpointView) -> Sequence[tuple[str, str]]:
        """Give the client the token of the endpoint that answered."""
        return () if self._by_id else ((self._header, encode_token(endpoint.id)),)


class SessionAffinityScorer(_Session):
    """1 for the session's endpoint."""

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Compare ids."""
        wanted = self._wanted(request)
        if not wanted:
            return [0.0] * len(endpoints)
        return [1.0 if endpoint.id == wanted else 0.0 for endpoint in endpoints]


class SessionAffinityFilter(_Session):
    """Only the session's endpoint, while it is a candidate."""

    def filter(self, request: Request, endpoints: Endpoints) -> Endpoints:
        """Keep it, or all."""
        wanted = self._wanted(request)
        return [endpoint for endpoint in endpoints if endpoint.id == wanted] or endpoints if wanted else endpoints


def encode_token(endpoint_id: str) -> str:
    """Return the token for an endpoint's `namespace/name`."""
    return base64.b64encode(endpoint_id.encode()).decode()


def decode_token(token: str) -> str:
    """Return the endpoint's id in a token; nothing when it is not one."""
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


class SessionIdParameters(Parameters):
    """What `session-id-producer` takes."""

    header_name: str = ""
    cookie_name: str = ""

    @model_validator(mode="after")
    def _one(self) -> "SessionIdParameters":
        if bool(self.header_name) == bool(self.cookie_name):
            raise ValueError("give exactly one of headerName and cookieName")
        return self


class SessionIdProducer:
    """Finds the session's id in a header or a cookie."""

    def __init__(self, parameters: SessionIdParameters, *, context: Context) -> None:
        self._header = parameters.header_name.lower()
        self._cookie = parameters.cookie_name
        self._key = Key[str](SESSION_ID, producer=context.name)
        self.produces = (self._key,)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return it when there is one."""
        if self._header:
            found = request.headers.get(self._header, "")
        else:
            found = _cookie(request.headers.get("cookie", ""), self._cookie)
        return {self._key.name: found} if found else {}


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
