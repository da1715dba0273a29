"""llm-d's latency predictor beside the picker: who is asked and told, and with which features.

Parameters win over the environment, whose names are the Go picker's; without either nobody is asked. The features are
the Go picker's too, because models are trained on them: what is in flight is our own count, what waits and how full a
cache is comes from the last scrape.
"""

from collections.abc import Mapping

from msgspec import UNSET

from pointsman.core.addresses import ServiceAddress, address_of
from pointsman.core.numbers import whole
from pointsman.epp.plugins.api import EncoderMatches, PrefixMatches
from pointsman.epp.pool.view import EndpointView
from pointsman.epp.request.predictions import Features, PredictionService, TrainingService
from pointsman.epp.request.request import Prompt

PREDICTION_URL = "PREDICTION_SERVER_URL"
TRAINING_URL = "TRAINING_SERVER_URL"
_MOST = 1_000_000  # of any number in the environment
_SAMPLES = 1000


def prediction_service(urls: str, *, seconds: float, environment: Mapping[str, str]) -> PredictionService | None:
    """Return whom to ask; `urls` have commas between them.

    Raises ValueError when one of the environment's is none.
    """
    addresses = addresses_of(urls) or _named(PREDICTION_URL, environment)
    if not addresses:
        return None
    dispatches = _number(environment, "LATENCY_MAX_CONCURRENT_DISPATCHES", default=4)
    return PredictionService(addresses=addresses, seconds=seconds, dispatches=dispatches)


def training_service(url: str, *, environment: Mapping[str, str]) -> TrainingService | None:
    """Return whom to tell.

    Raises ValueError when the environment's is none.
    """
    addresses = addresses_of(url) or _named(TRAINING_URL, environment)
    if not addresses:
        return None
    return TrainingService(
        address=addresses[0],
        every_seconds=_number(environment, "LATENCY_FLUSH_INTERVAL_SEC", default=1),
        seconds=_number(environment, "LATENCY_HTTP_TIMEOUT_SEC", default=10),
    )


def addresses_of(urls: str) -> tuple[ServiceAddress, ...]:
    """Return where URLs with commas between them lead.

    Raises ValueError when one is none.
    """
    return tuple(address_of(each.strip()) for each in urls.split(",") if each.strip())


def _named(name: str, environment: Mapping[str, str]) -> tuple[ServiceAddress, ...]:
    try:
        return addresses_of(environment.get(name, ""))
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def most_samples(environment: Mapping[str, str]) -> int:
    """Return how many samples are kept until they are sent."""
    return _number(environment, "LATENCY_MAX_SAMPLE_SIZE", default=_SAMPLES)


def _number(environment: Mapping[str, str], name: str, *, default: int) -> int:
    """Return a number above 0; the default for anything else, as the Go picker does."""
    return whole(environment.get(name, "").strip(), most=_MOST) or default


def features(
    prompt: Prompt,
    endpoint: EndpointView,
    *,
    role_label: str,
    generated: int,
    matches: PrefixMatches | None,
    media: EncoderMatches | None,
) -> Features:
    """Return what a prediction is made from, and what a model is trained on."""
    cached = matches.cached.get(endpoint.target, 0) / matches.total if matches is not None and matches.total else 0.0
    role = endpoint.labels.get(role_label, "") if role_label else ""
    return Features(
        kv_cache_percentage=min(max(endpoint.metrics.kv_usage, 0.0), 1.0),
        input_token_length=max(0, prompt.tokens),
        num_request_waiting=max(0, endpoint.metrics.waiting),
        num_request_running=endpoint.inflight_requests,
        num_tokens_generated=generated,
        prefix_cache_score=min(cached, 1.0),
        encoder_input_size=media.total if media is not None else 0,
        encoder_matched_size=min(media.matched.get(endpoint.target, 0), media.total) if media is not None else 0,
        pod_type=role or UNSET,
        prefill_tokens_in_flight=endpoint.inflight_tokens,
    )
