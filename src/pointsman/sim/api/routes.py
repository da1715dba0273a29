"""The routes of a pod, as one table.

Generation routes share one path behind `intake`; the others are functions of `controls` and `admin`. A request that
is refused gets vLLM's error body at the status that caused it, before anything else was sent.
"""

import re
from collections.abc import Callable
from urllib.parse import unquote

from pointsman.core.http import Request, Response, header_lines
from pointsman.core.lines import cut
from pointsman.core.numbers import whole
from pointsman.sim.api import admin, controls, intake, openapi, plans, traffic
from pointsman.sim.api.plans import Plan
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.job import Caller
from pointsman.sim.pod.pod import Pod

Control = Callable[[Pod, Request], Response]
Reader = Callable[[bytes], Plan]

GENERATION: dict[str, Reader] = {
    "/v1/chat/completions": plans.chat,
    "/v1/completions": plans.completion,
    "/v1/responses": plans.responses,
    "/v1/messages": plans.messages,
    "/inference/v1/generate": plans.generate,
}
CONTROLS: dict[str, dict[str, Control]] = {
    "/v1/models": {"GET": controls.models},
    "/v1/embeddings": {"POST": controls.embeddings},
    "/v1/load_lora_adapter": {"POST": controls.load_lora},
    "/v1/unload_lora_adapter": {"POST": controls.unload_lora},
    "/v1/chat/completions/render": {"POST": controls.render_chat},
    "/v1/completions/render": {"POST": controls.render_completion},
    "/v1/messages/count_tokens": {"POST": controls.count_tokens},
    "/tokenize": {"POST": controls.tokenize},
    "/detokenize": {"POST": controls.detokenize},
    "/health": {"GET": controls.health},
    "/health/ready": {"GET": controls.ready},
    "/ping": {"GET": controls.health, "POST": controls.health},
    "/version": {"GET": controls.version},
    "/load": {"GET": controls.server_load},
    "/metrics": {"GET": controls.metrics},
    "/sleep": {"POST": controls.sleep},
    "/wake_up": {"POST": controls.wake_up},
    "/is_sleeping": {"GET": controls.is_sleeping},
    "/reset_prefix_cache": {"POST": controls.reset_prefix_cache},
    "/query": {"GET": controls.query},
    "/admin/config": {"GET": admin.show, "POST": admin.change},
    "/openapi.json": {"GET": openapi.show},
    "/fake_metrics": {"POST": admin.fake_metrics},
}
_SLASHES = re.compile("//+")  # clients that join a base with a slash to a path with one
NAMED: dict[str, Callable[[Pod, str], Response]] = {
    "/v1/models/": controls.model,
    "/v1/responses/": controls.past_response,
}
"""What is behind a name at the end of the path."""
_FREQUENT = frozenset({"/metrics", "/health", "/health/ready"})


class Routes:
    """What one pod serves."""

    def __init__(self, pod: Pod, *, identity: dict[str, str]) -> None:
        self.pod = pod
        self.identity = header_lines(identity)
        self.controls = dict(CONTROLS)
        if pod.settings.mm_encoder_only:
            del self.controls["/v1/embeddings"]

    def __call__(self, request: Request) -> Response | None:
        """Answer a request, or take it on."""
        if not self.pod.settings.log_http:
            return self._answer(request, caller=request)
        traffic.log_request(request)
        answer = self._answer(request, caller=traffic.Logged(request))
        if answer is not None:
            traffic.log_response(answer)
        return answer

    def _answer(self, request: Request, *, caller: Caller) -> Response | None:
        path = request.path
        if path not in GENERATION and path not in self.controls:
            path = _SLASHES.sub("/", path)
        headers, request_id = self.identity, ""
        if self.pod.settings.enable_request_id_headers and path not in _FREQUENT:
            request_id = request.headers.get(b"x-request-id", b"").decode("latin-1") or self.pod.next_id()
            headers += header_lines({"X-Request-Id": request_id})
        try:
            if path in GENERATION:
                self._generate(request, GENERATION[path], caller=caller, request_id=request_id, headers=headers)
                return None
            answer = self._control(request, path)
        except Refusal as refusal:
            allowed = header_lines({"allow": refusal.allowed}) if refusal.allowed else b""
            return refusal.response(allowed + headers)
        if path in _FREQUENT:  # those who ask one pod by its address, and often, know who answers
            return answer
        return Response(answer.status, answer.body, answer.content_type, answer.headers + headers)

    def _control(self, request: Request, path: str) -> Response:
        methods = self.controls.get(path)
        if methods is None:
            for prefix, control in NAMED.items():
                if path.startswith(prefix) and len(path) > len(prefix) and request.method in {"GET", "HEAD"}:
                    return control(self.pod, unquote(request.path[len(prefix) :]))
            raise Refusal(404, f"There is no {request.path} here")
        known = methods.get("GET" if request.method == "HEAD" else request.method)
        if known is None:
            raise _wrong_method(request, ", ".join(methods))
        return known(self.pod, request)

    def _generate(self, request: Request, reader: Reader, *, caller: Caller, request_id: str, headers: bytes) -> None:
        if request.method != "POST":
            raise _wrong_method(request, "POST")
        pod = self.pod
        if pod.stopping:
            raise Refusal(503, "server is shutting down")
        plan = reader(request.body)
        if pod.sleeping:
            raise Refusal(503, "The engine is sleeping: wake it with POST /wake_up")
        _asked_for_error(request)
        intake.accept(pod, plan, request=caller, request_id=request_id or pod.next_id(), headers=headers)


def _wrong_method(request: Request, allowed: str) -> Refusal:
    return Refusal(405, f"{request.path} takes {allowed}", allowed=allowed)


def _asked_for_error(request: Request) -> None:
    wanted = request.headers.get(b"x-return-error")
    if wanted is None:
        return
    status = whole(wanted, most=599)
    if status is None or status < 200:
        text = cut(wanted.decode("latin-1"), most=50)
        raise Refusal(400, f"Invalid X-Return-Error header value {text!r}: must be an integer, an HTTP status")
    raise Refusal(status, f"Simulated error triggered by X-Return-Error header (code {status})")
