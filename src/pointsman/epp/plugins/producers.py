"""Producers that count: tokens of a prompt, and the work that a request is."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pointsman.core.addresses import address_of
from pointsman.epp.plugins.affinity import APPROX_PRODUCER
from pointsman.epp.plugins.api import (
    INFLIGHT_LOAD,
    OUTLEN_BUCKET,
    PREFIX_MATCHES,
    TOKENIZED_PROMPT,
    Context,
    Endpoints,
    Key,
    Parameters,
    PrefixMatches,
    RequestCost,
)
from pointsman.epp.plugins.detectors import Seconds
from pointsman.epp.plugins.estimates import EstimateBackend
from pointsman.epp.request.request import Needs, Prompt, Request, TokenService


class VllmBackend(Parameters):
    """A vLLM, or `vllm launch render`, that tokenizes."""

    url: str = "http://localhost:8000"
    timeout: Annotated[Seconds, Field(gt=0)] = 5.0
    mm_timeout: Annotated[Seconds, Field(gt=0)] = 30.0

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        address_of(url)
        return url


class TokenParameters(Parameters):
    """What `token-producer` takes. A `modelName` alone asks a vLLM at its default address, as llm-d does."""

    model_name: str = ""
    estimate: EstimateBackend = EstimateBackend()
    vllm: VllmBackend | None = None
    uds_tokenizer_config: Mapping[str, Any] | None = None

    @field_validator("uds_tokenizer_config")
    @classmethod
    def _is_gone(cls, value: object) -> object:
        if value is not None:
            raise ValueError("this tokenizer is gone in llm-d too: use vllm, or leave it out and tokens are estimated")
        return value

    @model_validator(mode="after")
    def _has_model(self) -> Self:
        if self.vllm is not None and not self.model_name:
            raise ValueError("modelName is missing: vllm has to be told which model's tokens to give")
        return self


class TokenProducer:
    """Makes the prompt with its tokens known: estimated, or those that a vLLM gives.

    It asks nobody itself: it says whom to ask, and the tokens are in the request before anything is decided.
    """

    def __init__(self, parameters: TokenParameters, *, context: Context) -> None:
        self._key = Key[Prompt](TOKENIZED_PROMPT, producer=context.name)
        self._estimates = parameters.estimate.estimates()
        self._service = _service(parameters)
        self.produces = (self._key,)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt is wanted."""
        return Needs(body=True, prompt=True, estimates=self._estimates, tokenizer=self._service)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the prompt."""
        return {self._key.name: request.prompt} if request.prompt is not None else {}


def _service(parameters: TokenParameters) -> TokenService | None:
    if not parameters.model_name:
        return None
    vllm = parameters.vllm or VllmBackend()
    address = address_of(vllm.url)
    return TokenService(
        host=address.host,
        port=address.port,
        prefix=address.prefix,
        model=parameters.model_name,
        seconds=vllm.timeout,
        media_seconds=vllm.mm_timeout,
    )


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
        bucket = Key[str](OUTLEN_BUCKET, producer="outlen-bucket")
        self.prefers: Sequence[Key[Any]] = (self._matches, bucket)  # used where there are; nobody makes one for this

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt's length is wanted."""
        return Needs(body=True, prompt=True)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the cost, when the prompt is known."""
        prompt = request.prompt
        if prompt is None:
            return {}
        output = self._output(request, prompt) if self._parameters.add_estimated_output_tokens else 0
        cost = RequestCost(
            prompt=prompt.tokens, output=output, media=prompt.media_tokens, matches=self._matches.of(request)
        )
        return {self._key.name: cost}

    def _output(self, request: Request, prompt: Prompt) -> int:
        """Return how long an answer is by its bucket, where a plugin knows it, else by the prompt's length."""
        limits = (prompt.max_output_tokens, self._parameters.max_estimated_output_tokens)
        bucket = request.attributes.get(OUTLEN_BUCKET)
        expected = _BUCKETS.get(str(bucket)) if bucket is not None else None
        if expected is None:
            expected = round(prompt.tokens * self._parameters.output_ratio)
        return min([expected, *(each for each in limits if each)])


_BUCKETS = {"LONG": 4096, "UNKNOWN": 1000, "SHORT": 100}  # tokens, as llm-d takes them


class OutlenBucket:
    """Guesses how long an answer will be: LONG with thinking, SHORT with tools or a low limit, else UNKNOWN."""

    def __init__(self) -> None:
        self.produces = (Key[str](OUTLEN_BUCKET, producer="outlen-bucket"),)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt, and what says how long its answer is, are wanted."""
        return Needs(body=True, prompt=True, hints=True)

    def produce(self, request: Request, _endpoints: Endpoints) -> Mapping[str, object]:
        """Return the bucket."""
        prompt = request.prompt
        if prompt is None:
            return {}
        hints, limit = prompt.hints, prompt.max_output_tokens
        if hints is not None and (hints.thinking or (hints.thinking is None and hints.budget > _LONG_BUDGET)):
            return {OUTLEN_BUCKET: "LONG"}
        short = (hints is not None and hints.tools) or (limit is not None and 0 < limit < _SHORT_LIMIT)
        return {OUTLEN_BUCKET: "SHORT" if short else "UNKNOWN"}


_LONG_BUDGET, _SHORT_LIMIT = 4000, 500
