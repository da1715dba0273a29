"""Producers that count: tokens of a prompt, and the work that a request is."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from pointsman.epp.plugins.affinity import APPROX_PRODUCER
from pointsman.epp.plugins.api import (
    INFLIGHT_LOAD,
    PREFIX_MATCHES,
    TOKENIZED_PROMPT,
    Context,
    Endpoints,
    Key,
    Parameters,
    PrefixMatches,
    RequestCost,
)
from pointsman.epp.request import Needs, Prompt, Request


class EstimateBackend(Parameters):
    """Tokens as four bytes each; nothing to set."""


class TokenParameters(Parameters):
    """What `token-producer` takes."""

    model_name: str = ""
    estimate: EstimateBackend = EstimateBackend()
    vllm: Mapping[str, Any] | None = None
    uds_tokenizer_config: Mapping[str, Any] | None = None

    @field_validator("vllm", "uds_tokenizer_config")
    @classmethod
    def _not_yet(cls, value: object) -> object:
        if value is not None:
            raise ValueError("this tokenizer is not there yet in this version: leave it out, and tokens are estimated")
        return value


class TokenProducer:
    """Counts the prompt's tokens. The body's reader has estimated them; this makes them known under a name."""

    def __init__(self, _parameters: TokenParameters, *, context: Context) -> None:
        self._key = Key[Prompt](TOKENIZED_PROMPT, producer=context.name)
        self.produces = (self._key,)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt is wanted."""
        return Needs(body=True, prompt=True)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the prompt."""
        return {self._key.name: request.prompt} if request.prompt is not None else {}


class InflightLoadParameters(Parameters):
    """What `inflight-load-producer` takes."""

    add_estimated_output_tokens: bool = False
    output_ratio: float = Field(default=1.5, ge=0)
    max_estimated_output_tokens: int | None = Field(default=None, ge=0)
    prefix_match_info_producer_name: str = APPROX_PRODUCER
    sync_cross_replica_state: bool = True


class InflightLoadProducer:
    """Works out the tokens that a request costs at each endpoint.

    Counting what is in flight is the pool's business, for every configuration; this says how much one request adds.
    """

    def __init__(self, parameters: InflightLoadParameters, *, context: Context) -> None:
        self._parameters = parameters
        self._key = Key[RequestCost](INFLIGHT_LOAD, producer=context.name)
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self.produces: Sequence[Key[Any]] = (self._key,)
        self.prefers: Sequence[Key[Any]] = (self._matches,)  # used where there is one; nobody makes one for this

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt's length is wanted."""
        return Needs(body=True, prompt=True)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the cost, when the prompt is known."""
        prompt = request.prompt
        if prompt is None:
            return {}
        output = self._output(prompt) if self._parameters.add_estimated_output_tokens else 0
        cost = RequestCost(prompt=prompt.tokens, output=output, matches=self._matches.of(request))
        return {self._key.name: cost}

    def _output(self, prompt: Prompt) -> int:
        limits = (prompt.max_output_tokens, self._parameters.max_estimated_output_tokens)
        return min([round(prompt.tokens * self._parameters.output_ratio), *(each for each in limits if each)])
