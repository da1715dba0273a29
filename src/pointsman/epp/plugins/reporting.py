"""What is told about a request: to the proxy, what its answer cost; to everybody else, whose it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.plugins.expressions import BadExpression, parse
from pointsman.epp.request.request import Request

_NAMESPACE = "envoy.lb"


class AttributeKey(Parameters):
    """Where the proxy finds a value."""

    namespace: str = Field(default="", description="envoy.lb when it is left out.")
    name: str = Field(min_length=1)


class ReportedAttribute(Parameters):
    """One value, and when it is reported."""

    key: AttributeKey
    expression: str = Field(min_length=1)
    condition: str = ""

    @field_validator("expression", "condition")
    @classmethod
    def _is_read(cls, text: str) -> str:
        if text:
            try:
                parse(text)
            except BadExpression as error:
                raise ValueError(f"cannot be read: {error}") from None
        return text


class ReporterParameters(Parameters):
    """What `request-attribute-reporter` takes."""

    attributes: tuple[ReportedAttribute, ...] = Field(min_length=1)


class RequestAttributeReporter:
    """Tells the proxy, as dynamic metadata with the end of a response, numbers worked out from the response's usage."""

    def __init__(self, parameters: ReporterParameters) -> None:
        self._attributes = [
            (each.key, parse(each.expression), parse(each.condition) if each.condition else None)
            for each in parameters.attributes
        ]

    def report(self, _request: Request, usage: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
        """Return the values by namespace and name; what cannot be worked out is left out."""
        found: dict[str, dict[str, float]] = {}
        for key, value, condition in self._attributes:
            try:
                if condition is None or condition({"usage": usage}):
                    number = float(int(value({"usage": usage})))
                    found.setdefault(key.namespace or _NAMESPACE, {})[key.name] = number
            except (LookupError, TypeError, ArithmeticError, ValueError):
                continue
        return found


class AgentIdentityParameters(Parameters):
    """What `agent-identity` takes."""

    additional_session_headers: tuple[str, ...] = ()


class AgentIdentity:
    """Finds whose conversation a request is part of, in the headers of agents: its fairness id, if it has none."""

    headers: Sequence[str] = ("x-claude-code-session-id", "x-session-affinity", "session-id", "session_id")

    def __init__(self, parameters: AgentIdentityParameters) -> None:
        self._headers = (*(name.lower() for name in parameters.additional_session_headers), *self.headers)

    def identify(self, request: Request) -> str:
        """Return the session; nothing when no header names one."""
        return next((found for name in self._headers if (found := request.headers.get(name))), "")
