"""Deciders: whether prefill or encode is worth another endpoint. Asked by the disaggregating profile handler."""

from pydantic import Field

from pointsman.epp.plugins.affinity import APPROX_PRODUCER
from pointsman.epp.plugins.api import PREFIX_MATCHES, Endpoints, Key, Parameters, PrefixMatches
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.request import Needs, Request


class PrefixBasedParameters(Parameters):
    """What `prefix-based-pd-decider` takes."""

    non_cached_tokens: int = Field(default=0, ge=0, description="Least uncached tokens for a remote prefill; 0: never.")
    prompt_tokens: int = Field(default=0, ge=0, description="Least prompt tokens for a remote prefill.")
    prefix_match_info_producer_name: str = APPROX_PRODUCER


class PrefixBasedDecider:
    """Prefill elsewhere when the decode endpoint would have to compute many tokens of the prompt."""

    def __init__(self, parameters: PrefixBasedParameters) -> None:
        self._uncached = parameters.non_cached_tokens
        self._prompt = parameters.prompt_tokens
        self._matches = Key[PrefixMatches](PREFIX_MATCHES, producer=parameters.prefix_match_info_producer_name)
        self.consumes = (self._matches,)

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt's length is wanted."""
        return Needs(body=True, prompt=True)

    def wants(self, request: Request, endpoint: EndpointView | None) -> bool:
        """Count blocks as they are, not as their tier is weighted: a block in RAM need not be computed either."""
        matches = self._matches.of(request)
        if not self._uncached or endpoint is None or matches is None or request.prompt is None:
            return False
        tokens = request.prompt.tokens
        cached = matches.cached.get(endpoint.target, 0) * matches.block_tokens
        return tokens >= self._prompt and tokens - cached >= self._uncached


class AlwaysPrefillDecider:
    """Always prefill elsewhere."""

    def wants(self, _request: Request, _endpoint: EndpointView | None) -> bool:
        """Return yes."""
        return True


class MultimodalDecider:
    """Encode elsewhere whenever there is an image, video or audio to encode."""

    def needs(self, _endpoints: Endpoints) -> Needs:
        """Return that the prompt is wanted."""
        return Needs(body=True, prompt=True)

    def wants(self, request: Request, _endpoint: EndpointView | None) -> bool:
        """Look at the prompt."""
        return request.prompt is not None and request.prompt.multimodal
