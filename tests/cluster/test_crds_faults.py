"""Definitions when things go wrong: two owners, interruptions, servers that restart, rights that are missing."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from tests.bystander import watched
from tests.cluster.controlplane import ControlPlane
from tests.cluster.definitions import ALL, ALPHA, ONE, V1, Console, definition, deployment, pool, version, write
from tests.cluster.operators import account_config, operating
from tests.cluster.packages import ROOT, overlay
from tests.cluster.test_epp_discovery import make_pod, picker, targets
from tests.releases import release
from tests.waiting import eventually, until
from tests.wire.test_grpcio import headers

from pointsman.api.inference import POOL
from pointsman.core.documents import read_yaml
from pointsman.core.errors import Unavailable
from pointsman.core.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from pointsman.core.kinds import Key
from pointsman.crds import Definition, Intent, our_definitions
from pointsman.crds.marks import MANAGER, STAMP
from pointsman.epp.sources.kube import PODS
from pointsman.kube import Client, Kind, Object, Runtime, connect
from pointsman.kube.conditions import truth_of
from pointsman.operator.crds import COMPATIBLE, OWNED, OWNERSHIP, InferenceDefinitions
from pointsman.operator.definitions import Definitions
from pointsman.operator.kinds import DEPLOYMENT

THING = Kind("example.dev", "v1", "Thing", "things")
INTENT = Intent()
POOLS = [one for one in our_definitions() if one.name in {V1, ALPHA}]


@pytest.fixture
def console(bare: ControlPlane) -> Iterator[Console]:
    """A cluster without any definition."""
    console = Console(bare, bare.kubeconfig("admin"))
    yield console
    if str(THING) in console.there():  # what a failed test left must not keep the others from beginning
        console.patch(str(THING), {"spec": {"conversion": {"strategy": "None", "webhook": None}}})
    console.clear()


@asynccontextmanager
async def owning(console: Console, **options: Any) -> AsyncIterator[Runtime]:
    """Run the controller while the block runs."""
    async with connect(console.config) as client, asyncio.TaskGroup() as group:
        runtime = Runtime(client, ownership=OWNERSHIP)
        InferenceDefinitions(runtime, **options).start()
        task = group.create_task(runtime.run())
        yield runtime
        task.cancel()


async def served(client: Client, names: list[str]) -> dict[str, str]:
    """Return the resource versions of these definitions once all of them are served, ours and reported on."""

    async def asked() -> dict[str, str]:
        found = [await client.get(CRD, Key("", name)) for name in names]
        assert all(truth_of(live, "Established") == truth_of(live, OWNED) == "True" for live in found)
        pools = [live for live in found if live["metadata"]["name"] in {V1, ALPHA}]
        assert all(truth_of(live, COMPATIBLE) == "True" for live in pools)
        return {live["metadata"]["name"]: live["metadata"]["resourceVersion"] for live in found}

    return await eventually(asked)


class Interrupted(Exception):
    """The process would have ended here."""


def limited(client: Client, writes: int) -> Client:
    """Return a client that is interrupted before the write after so many."""
    left = iter(range(writes))

    def fence() -> None:
        if next(left, None) is None:
            raise Interrupted

    return client.fenced(fence)


async def test_two_operators_come_to_rest(console: Console) -> None:
    async with connect(console.config) as client, owning(console) as one, owning(console) as two:
        await served(client, ALL)

        async def idle() -> None:
            assert not any(work.queue.working or len(work.queue) for each in (one, two) for work in each._works)

        async def rested() -> None:
            await idle()
            first = await served(client, ALL)
            await asyncio.sleep(1)
            assert await served(client, ALL) == first, "two that want the same do not write in turn"

        await eventually(rested)


async def test_operator_brings_back_what_was_deleted_and_what_was_changed(console: Console) -> None:
    async with connect(console.config) as client, owning(console, wanted=POOLS):
        await served(client, [V1, ALPHA])
        before = await client.get(CRD, Key("", V1))
        await client.delete(CRD, Key("", V1))

        async def new() -> None:
            assert (await client.get(CRD, Key("", V1)))["metadata"]["uid"] != before["metadata"]["uid"]

        await eventually(new)
        await served(client, [V1, ALPHA])
        await client.patch(CRD, Key("", V1), {"spec": {"names": {"shortNames": ["mine"]}}}, how="merge")

        async def right() -> None:
            assert (await client.get(CRD, Key("", V1)))["spec"] == before["spec"]

        await eventually(right)


async def test_operator_leaves_a_foreign_definition_alone_and_says_so(console: Console) -> None:
    async with connect(console.config) as client:
        foreign = release("v1.2.1")[V1]
        foreign["metadata"]["labels"] = {"olm.managed": "true"}
        foreign.pop("status")
        await client.patch(CRD, Key("", V1), foreign, how="apply", parameters={"fieldManager": "olm", "force": "true"})
        async with owning(console, wanted=POOLS):
            await served(client, [ALPHA])
            live = await client.get(CRD, Key("", V1))
            assert STAMP not in live["metadata"]["annotations"]
            managers = {entry["manager"] for entry in live["metadata"]["managedFields"]}
            assert managers == {"olm", "kube-apiserver"}, "not even its status"

            async def told() -> None:
                answer = await client.request("GET", "/api/v1/namespaces/default/events")
                events = json.loads(answer)["items"]
                assert any(e["reason"] == "ForeignOwner" and "belongs to OLM" in e["message"] for e in events), events

            await eventually(told)


async def test_operator_with_the_rights_in_config(console: Console, tmp_path: Path) -> None:
    """With config/inference-crds alone a process owns the definitions, and says that Istio is too old for them."""
    mine = overlay(tmp_path, components=["../inference-crds"])
    built = await asyncio.to_thread(console.plane.kubectl, "kustomize", str(mine))
    assert "- --own-inference-crds\n" in built
    named = {"name": "pointsman-operator", "namespace": "pointsman-system"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named}
    rights = [read_yaml(ROOT / "config" / "inference-crds" / name) for name in ("role.yaml", "role_binding.yaml")]
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pointsman-system"}}
    istio = deployment("istiod", "istio/pilot:1.27.3")
    await asyncio.to_thread(console.apply, place, account, *rights, istio)
    config = await asyncio.to_thread(
        lambda: account_config(
            console.plane, tmp_path / "account", namespace="pointsman-system", account="pointsman-operator"
        )
    )
    with operating(console.plane, tmp_path / "log", "--own-inference-crds", config=config):
        async with connect(console.config) as client:

            async def told() -> None:
                live = await client.get(CRD, Key("", V1))
                (found,) = (one for one in live["status"]["conditions"] if one["type"] == COMPATIBLE)
                assert (found["status"], found["reason"]) == ("False", "ReaderTooOld")
                assert "Istio 1.27.3 reads only inference.networking.x-k8s.io/v1alpha2" in found["message"]

            await eventually(told)
            await served(client, [name for name in ALL if name != V1])
    await asyncio.to_thread(console.delete, DEPLOYMENT, "istiod")


async def test_writer_beside_us_is_named_and_not_fought_for_ever(console: Console) -> None:
    """A chart that still has the definition writes it again and again."""
    theirs = release("v1.5.0")[V1]
    theirs.pop("status")
    async with connect(console.config) as client, owning(console, wanted=POOLS):
        await served(client, [V1, ALPHA])

        async def contended() -> None:
            body = {"apiVersion": CRD.api_version, "kind": CRD.kind, **theirs}
            await client.patch(
                CRD, Key("", V1), body, how="apply", parameters={"fieldManager": "helm", "force": "true"}
            )
            await asyncio.sleep(0.3)
            live = await client.get(CRD, Key("", V1))
            (ours,) = (one for one in live["status"]["conditions"] if one["type"] == OWNED)
            assert ours["reason"] == "Contended"
            assert ours["message"].startswith("helm changed it 5 times")

        await eventually(contended)

        async def rested() -> None:
            before = (await client.get(CRD, Key("", V1)))["metadata"]["resourceVersion"]
            await asyncio.sleep(1)
            assert (await client.get(CRD, Key("", V1)))["metadata"]["resourceVersion"] == before

        await eventually(rested)


async def test_install_interrupted_at_every_step(console: Console) -> None:
    async with connect(console.config) as client:
        for run in range(len(ALL)):
            # One write each time: the interruption is behind every definition once, before it is served.
            with pytest.raises(Interrupted):
                await _install(Definitions(limited(client, 1)))
            assert len(await Definitions(client).owned()) == run + 1
            if run + 1 == len(ALL) - 1:
                break
        await _install(Definitions(client))
        assert await Definitions(client).owned() == sorted(ALL)
        await _install(Definitions(limited(client, 0)))


async def _install(work: Definitions) -> None:
    for one in our_definitions():
        await work.carry_out(*await work.decide(one, INTENT))
        await work.established(one.name)


async def test_migration_interrupted_at_every_step_continues(console: Console, tmp_path: Path) -> None:
    old = write(tmp_path / "old.yaml", [definition(THING, version("v1alpha1"))])
    wanted = Definition(definition(THING, version("v1")))
    assert await asyncio.to_thread(lambda: console.crds("install", "--file", old).code) == 0
    names = [f"t{number}" for number in range(6)]
    things = [
        {"apiVersion": "example.dev/v1alpha1", "kind": "Thing", "metadata": {"name": name, "namespace": "default"}}
        for name in names
    ]
    await asyncio.to_thread(console.apply, *things)
    accepted = Intent(accept_breaking=True)
    async with connect(console.config) as client:
        runs = 0
        while True:
            # One more write each time: every step is the one that is interrupted, once.
            work = Definitions(limited(client, runs))
            decision, live = await work.decide(wanted, accepted)
            if decision.action == "nothing":
                break
            try:
                await work.carry_out(decision, live)
            except* Interrupted:
                assert await _readable(client) == len(names), "objects can be read at every moment"
            runs += 1
            assert runs < 60
        done = await client.get(CRD, Key("", str(THING)))
    assert done["status"]["storedVersions"] == ["v1"]
    assert [one["name"] for one in done["spec"]["versions"]] == ["v1"]
    assert runs > len(names)
    assert await asyncio.to_thread(console.count, THING) == len(names)


async def _readable(client: Client) -> int:
    current = Definition(await client.get(CRD, Key("", str(THING))))
    return len(await Definitions(client).objects(current))


async def test_migration_begins_where_it_stopped(console: Console, tmp_path: Path) -> None:
    old = write(tmp_path / "old.yaml", [definition(THING, version("v1alpha1"))])
    await asyncio.to_thread(console.crds, "install", "--file", old)
    things = [
        {"apiVersion": "example.dev/v1alpha1", "kind": "Thing", "metadata": {"name": f"t{n}", "namespace": "default"}}
        for n in range(6)
    ]
    await asyncio.to_thread(console.apply, *things)
    wanted, accepted = Definition(definition(THING, version("v1"))), Intent(accept_breaking=True)
    said: list[str] = []
    async with connect(console.config) as client:
        # The bridge, two objects, progress, two objects: the second page is done and not noted.
        with pytest.RaisesGroup(Interrupted, allow_unwrapped=True):
            work = Definitions(limited(client, 6), page=2)
            await work.carry_out(*await work.decide(wanted, accepted))
        written: list[None] = []
        work = Definitions(client.fenced(lambda: written.append(None)), say=said.append, page=2)
        await work.carry_out(*await work.decide(wanted, accepted))
    assert said == [f"things.example.dev: {done} of 6 objects are stored as v1" for done in (4, 6)]
    assert len(written) == 4 + 6, "four objects; bridge, progress three times, stored versions, the definition"


def test_api_server_restarts_while_we_wait(console: Console) -> None:
    plane = console.plane
    plane.kill("kube-apiserver")
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(console.crds, "install", *ONE, seconds=120)
        plane.start_api()
        ran = running.result(150)
    assert (ran.code, ran.out.count("created")) == (0, 1), ran


def test_api_server_restarts_while_a_definition_is_not_served(console: Console, tmp_path: Path) -> None:
    """Another definition has the name, so ours is written and waits; then the server goes and comes."""
    other = definition(Kind("example.dev", "v1", "Thing", "others"), version("v1"))
    console.apply(other)
    file = write(tmp_path / "thing.yaml", [definition(THING, version("v1"))])
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(console.process, "install", "--file", file, seconds=120)
        _eventually(lambda: _refused(console.get(str(THING))))
        console.plane.kill("kube-apiserver")
        console.plane.start_api()
        _eventually(lambda: console.delete(CRD, "others.example.dev"))
        ran = running.result(150)
    assert (ran.code, ran.out.count("created")) == (0, 1), ran


def _refused(live: Object) -> None:
    assert truth_of(live, "NamesAccepted") == "False", live


def test_stuck_terminating_is_said_and_waited_for(console: Console) -> None:
    console.crds("install", *ONE)
    stuck = pool("stuck")
    stuck["metadata"]["finalizers"] = ["example.dev/hold"]
    console.apply(stuck)
    gone = console.crds("uninstall", V1, "--cascade", seconds=3)
    assert gone.code == 1
    assert f"{V1} is still there after 3 s: it is being deleted" in gone.err
    assert "customresourcecleanup.apiextensions.k8s.io" in gone.err
    waiting = console.crds("install", *ONE, seconds=3)
    assert (waiting.code, "waiting for it to go" in waiting.out) == (1, True)
    assert "being deleted" in console.crds("status", *ONE).out
    console.patch("stuck", {"metadata": {"finalizers": None}}, kind=POOL)
    again = console.crds("install", *ONE, seconds=150)  # the API server looks at what it waits for once in a while
    assert (again.code, again.out.count("created")) == (0, 1), again


def test_finalizer_of_anothers_on_the_definition_itself(console: Console) -> None:
    console.crds("install", *ONE)
    console.patch(V1, {"metadata": {"finalizers": ["example.dev/hold"]}})
    gone = console.crds("uninstall", V1, seconds=3)
    assert gone.code == 1
    assert f"{V1} is still there after 3 s: it is being deleted" in gone.err
    assert "example.dev/hold" in gone.err
    assert "being deleted" in console.crds("status", *ONE).out
    console.patch(V1, {"metadata": {"finalizers": None}})
    assert console.crds("install", *ONE).code == 0


def test_conversion_webhook_that_is_down(console: Console, tmp_path: Path) -> None:
    old = definition(THING, version("v1alpha1"), version("v1", storage=False))
    console.crds("install", "--file", write(tmp_path / "old.yaml", [old]))
    thing = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}}
    console.apply(thing)
    hook = {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}
    moved = definition(
        THING,
        version("v1alpha1", storage=False),
        version("v1"),
        conversion={"strategy": "Webhook", "webhook": hook},
    )
    file = write(tmp_path / "moved.yaml", [moved])
    assert console.crds("upgrade", "--file", file, "--accept-breaking").code == 0
    status = console.crds("status", "--file", file)
    assert "its objects cannot be listed" in status.out
    assert "conversion webhook for example.dev/v1alpha1, Kind=Thing failed" in status.out
    refused = console.crds("uninstall")
    assert refused.code == 1
    assert "its objects cannot be listed" in refused.out
    final = write(tmp_path / "final.yaml", [definition(THING, version("v1"), conversion=moved["spec"]["conversion"])])
    migrated = console.crds("upgrade", "--file", final, "--accept-breaking", seconds=5)
    assert migrated.code == 1
    assert "conversion webhook" in migrated.err
    assert console.get(str(THING))["status"]["storedVersions"] == ["v1alpha1", "v1"], "nothing was forgotten"
    plain = write(tmp_path / "plain.yaml", [definition(THING, version("v1"))])
    assert console.crds("upgrade", "--file", plain, "--accept-breaking").code == 0
    assert console.get(str(THING))["status"]["storedVersions"] == ["v1"]


def test_every_missing_right_is_named(console: Console, tmp_path: Path) -> None:
    """From no right at all to all of them: each command says which one is next."""
    visitor = Console(console.plane, console.plane.kubeconfig("visitor"))
    old = write(tmp_path / "old.yaml", [definition(THING, version("v1alpha1"))])
    new = write(tmp_path / "new.yaml", [definition(THING, version("v1"))])
    thing = {"apiVersion": "example.dev/v1alpha1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}}
    install = ("install", "--file", old)
    upgrade = ("upgrade", "--file", new, "--accept-breaking")
    definitions, things = "customresourcedefinitions.apiextensions.k8s.io", "things.example.dev"
    status = "customresourcedefinitions/status.apiextensions.k8s.io"
    granted: list[tuple[str, str]] = []
    for command, verb, resource in (
        (install, "get", definitions),
        (install, "patch", definitions),
        (install, "create", definitions),
        (upgrade, "list", things),
        (upgrade, "patch", things),
        (upgrade, "patch", status),
        (("uninstall",), "list", definitions),
        (("uninstall",), "list", "deployments.apps"),
        (("uninstall",), "list", "httproutes.gateway.networking.k8s.io"),
        (("uninstall",), "delete", definitions),
    ):
        _eventually(partial(_is_refused, visitor, command, verb, resource))
        granted.append((verb, resource))
        _grant(console, granted)
        if (verb, resource) == ("create", definitions):
            _eventually(partial(_is_done, visitor, install))
            console.apply(thing)
        if (verb, resource) == ("patch", status):
            _eventually(partial(_is_done, visitor, upgrade))
            console.delete(THING, "t")
    _eventually(partial(_is_done, visitor, ("uninstall",)))
    assert console.there() == []


def _is_refused(visitor: Console, command: Sequence[str], verb: str, resource: str) -> None:
    """Assert that a command ends in one sentence that names the right; the server hears of one a moment later."""
    ran = visitor.crds(*command)
    plural, _, group = resource.partition(".")
    assert ran.code == 1, ran
    told = f'User "visitor" cannot {verb} resource "{plural}" in API group "{group}"'
    assert told in ran.out + ran.err, ran
    assert "Traceback" not in ran.err


def _is_done(visitor: Console, command: Sequence[str]) -> None:
    ran = visitor.crds(*command)
    assert ran.code == 0, ran


def _grant(console: Console, rights: Iterable[tuple[str, str]]) -> None:
    rules = []
    for verb, resource in rights:
        plural, _, group = resource.partition(".")
        rules.append({"apiGroups": [group], "resources": [plural], "verbs": [verb]})
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "visits"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "visits"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "visits"},
        "subjects": [{"kind": "User", "name": "visitor", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    console.apply(role | {"rules": rules}, binding)


def _eventually(attempt: Callable[[], None]) -> None:
    async def asked() -> None:
        await asyncio.to_thread(attempt)

    asyncio.run(eventually(asked))


def test_large_definitions(console: Console, tmp_path: Path) -> None:
    """Server-side apply keeps no copy in an annotation, so only etcd's own limit is one."""

    def large(size: int) -> Object:
        fields = {f"field{n}": {"type": "string", "description": "x" * (size // 10)} for n in range(10)}
        return definition(THING, version("v1", spec={"type": "object", "properties": fields}))

    fits = write(tmp_path / "fits.yaml", [large(1_450_000)])
    ran = console.crds("install", "--file", fits)
    assert ran.code == 0, ran.err
    assert console.crds("upgrade", "--file", fits).out.startswith("unchanged")
    with pytest.raises(AssertionError, match="Too long"):  # what an apply on the client's side would need
        console.plane.kubectl("apply", "-f", fits)
    too_much = write(tmp_path / "much.yaml", [large(2_200_000)])
    ran = console.crds("upgrade", "--file", too_much)
    assert ran.code == 1
    assert "the API server does not take it" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("same", [True, False], ids=["the-same", "another"])
async def test_created_by_another_between_look_and_write(console: Console, same: bool) -> None:
    (ours,) = (one for one in our_definitions() if one.name == V1)
    theirs = ours.document if same else {k: v for k, v in release("v1.2.1")[V1].items() if k != "status"}
    async with connect(console.config) as client:
        work = Definitions(client)
        decision, live = await work.decide(ours, INTENT)
        await client.patch(CRD, Key("", V1), theirs, how="apply", parameters={"fieldManager": "helm"})
        with pytest.raises(Unavailable, match=r"was created by (another|helm) just now"):
            await work.carry_out(decision, live)
        there = await client.get(CRD, Key("", V1))
    assert STAMP not in there["metadata"].get("annotations", {})
    assert MANAGER not in {entry["manager"] for entry in there["metadata"]["managedFields"]}


async def test_picker_serves_through_the_loss_of_a_definition(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests flow while the definition is deleted and comes back; when it stays away the picker says so."""
    plane, crds = console.plane, partial(asyncio.to_thread, console.crds)
    follow = {"pool_name": "p", "pool_namespace": "default"}
    async with (
        connect(console.config) as client,
        picker(plane, monkeypatch, pool_grace_period=120.0, **follow) as patient,
        picker(plane, monkeypatch, pool_grace_period=0.5, **follow) as hasty,
    ):
        await crds("install", *ONE)
        await make_pod(client, "default", "a", address="127.0.9.1")
        await asyncio.to_thread(console.apply, pool("p", selector={"matchLabels": {"app": "vllm"}}))
        await until(lambda: patient.parts.health.serving and hasty.parts.health.serving)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{patient.listener.port}")
        async with channel, watched(partial(_pick, channel)):
            assert (await crds("uninstall", "--cascade")).code == 0
            await until(lambda: not hasty.parts.health.serving)
            await make_pod(client, "default", "b", address="127.0.9.2")
            await until(lambda: targets(patient) == ["127.0.9.1:8000", "127.0.9.2:8000"])
            assert patient.parts.health.serving
            assert (await crds("install", *ONE)).code == 0
            again = pool("p", selector={"matchLabels": {"app": "vllm"}}, targetPorts=[{"number": 9000}])
            await asyncio.to_thread(console.apply, again)
            await until(lambda: targets(patient) == ["127.0.9.1:9000", "127.0.9.2:9000"])
            await until(lambda: hasty.parts.health.serving)
        for name in ("a", "b"):
            await client.delete(PODS, Key("default", name))


async def _pick(channel: grpc.aio.Channel) -> None:
    """Ask for an endpoint once; raises when none is named."""
    call = rpc.ExternalProcessorStub(channel).Process()
    await call.write(headers(end=True))
    reply = await call.read()
    assert "x-gateway-destination-endpoint" in str(reply.dynamic_metadata), reply
    await call.done_writing()


async def test_names_that_another_definition_has(console: Console, tmp_path: Path) -> None:
    """A definition whose kind another one of the group has is never served, and the server's reason is told."""
    other = definition(Kind("example.dev", "v1", "Thing", "others"), version("v1"))
    await asyncio.to_thread(console.apply, other)
    file = write(tmp_path / "thing.yaml", [definition(THING, version("v1"))])
    ran = await asyncio.to_thread(lambda: console.crds("install", "--file", file, seconds=3))
    assert ran.code == 1
    assert "NamesAccepted is False" in ran.err
