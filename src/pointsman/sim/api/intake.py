"""From a plan to a job: who serves it, whether it may, and what it will say.

This is the one code path for meaning behind all generation routes. Every check raises a `Refusal` before anything was
sent or queued; after that the job belongs to the pod. What the answer says is decided here in full, so that it does
not depend on when it runs.
"""

from functools import partial

from pointsman.sim import failures
from pointsman.sim.api import plans
from pointsman.sim.api.images import ImageWriter
from pointsman.sim.api.plans import Plan
from pointsman.sim.engine.chance import Chance
from pointsman.sim.engine.engine import TooLarge
from pointsman.sim.engine.latency import sample
from pointsman.sim.failures import Refusal
from pointsman.sim.jobs.job import Caller, Job
from pointsman.sim.jobs.spec import ChoiceSpec, Spec
from pointsman.sim.pod.pod import Pod
from pointsman.sim.text import schemas, tools
from pointsman.sim.text.answers import Answer, cut, echo, echo_ids, random_answer
from pointsman.sim.text.prompts import Prompt

# What a prefill pod hands to the decode pod. There is no memory behind it, hence the names.
TRANSFER = {
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_block_ids": ["DUMMY_ID"],
    "remote_engine_id": "DUMMY_ID",
    "remote_host": "DUMMY",
    "remote_port": 1234,
    "tp_size": 1,
}
MOST_TOKENS = 4_000_000  # of one request; answers are made up whole, so this bounds what a request can cost
ENCODED = {"peer_host": "DUMMY", "peer_port": 1234, "size_bytes": 2359296, "nixl_agent_metadata_b64": "RFVNTVk="}


def resolve(pod: Pod, model: str | None) -> tuple[str, str | None]:
    """Return the name to show, and the adapter if the model is one.

    Raises Refusal 404 when nothing here has that name.
    """
    names = pod.settings.names
    if model is None or model in names:
        return names[0], None
    if model in pod.loras:
        return model, model
    raise Refusal(404, f"The model `{model}` does not exist.", param="model")


def accept(pod: Pod, plan: Plan, *, request: Caller, request_id: str, headers: bytes) -> None:
    """Start the job that the plan describes.

    Raises Refusal when it cannot be served.
    """
    settings = pod.settings
    failure = failures.injected(settings, request_id=request_id)
    if failure is not None:
        raise failure
    shown, lora = resolve(pod, plan.model)
    plans.validate(plan)
    if plan.tools and not settings.skip_tool_validation:
        tools.check(plan.tools)
    spec = _spec(pod, plan, request_id=request_id, model=shown, lora=lora, headers=headers)
    writer, pause = plan.writer, None
    if settings.omni and plan.images:
        seconds = _image_time(pod, spec, asked=_is_true(request.headers.get(b"x-send-image")))
        if seconds is not None:
            writer, pause = ImageWriter, partial(pod.loop.call_later, seconds)
    forced = _is_true(request.headers.get(b"x-cache-threshold-finish-reason"))
    silent = forced or _below_threshold(pod, spec, plan)
    if silent:
        spec = spec.without_words("cache_threshold")
    done = partial(_keep, pod) if plan.keeps else pod.jobs.discard
    job = Job(request, spec, writer(spec), done=done, pause=pause)
    if silent:
        job.answer_at_once()
    else:
        _start(pod, job, plan)


def _keep(pod: Pod, job: Job) -> None:
    """Let go of a job, but keep its whole answer for those who ask again."""
    pod.jobs.discard(job)
    if job.choices:
        pod.answers.put(job.spec.id, job.writer.whole(job.choices))


def _is_true(value: bytes | None) -> bool:
    """Read a header as Go reads a truth."""
    return value in {b"1", b"t", b"T", b"true", b"TRUE", b"True"}


def _image_time(pod: Pod, spec: Spec, *, asked: bool) -> float | None:
    """Return how long the image takes that the answer ends with; None when there is none: not asked for, nor drawn."""
    settings = pod.settings
    chance = Chance(settings.seed, spec.id, "image")
    if len(spec.choices) > 1 or spec.choices[0].calls or not (asked or chance.happens(settings.image_emission_rate)):
        return None
    mean, deviation = settings.time_to_generate_image, settings.time_to_generate_image_std_dev
    return sample(mean, deviation=deviation, chance=chance)


def _start(pod: Pod, job: Job, plan: Plan) -> None:
    remote = bool(plan.transfer and plan.transfer.do_remote_prefill)
    try:
        pod.start(job, remote=remote, priority=plan.priority)
    except TooLarge as error:
        pod.abort(job)
        raise Refusal(400, f"The request does not fit: {error}") from None


def _below_threshold(pod: Pod, spec: Spec, plan: Plan) -> bool:
    threshold = pod.settings.global_cache_hit_threshold if plan.threshold is None else plan.threshold
    if not threshold or not pod.settings.enable_kvcache:
        return False
    return any(pod.cached_share(choice.prompt, lora=spec.lora) < threshold for choice in spec.choices)


def _spec(pod: Pod, plan: Plan, *, request_id: str, model: str, lora: str | None, headers: bytes) -> Spec:
    """Return the whole answer, and what goes wrong with it."""
    settings = pod.settings
    handed_over = bool(plan.transfer and plan.transfer.do_remote_decode)
    choices = _choices(pod, plan, request_id=request_id, reason="remote_decode" if handed_over else None)
    mishap = failures.NO_MISHAP
    if settings.hang_rate or settings.abort_rate:
        mishap = failures.mishap(settings, request_id=request_id, tokens=choices[0].tokens)
    encoded = {name: ENCODED for each in choices for name in each.prompt.media} if settings.mm_encoder_only else None
    return Spec(
        id=request_id,
        model=model,
        lora=lora,
        created=int(pod.wall()),
        streaming=plan.streaming,
        headers=headers,
        choices=choices,
        max_tokens=plan.max_tokens,
        usage_wanted=plan.usage_wanted,
        usage_details=settings.enable_kvcache,
        kv_transfer=TRANSFER if handed_over else None,
        media=encoded,
        hangs=mishap.hangs,
        cut_at=mishap.cut_at,
    )


def _choices(pod: Pod, plan: Plan, *, request_id: str, reason: str | None) -> tuple[ChoiceSpec, ...]:
    """Return every prompt's answers: n of them, grouped by prompt; they end for their own reasons, or for this one."""
    prompts = plan.prompts()
    if not pod.room_for(len(prompts) * plan.n):  # before anything is made up for them
        raise Refusal(429, "Failed to enqueue request, waiting requests queue is full")
    if len(prompts) * plan.n * (plan.max_tokens or 0) > MOST_TOKENS:
        raise Refusal(400, f"One request may ask for at most {MOST_TOKENS} tokens over all its choices")
    found: list[ChoiceSpec] = []
    for prompt in prompts:
        _check_window(prompt, limit=plan.max_tokens, window=pod.settings.max_model_len)
        for _ in range(plan.n):
            drawn_by = request_id if plan.seed is None else f"seed {plan.seed} {prompt.text or prompt.echo}"
            chance = Chance(pod.settings.seed, drawn_by, len(found), "answer")
            calls = _calls(pod, plan, chance)
            answer = _spoken(calls) if calls else _cut_to_fit(_answer(pod, prompt, plan, chance), prompt, pod.capacity)
            found.append(ChoiceSpec(prompt, answer, reason or answer.finish_reason, calls))
    return tuple(found)


def _check_window(prompt: Prompt, *, limit: int | None, window: int) -> None:
    wanted = prompt.count + (limit or 1)
    if wanted > window:
        raise Refusal(
            400,
            f"This model's maximum context length is {window} tokens. However, you requested {wanted} tokens "
            f"({prompt.count} in the messages, {wanted - prompt.count} in the completion). "
            "Please reduce the length of the messages or completion.",
        )


def _calls(pod: Pod, plan: Plan, chance: Chance) -> list[tools.Token]:
    if not (plan.tools or plan.tool_choice) or (plan.tool_style == "responses" and plan.tools_answered):
        return []
    made = tools.calls(plan.tools, choice=plan.tool_choice, style=plan.tool_style, chance=chance, settings=pod.settings)
    return list(tools.call_tokens(made))


def _spoken(made: list[tools.Token]) -> Answer:
    return Answer([piece or "" for _, piece, _ in made], "tool_calls")


def _cut_to_fit(answer: Answer, prompt: Prompt, capacity: int | None) -> Answer:
    """Return what the KV cache has room for; an engine that is full ends an answer, it does not refuse it."""
    if capacity is None or prompt.count + len(answer.pieces) <= capacity:
        return answer
    room = max(capacity - prompt.count, 1)
    return Answer(answer.pieces[:room], "length", answer.ids[:room])


def _answer(pod: Pod, prompt: Prompt, plan: Plan, chance: Chance) -> Answer:
    settings = pod.settings
    if settings.mm_encoder_only:
        return Answer(["!"] * (plan.max_tokens or 1), "length")
    if plan.shape is not None:
        most = plan.max_tokens or settings.max_model_len - prompt.count
        limited = plan.max_tokens is not None
        answer = plan.shape.answer(chance, bounds=schemas.bounds_of(settings), most=most, limited=limited)
        return _stopped(answer, plan)
    if settings.mode == "echo":
        answer = _echo(prompt, plan)
    else:
        room = settings.max_model_len - prompt.count
        source = pod.dataset.answer if pod.dataset is not None else None
        answer = (
            source(prompt, chance, max_tokens=plan.max_tokens, room=room, ignore_eos=plan.ignore_eos)
            if source is not None
            else random_answer(chance, max_tokens=plan.max_tokens, room=room, ignore_eos=plan.ignore_eos)
        )
    return _stopped(answer, plan)


def _stopped(answer: Answer, plan: Plan) -> Answer:
    """End an answer before the first of its stop texts, whatever shape it has: an engine looks at text alone."""
    return cut(answer, stop=plan.stop) if plan.stop and not plan.ignore_eos else answer


def _echo(prompt: Prompt, plan: Plan) -> Answer:
    if plan.as_ids or not prompt.text:
        return echo_ids(prompt.ids, max_tokens=plan.max_tokens)
    return echo(prompt.echo, max_tokens=plan.max_tokens)
