"""Who probably has which image, video or sound encoded: remembered from our own picks, one bounded memory per endpoint.

Unlike the blocks of a prompt, media do not depend on what comes before them: each is there or not.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from pointsman.core.families import Cell
from pointsman.epp.plugins.api import (
    ENCODER_MATCHES,
    RATIOS,
    Context,
    EncoderMatches,
    Endpoints,
    HeaderChanges,
    Key,
    Parameters,
    Results,
)
from pointsman.epp.request.request import MediaItem, Needs, Request

EMBEDDINGS_PRODUCER = "mm-embeddings-cache-producer"
_ITEM_MB = 2  # what llm-d takes one encoded item for


class EmbeddingsCacheParameters(Parameters):
    """What `mm-embeddings-cache-producer` takes."""

    or_default: ClassVar[frozenset[str]] = frozenset(("cache_size_in_mb_per_server",))

    cache_size_in_mb_per_server: int = Field(default=4096, gt=0, alias="cacheSizeInMBPerServer")


class EmbeddingsCacheProducer:
    """Finds out which images, videos and sounds each endpoint has encoded, by what was sent there before."""

    def __init__(self, parameters: EmbeddingsCacheParameters, *, context: Context) -> None:
        self._capacity = max(1, parameters.cache_size_in_mb_per_server // _ITEM_MB)
        self._key = Key[EncoderMatches](ENCODER_MATCHES, producer=context.name)
        self._memories: dict[str, OrderedDict[int, None]] = {}  # by target, oldest first
        self.produces = (self._key,)
        self.queries: Counter[str] = Counter()  # by modality
        self.hits: Counter[tuple[str, str]] = Counter()  # by endpoint and modality
        self.ratios = Cell(RATIOS)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the media are wanted."""
        return Needs(body=True, prompt=True, media=True)

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
        """Return the matches, when there is something to match."""
        items = request.prompt.items if request.prompt is not None else ()
        if not items:
            return {}
        self.queries.update(item.modality for item in items)
        matched: dict[str, int] = {}
        for endpoint in endpoints:
            memory: Mapping[int, None] = self._memories.get(endpoint.target, {})
            found = [item for item in items if item.hash in memory]
            self.ratios.observe(len(found) / len(items))
            if found:
                self.hits.update((endpoint.name, item.modality) for item in found)
                matched[endpoint.target] = _size(found)
        return {self._key.name: EncoderMatches(total=_size(items), matched=matched)}

    def before_send(self, request: Request, results: Results, primary: str) -> HeaderChanges | None:
        """Note who encodes: the endpoints of an encode stage, and where there is none, the one that serves."""
        if request.prompt is not None and request.prompt.items:
            encode, serve = results.get("encode"), results.get(primary)
            if encode is not None:
                self._note([endpoint.target for endpoint in encode.endpoints], request.prompt.items)
            elif serve is not None:
                self._note([serve.first.target], request.prompt.items)
        return None

    def _note(self, targets: Iterable[str], items: Sequence[MediaItem]) -> None:
        for target in targets:
            memory = self._memories.setdefault(target, OrderedDict())
            for item in items:
                memory[item.hash] = None
                memory.move_to_end(item.hash)
            while len(memory) > self._capacity:
                memory.popitem(last=False)

    def on_endpoints(self, targets: frozenset[str]) -> None:
        """Forget those that are gone."""
        for target in [each for each in self._memories if each not in targets]:
            del self._memories[target]


def _size(items: Iterable[MediaItem]) -> int:
    return sum(item.size for item in items)


class EmbeddingsCacheScorerParameters(Parameters):
    """What `mm-embeddings-cache-scorer` takes."""

    producer_name: str = EMBEDDINGS_PRODUCER


class EmbeddingsCacheScorer:
    """The more of the request's images, videos and sounds are encoded, the better: size of those / size of all."""

    def __init__(self, parameters: EmbeddingsCacheScorerParameters) -> None:
        self._matches = Key[EncoderMatches](ENCODER_MATCHES, producer=parameters.producer_name)
        self.consumes = (self._matches,)

    def score(self, request: Request, endpoints: Endpoints) -> Sequence[float]:
        """Return the share; 0 for everyone when there is nothing to share."""
        matches = self._matches.of(request)
        if matches is None or not matches.total:
            return [0.0] * len(endpoints)
        return [matches.matched.get(endpoint.target, 0) / matches.total for endpoint in endpoints]
