"""Plugins that answer in the model server's place: which models there are, and where a request would go."""

import json

from pointsman.epp.plugins.api import Endpoints
from pointsman.epp.request.refusals import Answer, ServiceUnavailable
from pointsman.epp.request.request import Request

_JSON = (("content-type", "application/json"),)


class ModelsResponder:
    """Answers `GET /v1/models` with the models of all endpoints, each once, by name; 503 while none gave a list."""

    wants_models = True  # so that endpoints are asked for theirs

    def answer(self, request: Request, endpoints: Endpoints) -> Answer | None:
        """Return the list, when that is what was asked for.

        Raises ServiceUnavailable.
        """
        if request.headers.get(":method", "GET") != "GET" or request.path.rstrip("/") != "/v1/models":
            return None
        listed: dict[str, str | None] = {}
        known = [each for each in sorted(endpoints, key=lambda each: each.id) if each.metrics.models is not None]
        if not known:
            raise ServiceUnavailable("no endpoint has said yet which models it serves")
        for endpoint in known:
            for model in endpoint.metrics.models or ():
                listed.setdefault(model, endpoint.metrics.adapters.get(model))
        data = [
            {"id": model, "object": "model", "owned_by": "llm-d", "parent": base}
            for model, base in sorted(listed.items())
        ]
        return Answer(200, headers=_JSON, body=json.dumps({"object": "list", "data": data}).encode())


class ReserveEndpoint:
    """Lets `Prefer: reserve-endpoint` ask where a request would go: 204 with the endpoint, and nothing is forwarded."""

    reserves = True

    def before_send(self, _request: Request, _results: object, _primary: str) -> None:
        """Do nothing: what is forwarded was not reserved."""
