"""The controller of LLMInferenceService, for clusters without KServe: render, converge, ask, report.

Owns no decision about the objects (that is `render.serving`) and none about conditions (`llmfindings`). It keeps the
certificate, asks the picker for a handshake and the gateway for an answer before it says that they are ready, and
stands down where KServe's own controller is installed: two controllers of one resource would undo each other's work.

What cannot be combined, or goes beyond the administrator's policy, changes nothing: what runs goes on as it was, and
the condition says why.
"""

import base64
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from pointsman.api.llminferenceservice import CONFIG, SERVICE, LLMInferenceService
from pointsman.core.errors import PointsmanError
from pointsman.kube import (
    Condition,
    Conflict,
    Controller,
    Key,
    Object,
    Result,
    Retry,
    Runtime,
    Source,
    View,
    Watch,
    merge,
    owned,
    owner_of,
)
from pointsman.kube.errors import ApiError, NotFound
from pointsman.kube.store import Entry
from pointsman.operator import kinds, llmfindings, probes
from pointsman.operator.facts import ClusterFacts, ServerVersion
from pointsman.operator.llmcertificates import certificate
from pointsman.operator.llmfindings import LLMFindings, ObservedService
from pointsman.operator.probes import Reach
from pointsman.operator.standingdown import KSERVE, stands_down
from pointsman.render.manifests.facts import Facts
from pointsman.render.manifests.policy import Policy, refusal
from pointsman.render.serving import pickerconfig
from pointsman.render.serving.combine import CombineError
from pointsman.render.serving.names import NAME, OF_A_SERVICE, PART_OF
from pointsman.render.serving.service import LLMStack, ServingCluster, llm_stack
from pointsman.render.serving.settings import ServingSettings

WORKERS = 16
_LOOK_AGAIN = 30.0  # at what no event tells: a ConfigMap that is referred to
_CERTIFICATES_AGE = 600.0
_SOON = 1.0
_PICKER_PORT, _GATEWAY_PORT = 9002, 80
_BY_SERVICE = "service"
_SHARED = "config-scheduler-"
"""What names of ConfigMaps begin with that an administrator may keep for all namespaces."""


@dataclass(frozen=True)
class _Trouble:
    """Why a service could not be made what it should be."""

    reason: str
    message: str
    error: PointsmanError | None = None


class LLMInferenceServices:
    """Reconciles LLMInferenceServices."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        server: Callable[[], ServerVersion],
        policy: Policy,
        settings: ServingSettings,
        reach: Reach = probes.itself,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._policy = policy
        self._settings = settings
        self._reach = reach
        self._sight = ClusterFacts()
        self._spoken: dict[Key, tuple[str, str]] = {}
        """Of each service the certificate and revision of the picker that was last asked, and what was wrong."""

    def controller(self, *, namespace: str = "") -> Controller:
        """Return the controller, for all namespaces or one."""
        ownership, narrowed = kinds.LLM_OWNERSHIP, kinds.LLM_OWNERSHIP.selector
        # Of routes and pools others' objects matter too, since a service may name them.
        labels = {kind: "" if kind in {kinds.HTTP_ROUTE, kinds.INFERENCE_POOL} else narrowed for kind in kinds.SERVED}
        made = [
            owned(
                kind, owner=SERVICE, ownership=ownership, source=Source(kind, namespace=namespace, labels=labels[kind])
            )
            for kind in kinds.SERVED
        ]
        pods = Source(kinds.POD, namespace=namespace, labels=f"{PART_OF}={OF_A_SERVICE}")
        webhooks = Source(kinds.WEBHOOKS, fields=f"metadata.name={KSERVE}", metadata_only=True)
        watches = (
            *made,
            Watch(pods, _service_of, indexes={_BY_SERVICE: _by_service}),
            Watch(Source(CONFIG, namespace=namespace), _everyone),
            Watch(Source(kinds.GATEWAY, namespace=namespace), _everyone),
            Watch(Source(kinds.GATEWAY_CLASS), _everyone),
            Watch(webhooks, _everyone),
        )
        name = f"llminferenceservice-{namespace}" if namespace else "llminferenceservice"
        source = Source(SERVICE, namespace=namespace)
        return Controller(name, source, self.reconcile, watches=watches, workers=WORKERS)

    async def reconcile(self, key: Key, view: View) -> Result | None:
        """Make one service what its resource says, and its status what is true."""
        live = view.get(SERVICE, key)
        if live is None:
            self._spoken.pop(key, None)
            return None
        if "deletionTimestamp" in live["metadata"]:
            return None
        if await stands_down(self._runtime, live, view):
            return None
        stack = await self._render(live, view)
        if isinstance(stack, _Trouble):
            return await self._fail(live, stack, combined=False)
        if stack.breaches:
            message = refusal(stack.breaches)
            return await self._fail(live, _Trouble("LimitExceeded", message), combined=True)
        return await self._serve(live, stack, view)

    async def _serve(self, live: Object, stack: LLMStack, view: View) -> Result | None:
        pods = [
            item.read() for item in view.find(kinds.POD, _BY_SERVICE, f"{stack.names.namespace}/{stack.names.service}")
        ]
        facts, now = self._facts(view), self._runtime.wall()
        secret, condition = certificate(stack, view, pods=pods, facts=facts, now=now) if stack.objects else (None, None)
        objects = (*stack.objects, *([secret] if secret is not None else []))
        trouble = await self._converge(live, objects)
        if trouble is not None:
            await self._fail(live, trouble, combined=True)
            raise trouble.error or Retry(trouble.message)
        if not stack.objects:
            await self._report(live, llmfindings.stopped(stack))
            return None
        sight = await self._look(live, stack, view, pods=pods, certificate=condition)
        found = llmfindings.look(stack, sight)
        await self._report(live, replace(found, conditions=(*found.conditions, *self._blindness())))
        waits = bool(sight.handshake or sight.answer)
        return Result(again=_SOON if waits else _LOOK_AGAIN if stack.config_ref else _CERTIFICATES_AGE)

    # What to make

    async def _render(self, live: Object, view: View) -> LLMStack | _Trouble:
        """Return the service's objects, or why there are none."""
        try:
            resource = LLMInferenceService.model_validate(live)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            return _Trouble("InvalidRenderedConfig", f"{field}: {first['msg']}")
        cluster = ServingCluster(facts=self._facts(view), settings=self._settings, policy=self._policy)
        configs = self._configs(resource.metadata.namespace, view)
        try:
            stack = llm_stack(resource, live, cluster, configs=configs)
            if stack.config_ref is not None:
                text = await self._config(resource.metadata.namespace, *stack.config_ref)
                given = {"/".join(stack.config_ref): text}
                stack = llm_stack(resource, live, cluster, configs=configs, picker_configs=given)
        except CombineError as error:
            return _Trouble(error.reason, str(error))
        except NotFound:
            name, key = stack.config_ref or ("", "")
            message = f"spec.router.scheduler.config.ref names key {key!r} of ConfigMap {name!r}, which is not there"
            return _Trouble("ConfigNotFound", f"{message}: create it, or correct the reference")
        wrong = _bad_config(stack)
        return _Trouble("InvalidRenderedConfig", wrong) if wrong else stack

    def _facts(self, view: View) -> Facts:
        found = self._sight.facts(view, self._server())
        return replace(found, cert_manager=view.state(kinds.CERTIFICATE) == "following")

    def _configs(self, namespace: str, view: View) -> dict[str, Mapping[str, Any]]:
        """Return the configs that a service of a namespace finds: its own before the system's."""
        found: dict[str, Mapping[str, Any]] = {}
        for where in (self._settings.system_namespace, namespace):
            found |= {one["metadata"]["name"]: one.get("spec") or {} for one in view.all(CONFIG, namespace=where)}
        return found

    async def _config(self, namespace: str, name: str, key: str) -> str:
        """Return the picker's configuration out of a ConfigMap. Raises NotFound."""
        try:
            live = await self._runtime.client.get(kinds.CONFIG_MAP, Key(namespace, name))
        except NotFound:
            if not name.startswith(_SHARED):
                raise
            live = await self._runtime.client.get(kinds.CONFIG_MAP, Key(self._settings.system_namespace, name))
        text = (live.get("data") or {}).get(key)
        if text is None:
            raise NotFound(f"ConfigMap {name} has no key {key}", code=404)
        return str(text)

    # Making it

    async def _converge(self, live: Object, objects: Iterable[Object]) -> _Trouble | None:
        owner = owner_of(SERVICE, live)
        there = [kind for kind in kinds.SERVED if self._runtime.view.state(kind) != "absent"]
        try:
            await self._runtime.applier.converge(owner, list(objects), kinds=there)
        except Conflict as error:
            return self._told(live, "Conflict", str(error), Retry(str(error), delay=5.0))
        except ApiError as error:
            if isinstance(error, NotFound) or "custom resource definition is terminating" in str(error):
                raise Retry(str(error), delay=0.5) from None
            return self._told(live, "Refused", f"the API server refused an object of the service: {error}", error)
        return None

    def _told(self, live: Object, reason: str, message: str, error: PointsmanError) -> _Trouble:
        self._runtime.events.record(live, reason=reason, message=message, severity="Warning")
        return _Trouble(reason, message, error)

    # Asking

    async def _look(
        self, live: Object, stack: LLMStack, view: View, *, pods: Sequence[Object], certificate: Condition | None
    ) -> ObservedService:
        uid, names = live["metadata"]["uid"], stack.names
        here = names.namespace
        deployments = {
            item.key.name: item.read() for item in view.find(kinds.DEPLOYMENT, kinds.LLM_OWNERSHIP.label, uid)
        }
        sight = ObservedService(
            deployments=deployments,
            pods=pods,
            gateways={key: found for key in stack.gateways if (found := view.get(kinds.GATEWAY, Key(*key)))},
            routes={name: found for name in stack.routes if (found := view.get(kinds.HTTP_ROUTE, Key(here, name)))},
            pools={stack.pool: found}
            if stack.pool and (found := view.get(kinds.INFERENCE_POOL, Key(here, stack.pool)))
            else {},
            certificate=certificate,
        )
        return replace(
            sight, handshake=await self._spoke(stack, sight, view), answer=await self._answered(stack, sight)
        )

    async def _spoke(self, stack: LLMStack, sight: ObservedService, view: View) -> str:
        """Return what is wrong with TLS to the picker; asked again when the picker or its certificate is another."""
        names = stack.names
        deployment = sight.deployments.get(names.picker, {})
        if not stack.picker_tls or not deployment.get("status", {}).get("availableReplicas"):
            return ""
        secret = view.get(kinds.SECRET, Key(names.namespace, names.certificate)) or {}
        mine = str((secret.get("data") or {}).get("tls.crt", ""))
        asked = f"{deployment['metadata'].get('generation')} {mine}"
        key = Key(names.namespace, names.service)
        before, wrong = self._spoken.get(key, ("", ""))
        if before == asked and not wrong:
            return ""
        host = f"{names.picker_service}.{names.namespace}.svc.{self._facts(view).domain}"
        found = await probes.handshake(*self._reach(host, _PICKER_PORT))
        self._spoken[key] = asked if _is(found.certificate, mine) else "", found.problem
        return found.problem

    async def _answered(self, stack: LLMStack, sight: ObservedService) -> str:
        """Return what is wrong with a request through our own gateway; asked when all else is ready."""
        if not stack.gateway_url or not all(
            sight.deployments.get(one.name, {}).get("status", {}).get("availableReplicas") for one in stack.components
        ):
            return ""
        where = urlsplit(stack.gateway_url)
        path = f"{where.path}/v1/models"
        return await probes.answers(where.hostname or "", where.port or _GATEWAY_PORT, path, reach=self._reach)

    # Reporting

    async def _fail(self, live: Object, trouble: _Trouble, *, combined: bool) -> Result:
        known = live.get("status", {}).get("conditions") or []
        self._runtime.events.record(live, reason=trouble.reason, message=trouble.message, severity="Warning")
        found = llmfindings.failed(trouble.reason, trouble.message, known=known, combined=combined)
        status = {name: value for name, value in live.get("status", {}).items() if name in {"url", "addresses"}}
        await self._write(live, status, found.conditions)
        return Result(again=_LOOK_AGAIN)

    def _blindness(self) -> list[Condition]:
        """Say what may not be read: it is left out, and nobody would know why."""
        seen = (*kinds.SERVED, kinds.POD, kinds.GATEWAY, kinds.GATEWAY_CLASS, kinds.WEBHOOKS, CONFIG)
        unread = [str(kind) for kind in seen if self._runtime.view.state(kind) == "forbidden"]
        message = (
            f"the operator may not read {', '.join(unread)}; what depends on it is left out: grant it (config/llm)"
        )
        return [Condition("ClusterAccess", "False", "Forbidden", message)] if unread else []

    async def _report(self, live: Object, found: LLMFindings) -> None:
        addresses = [{"name": name, "url": url} for name, url in found.addresses]
        status: dict[str, Any] = {"addresses": addresses} if addresses else {}
        if found.url:
            status["url"] = found.url
        await self._write(live, status, found.conditions)

    async def _write(self, live: Object, status: Mapping[str, Any], found: Iterable[Condition]) -> None:
        findings = list(found)
        generation = live["metadata"].get("generation", 0)
        spoken = {finding.type for finding in findings}
        known = [one for one in live.get("status", {}).get("conditions") or [] if one["type"] in spoken]
        conditions = merge(known, findings, generation=generation, now=self._runtime.wall())
        whole = {"observedGeneration": generation, **status, "conditions": conditions}
        try:
            await self._runtime.applier.status(SERVICE, live, whole)
        except NotFound:  # it went while we looked, which is nothing to complain of
            pass


def _bad_config(stack: LLMStack) -> str:
    """Return what is wrong with the picker's configuration, wherever it came from."""
    for document in stack.objects:
        if document["kind"] != "Deployment" or document["metadata"]["name"] != stack.names.picker:
            continue
        for container in document["spec"]["template"]["spec"].get("containers") or ():
            args = [str(word) for word in container.get("args") or ()]
            if "--config-text" in args[:-1]:
                text = args[args.index("--config-text") + 1]
                return "; ".join(pickerconfig.problems(text, where="spec.router.scheduler.config"))
    return ""


def _is(shown: bytes, written: str) -> bool:
    """Tell whether the certificate that a server showed is the one in a Secret; without a Secret any is."""
    if not written:
        return True
    try:
        return ssl.PEM_cert_to_DER_cert(base64.b64decode(written).decode()) == shown
    except ValueError:
        return False


def _by_service(item: Entry) -> Iterable[str]:
    name = (item.meta.labels or {}).get(NAME)
    return () if name is None else (f"{item.key.namespace}/{name}",)


def _service_of(item: Entry, _: View) -> Iterable[Key]:
    return [Key(item.key.namespace, value.partition("/")[2]) for value in _by_service(item)]


def _everyone(_: Entry, view: View) -> Iterable[Key]:
    return [item.key for item in view.entries(SERVICE)]
