"""/admin/config: the settings as they are, and a partial change of those that may change while serving.

A change is all or nothing: one key that is unknown or not open to change, or one value that does not fit, and the
answer is 400 with everything as before.
"""

from dataclasses import replace
from typing import Any

from pointsman.core.durations import format_duration
from pointsman.core.errors import UserError
from pointsman.core.http import Request, Response
from pointsman.sim.api.controls import reply
from pointsman.sim.failures import Refusal
from pointsman.sim.options import convert
from pointsman.sim.pod.pod import Pod
from pointsman.sim.settings import OPTIONS, Settings, check
from pointsman.sim.text import bodies


def show(pod: Pod, _request: Request) -> Response:
    """GET /admin/config."""
    return reply(document(pod.settings))


def document(settings: Settings) -> dict[str, Any]:
    """Return the settings under their flag names, durations as Go writes them."""
    shown: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        value = getattr(settings, option.name)
        shown[name] = format_duration(value) if option.metadata["kind"] == "duration" else value
    if settings.data_parallel_size > 1 or settings.pods > 1:
        del shown["port"]  # each has its own
    return shown


def change(pod: Pod, request: Request) -> Response:
    """POST /admin/config."""
    given = bodies.decode_any(request.body)
    if not isinstance(given, dict):
        raise Refusal(400, "The request body must be an object of setting names and values")
    try:
        pod.apply(check(replace(pod.settings, **_values(given, pod.settings))))
    except UserError as error:
        raise Refusal(400, str(error)) from None
    return reply(document(pod.settings))


def _values(given: dict[str, Any], settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in given.items():
        option = OPTIONS.get(key)
        if option is None or not option.metadata["admin"]:
            raise UserError(f"{key} cannot be changed while serving")
        values[option.name] = convert(key, value)
    if values.get("fake_metrics") is not None:
        values["fake_metrics"] = _more_fakes(values["fake_metrics"], settings)
    return values


def _more_fakes(given: Any, settings: Settings) -> Any:
    """Return the fake metrics with some of them changed; those that are not named stay."""
    return {**(settings.fake_metrics or {}), **given} if isinstance(given, dict) else given


def fake_metrics(pod: Pod, request: Request) -> Response:
    """POST /fake_metrics: the older way to change fake metrics."""
    try:
        given = bodies.decode_any(request.body)
        pod.apply(check(replace(pod.settings, fake_metrics=_more_fakes(given, pod.settings))))
    except (Refusal, UserError) as error:
        raise Refusal(500, str(error)) from None
    return Response(204, content_type=b"")
