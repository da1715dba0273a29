"""From what Envoy sent to a `Request`: which parser, how much of the body, which facts. Pure."""

from collections.abc import Mapping
from functools import lru_cache

from pointsman.epp.jsonscan import splice_member
from pointsman.epp.parsers import DEFAULT, Parser, ParserChoice
from pointsman.epp.payload import read_payload
from pointsman.epp.rename import json_string
from pointsman.epp.request import Needs, Request


@lru_cache(maxsize=64)
def _choice(names: tuple[str, ...]) -> ParserChoice:
    return ParserChoice(names or DEFAULT)


def choose_parser(headers: Mapping[str, str], *, needs: Needs) -> Parser:
    """Return who reads the body.

    Raises BadRequest when no parser of the configuration claims the path.
    """
    return _choice(needs.parsers).choose(headers)


def read_request(request: Request, body: bytes, *, needs: Needs) -> Request:
    """Return the request with what its body says.

    Raises BadRequest when the body is not what its API takes.
    """
    payload = read_payload(body, needs=needs)
    return Request(
        id=request.id,
        headers=request.headers,
        subset=request.subset,
        size=len(body),
        wants_model=True,
        model=payload.model,
        target_model=payload.model,
        prompt=payload.prompt,
    )


def name_model(body: bytes, model: str) -> bytes:
    """Return the body asking for another model, and otherwise as the client wrote it."""
    return splice_member(body, "model", json_string(model))
