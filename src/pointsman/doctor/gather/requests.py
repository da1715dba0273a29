"""Requests through a gateway, as a client sends them, and who answered."""

import asyncio
import http.client
import json
import ssl
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pointsman.core.kinds import Object, key_of
from pointsman.doctor.cluster.completions import COMPLETIONS, asked_at
from pointsman.doctor.cluster.facts import Probe
from pointsman.doctor.cluster.objects import at, each
from pointsman.doctor.cluster.path import Path
from pointsman.render.envoy.addresses import Address

_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where requests go, and what they look like."""

    address: Address
    host: str = ""
    path: str = COMPLETIONS
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False
    model: str = "random"
    seconds: float = 15.0
    """How long an answer is waited for."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request, and what came back."""

    request: str
    probe: Probe


def listener_of(path: Path) -> Object:
    """Return the listener of the Gateway that a client uses: the first that speaks HTTP, else HTTPS."""
    listeners = each(path.gateway, "spec", "listeners")
    plain = [one for one in listeners if one.get("protocol") == "HTTP"]
    return (plain or listeners or [{}])[0]


def target_of(path: Path, address: Address, *, model: str) -> Target:
    """Return a request that the path's rule takes."""
    listener = listener_of(path)
    names = [str(one) for one in at(path.route, "spec", "hostnames") or []] or [str(listener.get("hostname") or "")]
    match = (each(path.rule_document, "matches") or [{}])[0]
    headers = {
        str(one.get("name")): str(one.get("value"))
        for one in each(match, "headers")
        if one.get("type", "Exact") == "Exact"
    }
    return Target(
        address=address,
        host=names[0].replace("*", "doctor"),
        path=asked_at(path.rule_document),
        headers=headers,
        tls=listener.get("protocol") == "HTTPS",
        model=model,
    )


async def send(target: Target, prompt: str, *, tokens: int = 1) -> Sent:
    """Send one request."""
    name = str(uuid.uuid4())
    return Sent(request=name, probe=await asyncio.to_thread(_post, target, prompt, name=name, tokens=tokens))


def _post(target: Target, prompt: str, *, name: str, tokens: int) -> Probe:
    began = time.monotonic()
    connection = _connection(target)
    try:
        body = json.dumps({"model": target.model, "prompt": prompt, "max_tokens": tokens})
        headers = {"content-type": "application/json", "x-request-id": name, **target.headers}
        connection.request("POST", target.path, body=body, headers={**headers, **_host(target)})
        answer = connection.getresponse()
        text = answer.read(_SHOWN).decode(errors="replace").strip()
        why = "" if answer.status == 200 else f"status {answer.status}{': ' + text if text else ''}"
        probe = Probe(status=answer.status, answered=answer.getheader("x-inference-pod") or "", why=why)
    except (OSError, http.client.HTTPException) as error:
        probe = Probe(status=None, why=f"no answer: {error or type(error).__name__}")
    finally:
        connection.close()
    return replace(probe, seconds=time.monotonic() - began)


def _connection(target: Target) -> http.client.HTTPConnection:
    where = (target.address.host, target.address.port)
    if not target.tls:
        return http.client.HTTPConnection(*where, timeout=target.seconds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the way is what is asked about
    return http.client.HTTPSConnection(*where, timeout=target.seconds, context=context)


def _host(target: Target) -> dict[str, str]:
    return {"host": target.host} if target.host else {}


def find_model(page: Any) -> str:
    """Return the first model of a `/v1/models` page."""
    listed = page.get("data") if isinstance(page, dict) else None
    return str(listed[0].get("id", "")) if isinstance(listed, list) and listed and isinstance(listed[0], dict) else ""


def name_of(pods: tuple[Object, ...], address: str) -> str:
    """Return the Pod at an address, by name; the address itself when no Pod is there."""
    host = address.rpartition(":")[0] or address
    for pod in pods:
        if at(pod, "status", "podIP") == host or key_of(pod).name == address.partition("-rank-")[0]:
            return key_of(pod).name
    return address
