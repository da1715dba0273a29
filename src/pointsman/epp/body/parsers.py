"""Which API a request speaks, by its path.

A configuration names the parsers that it wants, in order; among those the longest path suffix wins, and a parser
without suffixes (`passthrough-parser`) takes what is left: parsers that are listed behind it are never asked. Paths are
compared in their one spelling (`paths`), so that none is served as one thing and read as another. What a JSON parser
reads is the same for all of them (`payload`), because their members do not collide; they differ in what they claim. The
gRPC parsers read messages (`grpc`); as gRPC needs HTTP/2, they are of no use for a pool whose `appProtocol` is `http`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pointsman.epp.body.paths import canonical
from pointsman.epp.request.refusals import BadRequest

_OTHER_PATHS = ("x-original-path", "x-forwarded-path")  # where there is no `:path`
_DEFAULT_PATH = "/v1/completions"
H2C = "kubernetes.io/h2c"
# Paths come from clients: so many are remembered, of such a length.
_REMEMBERED, _SHORT = 1024, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """What one parser type claims, and what it reads."""

    name: str
    suffixes: tuple[str, ...] = ()
    nameless: tuple[str, ...] = ()  # those of them that need not name a model
    reads: Literal["", "json", "vllm", "vertex"] = "json"
    wants_model: bool = True
    speaks: tuple[str, ...] = ("http", H2C)  # the protocols of a pool for which it is made; none for any
    unusual: bool = False  # its responses say what they cost in a way of their own


_ALL = (
    Parser(
        name="openai-parser",
        suffixes=(
            "chat/completions",
            "completions",
            "embeddings",
            "responses",
            "conversations",
            "images/generations",
            "chat/completions/render",
            "completions/render",
        ),
    ),
    Parser(
        name="anthropic-parser",
        suffixes=("messages", "messages/count_tokens"),
        nameless=("messages/count_tokens",),
    ),
    Parser(name="vllmhttp-parser", suffixes=("inference/v1/generate",)),
    Parser(name="sglanghttp-parser", suffixes=("generate",), wants_model=False, unusual=True),
    Parser(
        name="vllmgrpc-parser",
        suffixes=("vllm.grpc.engine.VllmEngine/Generate", "vllm.grpc.engine.VllmEngine/Embed"),
        reads="vllm",
        wants_model=False,
        unusual=True,
        speaks=(H2C,),
    ),
    Parser(
        name="vertexai-parser",
        suffixes=(
            "PredictionService/ChatCompletions",
            "PredictionService/RawPredict",
            "PredictionService/StreamRawPredict",
        ),
        reads="vertex",
        wants_model=False,
        speaks=(H2C,),
    ),
    Parser(name="passthrough-parser", reads="", speaks=()),
)
PARSERS: Mapping[str, Parser] = {parser.name: parser for parser in _ALL}
DEFAULT = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")


def contradiction(names: Sequence[str], *, protocol: str) -> str:
    """Return why these parsers cannot be right for a pool of an `appProtocol`; nothing when one of them can."""
    parsers = [PARSERS[name] for name in names]
    if any(protocol in parser.speaks or not parser.speaks for parser in parsers):
        return ""
    spoken = " or ".join(sorted({each for parser in parsers for each in parser.speaks}))
    what = f"the pool's appProtocol is {protocol!r}, and {', '.join(names)} wants {spoken}"
    return f"{what}: change the pool's appProtocol or the configuration's requestHandler.parsers"


def path_of(headers: Mapping[str, str]) -> str:
    """Return the path that a request came with, in its one spelling.

    Raises BadRequest when a slash is encoded in it.
    """
    return canonical(_target(headers))


def _target(headers: Mapping[str, str]) -> str:
    return headers.get(":path") or next(filter(None, map(headers.get, _OTHER_PATHS)), _DEFAULT_PATH)


class ParserChoice:
    """The parsers of one configuration."""

    def __init__(self, names: Sequence[str] = DEFAULT) -> None:
        parsers = [PARSERS[name] for name in dict.fromkeys(names)]
        last = next((at for at, parser in enumerate(parsers) if not parser.suffixes), len(parsers))
        claims = [
            (suffix, replace(parser, wants_model=False) if suffix in parser.nameless else parser)
            for parser in parsers[:last]
            for suffix in parser.suffixes
        ]
        self._claims = sorted(claims, key=lambda claim: -len(claim[0]))
        self._fallback = parsers[last] if last < len(parsers) else None
        self._known: dict[str, Parser] = {}

    def choose(self, headers: Mapping[str, str]) -> Parser:
        """Return the parser for a request.

        Raises BadRequest when none claims its path, or a slash is encoded in it.
        """
        target = _target(headers)
        return self._known.get(target) or self._search(target)

    def _search(self, target: str) -> Parser:
        path = canonical(target)
        # A gRPC service has its package before it: /google.cloud.aiplatform.v1.PredictionService/RawPredict.
        claims = (parser for suffix, parser in self._claims if path.endswith((f"/{suffix}", f".{suffix}")))
        parser = next(claims, self._fallback)
        if parser is None:
            raise BadRequest(f"no parser claims the path {path[:_SHORT]}")
        if len(self._known) < _REMEMBERED and len(target) <= _SHORT:
            self._known[target] = parser
        return parser
