"""Talk to one API server: JSON documents in and out, errors as classes, watches as lines.

Owns the HTTP side (paths, patch types, Retry-After, deadlines); keeps no cache and decides nothing. lightkube
brings kubeconfig files, credentials and TLS; documents stay plain dicts because building its dataclasses for
a list of 10,000 objects costs more than everything else here together.

Invariants: every write passes the fence first, so a process that lost its lease sends none; a request that
the server did not take (429, or 5xx with Retry-After) is repeated here, anything else is the caller's to
judge; a watch that is silent for longer than `stall` counts as broken, because a half-open TCP connection
looks exactly like a quiet one; no answer and no event of a watch is longer than we would hold.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Self

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from yaml import YAMLError

from pointsman.core.errors import UserError
from pointsman.core.kinds import Key, Kind, Object
from pointsman.core.numbers import whole
from pointsman.kube.errors import ApiError, Unreachable, from_status
from pointsman.kube.transport import Transport

PATCHES = {
    "apply": "application/apply-patch+yaml",  # JSON is YAML
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}
Patch = Literal["apply", "merge", "json"]
PATIENCE = 5  # times that one request waits for Retry-After before it gives up
MOST_BYTES = 512 << 20  # of an answer: a page of 500 objects, few of which have the megabyte that etcd allows
MOST_LINE = 32 << 20  # of a watch: one object
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Client:
    """One API server, one identity."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        *,
        fence: Callable[[], None] | None = None,
        observe: Callable[[str, str], None] | None = None,
    ) -> None:
        self._http = http
        self._fence = fence
        self._observe = observe

    def fenced(self, fence: Callable[[], None]) -> "Client":
        """Return a client on the same connections whose writes call `fence` first, which may raise."""
        return Client(self._http, fence=fence, observe=self._observe)

    def observed(self, observe: Callable[[str, str], None]) -> "Client":
        """Return a client on the same connections that reports the method and status code of every answer."""
        return Client(self._http, fence=self._fence, observe=observe)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, kind: Kind, key: Key) -> Object:
        """Return one object; raises NotFound."""
        return _document(await self.request("GET", kind.path(key.namespace, key.name)))

    async def create(self, kind: Kind, document: Object) -> Object:
        """Create the object; raises Stale when it exists."""
        namespace = document["metadata"].get("namespace", "")
        return _document(await self.request("POST", kind.path(namespace), body=document))

    async def replace(self, kind: Kind, document: Object) -> Object:
        """Write the whole object back on the resourceVersion that it carries; raises Stale."""
        metadata = document["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        return _document(await self.request("PUT", path, body=document))

    async def patch(
        self,
        kind: Kind,
        key: Key,
        body: Any,
        *,
        how: Patch,
        subresource: str = "",
        parameters: Mapping[str, str] | None = None,
    ) -> Object:
        """Patch one object or its subresource and return it as it is now."""
        path = kind.path(key.namespace, key.name, subresource=subresource)
        answer = await self.request("PATCH", path, body=body, parameters=parameters, content_type=PATCHES[how])
        return _document(answer)

    async def delete(self, kind: Kind, key: Key, *, uid: str = "", propagation: str = "Background") -> None:
        """Delete one object, and only the one with this uid; raises NotFound, or Stale when it is another."""
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self.request("DELETE", kind.path(key.namespace, key.name), body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        bearer: str = "",
        impersonate: str = "",
    ) -> bytes:
        """Send one request, wait as long as the server asks, and return the answer's bytes.

        `bearer` is the token of someone else, on whose behalf an anonymous client asks; `impersonate` is a user for
        whom our own account asks, if it may.
        """
        content = None if body is None else msgspec.json.encode(body)
        headers = {"accept": accept} | ({} if content is None else {"content-type": content_type})
        if bearer:
            headers["authorization"] = f"Bearer {bearer}"
        if impersonate:
            headers["impersonate-user"] = impersonate
        for attempt in range(PATIENCE + 1):
            if self._fence is not None and method in _WRITES:
                self._fence()
            try:
                async with self._http.stream(
                    method, path, content=content, params=parameters, headers=headers
                ) as answer:
                    said = await _whole(answer)
            except httpx2.HTTPError as error:
                raise Unreachable(f"{method} {path}: {error or type(error).__name__}") from error
            self._report(method, answer.status_code)
            if answer.is_success:
                return said
            refusal = _refusal(answer, said)
            if refusal.retry_after is None or attempt == PATIENCE:
                raise refusal
            await asyncio.sleep(refusal.retry_after)
        raise AssertionError

    @asynccontextmanager
    async def watch(
        self, path: str, *, parameters: Mapping[str, str], stall: float, accept: str = "application/json"
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and hand out its lines as they come.

        Raises ApiError when the server refuses it, Unreachable when the stream breaks or stays silent for
        `stall`. The last piece of a stream that ends inside a line is dropped: half an event is no event.
        """
        limit = httpx2.Timeout(10, read=stall)
        # A compressed watch would wait for the compressor to flush.
        headers = {"accept-encoding": "identity", "accept": accept}
        try:
            async with self._http.stream(
                "GET", path, params={**parameters, "watch": "1"}, timeout=limit, headers=headers
            ) as answer:
                self._report("WATCH", answer.status_code)
                if not answer.is_success:
                    raise _refusal(answer, await _whole(answer))
                yield _lines(answer.aiter_bytes())
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise Unreachable(f"watch of {path}: {error or type(error).__name__}") from error

    def _report(self, method: str, code: int) -> None:
        if self._observe is not None:
            self._observe(method, str(code))


def connect(kubeconfig: Path | None = None, *, context: str | None = None, anonymous: bool = False) -> Client:
    """Return a client for the file, or for what the environment says: Pod account, KUBECONFIG, home file.

    An anonymous one knows the server and has no credentials, neither a token nor a certificate.

    Raises UserError when there is no such configuration.
    """
    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        chosen = config.get(context)
    except (ConfigError, KeyError, TypeError, AttributeError, OSError, ValueError, YAMLError) as error:
        where = kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")
        said = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"no usable cluster configuration in {where}: {said}") from None
    assert chosen is not None
    user = User() if anonymous or chosen.user is None else chosen.user
    # Proxies of the environment are for the outside world; a watch through one is cut at its idle timeout.
    tls = verify_cluster(chosen.cluster, user, chosen.abs_file, trust_env=False)
    return Client(
        httpx2.AsyncClient(
            base_url=chosen.cluster.server,
            auth=user_auth(user),
            timeout=httpx2.Timeout(10, read=60),
            trust_env=False,
            transport=Transport(tls=tls),
        )
    )


def _document(answer: bytes) -> Object:
    document: Object = msgspec.json.decode(answer)
    return document


def _refusal(answer: httpx2.Response, said: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(said)
    except msgspec.DecodeError:
        status = {"message": said[:200].decode(errors="replace")}
    code = answer.status_code
    patience = _seconds(answer.headers.get("retry-after")) if code == 429 or code >= 500 else None
    return from_status(status if isinstance(status, dict) else {}, code=code, retry_after=patience)


def _seconds(header: str | None) -> float | None:
    return whole(header, most=3600) if header is not None else None


async def _whole(answer: httpx2.Response) -> bytes:
    """Return the whole body, unpacked. Raises httpx2.ReadError when it has no end that we would wait for."""
    pieces, size = [], 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise httpx2.ReadError(f"the answer is larger than {MOST_BYTES} bytes")
    return b"".join(pieces)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Hand out whole lines. Raises httpx2.ReadError when one is longer than any object can be."""
    begun: list[bytes] = []  # pieces of a line; joined once, so that a long one costs no more than its bytes
    size = 0
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > MOST_LINE:
            raise httpx2.ReadError(f"an event is larger than {MOST_LINE} bytes")
        for following in others:
            if line := b"".join(begun):
                yield line
            begun, size = [following], len(following)
