"""From what Envoy sent to a `Request`: which parser, and which facts of the body. Pure."""

from collections.abc import Mapping
from functools import lru_cache

from pointsman.epp.body.parsers import DEFAULT, Parser, ParserChoice
from pointsman.epp.body.parts import Reading
from pointsman.epp.request.request import Needs, Rendered, Request
from pointsman.epp.request.rewrites import Rewritten


@lru_cache(maxsize=64)
def _choice(names: tuple[str, ...]) -> ParserChoice:
    return ParserChoice(names or DEFAULT)


def choose_parser(headers: Mapping[str, str], *, needs: Needs) -> Parser:
    """Return who reads the body.

    Raises BadRequest when no parser of the configuration claims the path.
    """
    return _choice(needs.parsers).choose(headers)


def add_body(request: Request, reading: Reading, *, target: Rewritten, rendered: Rendered | None = None) -> Request:
    """Return the request with what its body says, in the tokens of a tokenizer service where there are some.

    `target` is the model that is to serve it, and the rule that says so.
    """
    return Request(
        id=request.id,
        headers=request.headers,
        subset=request.subset,
        size=len(reading.body),
        wants_model=reading.wants_model,
        model=reading.model,
        target_model=target.model,
        rewrite=target.rewrite,
        prompt=reading.prompt(rendered, target=target.model),
    )
