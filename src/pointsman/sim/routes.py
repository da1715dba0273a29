"""The routes of a pod: from an HTTP request to an answer, or to a job in the engine.

Generation routes share one path (`_generate`), whatever their shape; the others answer at once. A request that is
refused is answered with vLLM's error body, at the status that caused it, before anything else was sent.
"""

from collections.abc import Callable

import msgspec

from pointsman.core.http import Request, Response, header_lines
from pointsman.core.logs import get_logger
from pointsman.sim import failures, plans
from pointsman.sim.answers import Answer, cut, echo, random_answer
from pointsman.sim.chance import Chance
from pointsman.sim.engine import TooLarge
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs import Job
from pointsman.sim.plans import Plan
from pointsman.sim.pod import Pod
from pointsman.sim.prompts import Prompt

Route = Callable[[Request], Response | None]
_LOG = get_logger(__name__)
TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Routes:
    """What one pod serves."""

    def __init__(self, pod: Pod, *, identity: dict[str, str]) -> None:
        self.pod = pod
        self.identity = header_lines(identity)
        self.table: dict[str, dict[str, Route]] = {
            "/v1/chat/completions": {"POST": self._generation(plans.chat)},
            "/v1/completions": {"POST": self._generation(plans.completion)},
            "/v1/models": {"GET": self._models},
            "/health": {"GET": self._health},
            "/health/ready": {"GET": self._ready},
            "/metrics": {"GET": self._metrics},
        }

    def __call__(self, request: Request) -> Response | None:
        """Answer a request, or take it on."""
        methods = self.table.get(request.path)
        if methods is None:
            return Refusal(404, f"There is no {request.path} here").response()
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allowed = header_lines({"allow": ", ".join(methods)})
            return Refusal(405, f"{request.path} takes {', '.join(methods)}").response(allowed)
        try:
            return route(request)
        except Refusal as refusal:
            return refusal.response(self.identity)

    # generation

    def _generation(self, read: Callable[[bytes], Plan]) -> Route:
        return lambda request: self._generate(request, read)

    def _generate(self, request: Request, read: Callable[[bytes], Plan]) -> None:
        pod, settings = self.pod, self.pod.settings
        if pod.stopping:
            raise Refusal(503, "server is shutting down")
        plan = read(request.body)
        request_id, headers = self._identify(request)
        _asked_for_error(request)
        failure = failures.injected(settings, request_id=request_id, model=plan.model or settings.names[0])
        if failure is not None:
            raise failure
        shown, lora = self._resolve(plan.model)
        plans.validate(plan)
        job = Job(
            request,
            id=request_id,
            model=shown,
            lora=lora,
            created=int(pod.wall()),
            streaming=plan.streaming,
            headers=headers,
        )
        job.usage_wanted = plan.usage_wanted
        job.usage_details = settings.enable_kvcache
        job.max_tokens = plan.max_tokens
        self._plan_choices(job, plan)
        job.writer = plan.writer(job)
        if not pod.room_for(len(job.choices)):
            raise Refusal(429, "Failed to enqueue request, waiting requests queue is full")
        remote = bool(plan.transfer and plan.transfer.do_remote_prefill)
        try:
            pod.start(job, remote=remote, priority=plan.priority)
        except TooLarge as error:
            pod.abort(job)
            raise Refusal(400, f"The request does not fit: {error}") from None

    def _identify(self, request: Request) -> tuple[str, bytes]:
        request_id = self.pod.next_id()
        if not self.pod.settings.enable_request_id_headers:
            return request_id, self.identity
        given = request.headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given or request_id
        return request_id, self.identity + header_lines({"X-Request-Id": request_id})

    def _resolve(self, model: str | None) -> tuple[str, str | None]:
        """Return the name to show and the adapter, if the model is one."""
        settings = self.pod.settings
        if model is None or model in settings.names:
            return settings.names[0], None
        if model in self.pod.loras:
            return model, model
        raise Refusal(404, f"The model `{model}` does not exist.")

    def _plan_choices(self, job: Job, plan: Plan) -> None:
        settings = self.pod.settings
        for prompt in plan.prompts():
            wanted = prompt.count + (plan.max_tokens or 1)
            if wanted > settings.max_model_len:
                raise Refusal(
                    400,
                    f"This model's maximum context length is {settings.max_model_len} tokens. However, you requested "
                    f"{wanted} tokens ({prompt.count} in the prompt, {wanted - prompt.count} in the completion). "
                    "Please reduce the length of the prompt or completion.",
                )
            for _ in range(plan.n):
                chance = Chance(settings.seed, job.id, len(job.choices), "answer")
                job.add(prompt=prompt, answer=self._answer(prompt, plan, chance))

    def _answer(self, prompt: Prompt, plan: Plan, chance: Chance) -> Answer:
        settings = self.pod.settings
        if settings.mode == "echo":
            answer = echo(prompt.echo, max_tokens=plan.max_tokens)
        else:
            room = settings.max_model_len - prompt.count
            answer = random_answer(chance, max_tokens=plan.max_tokens, room=room, ignore_eos=plan.ignore_eos)
        return cut(answer, stop=plan.stop) if plan.stop and not plan.ignore_eos else answer

    # the rest

    def _models(self, _request: Request) -> Response:
        pod, settings = self.pod, self.pod.settings
        entry = {"object": "model", "created": int(pod.wall()), "owned_by": "vllm"}
        window = {"max_model_len": settings.max_model_len}
        base = [{"id": name, **entry, "root": settings.model, "parent": None, **window} for name in settings.names]
        adapters = [
            {"id": name, **entry, "root": path, "parent": settings.names[0], **window}
            for name, path in pod.loras.items()
        ]
        document = {"object": "list", "data": base + adapters}
        return Response(body=msgspec.json.encode(document), headers=self.identity)

    def _health(self, _request: Request) -> Response:
        return Response(body=b"{}")

    def _ready(self, _request: Request) -> Response:
        pod = self.pod
        if pod.stopping or pod.clock() - pod.started < pod.settings.startup_duration:
            raise Refusal(503, "The server is not ready yet")
        return Response(body=b"{}")

    def _metrics(self, _request: Request) -> Response:
        return Response(body=self.pod.page(), content_type=TEXT)


def _asked_for_error(request: Request) -> None:
    wanted = request.headers.get(b"x-return-error")
    if wanted is None:
        return
    text = wanted.decode("latin-1")
    if not text.isascii() or not text.isdigit() or not 100 <= int(text) <= 599:
        raise Refusal(400, f"X-Return-Error must be an HTTP status, not {text!r}")
    raise Refusal(int(text), f"Error {text} as asked for by X-Return-Error")
