"""From a configuration's data layer to what is really asked."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.waiting import until

from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import ConfigPlan, load
from pointsman.epp.pool.endpoint import Endpoint
from pointsman.epp.pool.polls import Polls
from pointsman.epp.pool.pool import Pool
from pointsman.epp.request.request import Request
from pointsman.epp.sources.planned import Sources, wanted
from pointsman.epp.sources.scrape import Question, ScrapeTerms

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def plan(layer: str, *plugins: str) -> ConfigPlan:
    lines = "".join(f"- {plugin}\n" for plugin in ("{type: queue-scorer}", *plugins))
    return load(f"{HEAD}plugins:\n{lines}{layer}")


METRICS = "dataLayer: {sources: [{pluginRef: s, extractors: [{pluginRef: e}]}]}"


def only(made: ConfigPlan, *, tick: float = 0.05) -> tuple[Question, ScrapeTerms]:
    (found,) = wanted(made, tally=Polls(), tick=tick).values()
    return found


def test_without_a_word_metrics_are_read_at_every_tick() -> None:
    question, terms = only(load(""))
    assert (question.source, terms.path, terms.interval, terms.port, terms.tls) == (
        "metrics-data-source", "/metrics", 0.05, None, None,
    )  # fmt: skip


def test_nothing_is_asked_when_defaults_are_switched_off() -> None:
    assert wanted(plan("dataLayer: {injectDefaults: false}"), tally=Polls(), tick=0.05) == {}


@pytest.mark.parametrize(("asked", "kept"), [("120ms", 0.15), ("10ms", 0.05), ("200ms", 0.2)])
def test_intervals_are_rounded_up_to_ticks(asked: str, kept: float) -> None:
    source = f"{{type: metrics-data-source, name: s, parameters: {{interval: {asked}, port: 9400, path: /m}}}}"
    _, terms = only(plan(METRICS, source, "{type: core-metrics-extractor, name: e}"))
    assert terms.interval == pytest.approx(kept)
    assert (terms.port, terms.path) == (9400, "/m")


def test_https_with_and_without_trust() -> None:
    text = "{{type: metrics-data-source, name: s, parameters: {{scheme: https, insecureSkipVerify: {}}}}}"
    _, blind = only(plan(METRICS, text.format("true"), "{type: core-metrics-extractor, name: e}"))
    _, careful = only(plan(METRICS, text.format("false"), "{type: core-metrics-extractor, name: e}"))
    assert blind.tls is not None and not blind.tls.check_hostname
    assert careful.tls is not None and careful.tls.check_hostname


@pytest.mark.parametrize(("said", "secure"), [("", True), ("scheme: http", False)], ids=["unsaid", "said"])
def test_the_command_line_says_what_the_configuration_does_not(said: str, secure: bool) -> None:
    source = f"{{type: metrics-data-source, name: s, parameters: {{{said}}}}}"
    made = plan(METRICS, source, "{type: core-metrics-extractor, name: e}")
    unsaid = {"scheme": "https", "insecure_skip_verify": True}
    ((_, terms),) = wanted(made, tally=Polls(), tick=0.05, unsaid=unsaid).values()
    assert (terms.tls is not None) == secure


def test_certificates_that_are_not_there_are_named() -> None:
    source = "{type: metrics-data-source, name: s, parameters: {scheme: https, clientCertPath: /nowhere}}"
    with pytest.raises(UserError, match=r"^s: its certificates cannot be used"):
        only(plan(METRICS, source, "{type: core-metrics-extractor, name: e}"))


def extractor(config: str) -> str:
    return f"{{type: core-metrics-extractor, name: e, parameters: {{engineConfigs: [{config}]}}}}"


def test_an_engine_of_ones_own() -> None:
    config = "{name: vllm, queuedRequestsSpec: 'q{a=b}', customMetrics: [{attributeKey: k, metricSpec: c}]}"
    made = plan(METRICS, "{type: metrics-data-source, name: s}", extractor(config))
    question, _ = only(made)
    pool = Pool()
    pool.replace([Endpoint(name="a", address="10.0.0.1", port=80)])
    (member,) = pool.members
    assert question.takes(member)(b'q{a="x"} 1\nq{a="b"} 7\nc 3\n', asked_at=1.0, mark=(0, 0))
    assert (member.view.waiting, member.view.attributes) == (7, {"k": 3})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{name: x, loraSpec: 'sum(y)'}", r"^engineConfigs\[x\]\.loraSpec: "),
        ("{name: x, customMetrics: [{attributeKey: k, metricSpec: '1'}]}", r"customMetrics\[k\]\.metricSpec: "),
    ],
)
def test_a_metric_that_is_none_is_named(config: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        only(plan(METRICS, "{type: metrics-data-source, name: s}", extractor(config)))


def test_a_default_engine_must_be_known() -> None:
    unknown = "{type: core-metrics-extractor, name: e, parameters: {defaultEngine: mine}}"
    with pytest.raises(UserError, match=r"^defaultEngine: 'mine' is unknown: there is vllm"):
        only(plan(METRICS, "{type: metrics-data-source, name: s}", unknown))


class Endpoints:
    """One endpoint that knows its metrics and its models."""

    def __init__(self) -> None:
        self.asked: dict[bytes, int] = {}
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
                self.asked[path] = self.asked.get(path, 0) + 1
                body = b'{"data":[{"id":"m"}]}' if path == b"/v1/models" else b"vllm:num_requests_waiting 3\n"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()


@asynccontextmanager
async def running(made: ConfigPlan) -> AsyncIterator[tuple[Sources, Pool, Endpoints]]:
    endpoints, pool, tally = Endpoints(), Pool(), Polls()
    listener = await asyncio.start_server(endpoints.serve, "127.0.0.1", 0)
    pool.replace([Endpoint(name="a", address="127.0.0.1", port=listener.sockets[0].getsockname()[1])])
    sources = Sources(pool=pool, tally=tally, clock=time.monotonic, tick=0.01)
    sources.use(made)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(sources.run())
        yield sources, pool, endpoints
        task.cancel()
    listener.close()


async def asked(endpoints: Endpoints, path: bytes, *, times: int = 3) -> None:
    async with asyncio.timeout(20):  # a busy machine is slow
        target = endpoints.asked.get(path, 0) + times
        while endpoints.asked.get(path, 0) < target:  # noqa: ASYNC110 - a test may poll
            await asyncio.sleep(0.005)


async def test_a_reload_keeps_what_did_not_change_and_ends_what_is_not_wanted() -> None:
    models = "{type: models-data-source, name: s, parameters: {interval: 10ms}}"
    both = plan(METRICS, models, "{type: models-data-extractor, name: e}")
    async with running(load("")) as (sources, pool, endpoints):
        await asked(endpoints, b"/metrics")
        sources.use(both)
        await asked(endpoints, b"/v1/models")
        assert pool.members[0].models == {"m"}
        assert endpoints.connections == 2  # the first one's connection is still the same
        sources.use(plan("dataLayer: {injectDefaults: false}"))
        await asyncio.sleep(0.05)
        before = dict(endpoints.asked)
        await asyncio.sleep(0.1)
        assert endpoints.asked == before
        sources.use(load(""))
        await asked(endpoints, b"/metrics")


async def test_a_configuration_that_cannot_be_used_changes_nothing() -> None:
    broken = plan(METRICS, "{type: metrics-data-source, name: s}", extractor("{name: x, loraSpec: '1'}"))
    async with running(load("")) as (sources, _, endpoints):
        with pytest.raises(UserError):
            sources.use(broken)
        await asked(endpoints, b"/metrics")


GPUS = """- {type: dcgm-data-source, name: gpus, parameters: {port: %d, useNodeAddress: true, interval: 10ms}}
- {type: dcgm-extractor}
- type: endpoint-attribute-filter
  parameters: {attribute: GPUUtilization, producer: dcgm-extractor, algorithm: %s}
dataLayer: {sources: [{pluginRef: gpus, extractors: [{pluginRef: dcgm-extractor}]}]}
schedulingProfiles: [{name: default, plugins: [{pluginRef: endpoint-attribute-filter}]}]
"""
IDLE = "{type: threshold, threshold: {operator: LessThanOrEqual, value: 0.9}}"


async def test_the_exporter_of_a_node_is_asked_and_its_figure_decides() -> None:
    """One exporter for two Pods; that it answers says nothing about a model server that does not."""
    page = b'DCGM_FI_DEV_GPU_UTIL{pod="busy"} 97\nDCGM_FI_DEV_GPU_UTIL{pod="idle"} 10\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        writer.close()

    exporter = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = load(HEAD + "plugins:\n" + GPUS % (exporter.sockets[0].getsockname()[1], IDLE), allow_experimental=True)
    pool, tally = Pool(), Polls()
    pods = [Endpoint(name=name, address="127.9.9.9", port=9, node="127.0.0.1") for name in ("busy", "idle")]
    pool.replace(pods)
    sources = Sources(pool=pool, tally=tally, clock=time.monotonic, tick=0.01)
    sources.use(made)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(sources.run())
        await until(lambda: all(one.attributes for one in pool.members) and tally.poll_errors["metrics-data-source"])
        task.cancel()
    exporter.close()
    views = [one.view for one in pool.members]
    built = Builder(clock=time.monotonic, rng=random.Random(1)).build(made)
    decided = built.scheduler.decide(Request(id="r", headers={}), views)
    assert decided.picked.first.name == "idle"
    assert not any(one.answers_scrapes for one in pool.members if one.scrape_failures)
    assert all("dcgm-data-source" not in one.scrape_failures for one in pool.members)
