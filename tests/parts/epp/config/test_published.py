"""What the two Go pickers' projects have published loads, but for what is listed here with its reason."""

import random

import pytest
from tests.published import MODULES, published

from pointsman.core.errors import UserError
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import draft
from pointsman.epp.sources.planned import source_problems

# By words of the refusal. None of these starts with a Go picker of its release either, but for the last two.
REASONS = {
    "not '....'": "a sketch with dots where plugins belong",
    "schedulingProfiles[0].-pluginRef": "a dash without a space after it",
    "'test-one' is not a plugin type": "types that only the loader's own tests register",
    "'mock-metrics-source' is not a plugin type": "a type that only integration tests register",
    "'custom-scorer' is not a plugin type": "a name that stands for anybody's own",
    "'predicted-latency-scorer' is not a plugin type": "a name in a guide that no release registers",
    "is not known: write llm-d.ai/v1": "a group in a guide that no release reads",
    "not '${PRIMARY_PORT}'": "a template that a script fills in",
    "the precise prefix cache, which this version does not implement yet": "not implemented",
    "parameters.kvEventsConfig: unknown field": "the precise prefix cache under its first name: not implemented",
}


def refusal(text: str) -> str:
    """Return why a configuration is refused; nothing when it is not."""
    try:
        plan, problems = draft(text, allow_experimental=True)
        builder = Builder(clock=lambda: 0.0, rng=random.Random(7), also=source_problems)
        builder.build(plan, problems=problems)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("module", "version"), MODULES)
def test_published_configurations_load(module: str, version: str) -> None:
    every = published(module, version)
    assert every
    unexpected = [
        f"{one.where}: {why}"
        for one in every
        if (why := refusal(one.text)) and not any(words in why for words in REASONS)
    ]
    assert not unexpected, "\n".join(unexpected)
    assert any(not refusal(one.text) for one in every)


def test_the_index_that_a_scorer_had_in_it_is_the_producers() -> None:
    text = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: prefix-cache-scorer, parameters: {hashBlockSize: 512, maxPrefixBlocksToMatch: 256, lruCapacityPerServer: 9}}
"""
    plan, problems = draft(text)
    assert problems == []
    built = Builder(clock=lambda: 0.0, rng=random.Random(7)).build(plan)
    needs = built.scheduler.needs([])
    assert (needs.block_tokens, needs.max_blocks) == (128, 256)
    assert any("belong to approx-prefix-cache-producer: write them there" in warning for warning in plan.warnings)
