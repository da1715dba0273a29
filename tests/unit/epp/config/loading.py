"""Load and build configurations from the part that a test is about."""

import random
import textwrap
from typing import Any

from pointsman.core.values import ConfigError
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import ConfigPlan, load

HEAD = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"


def plan(body: str, **options: Any) -> ConfigPlan:
    return load(HEAD + textwrap.dedent(body), name="c.yaml", **options)


def build(body: str, **options: Any) -> Built:
    return Builder(clock=lambda: 0.0, rng=random.Random(7)).build(plan(body, **options), name="c.yaml")


def problems(body: str, *, head: str = HEAD, **options: Any) -> list[str]:
    text = head + textwrap.dedent(body)
    if body.startswith("{"):
        text = "{" + head.replace("\n", ", ") + body[1:]
    try:
        loaded = load(text, name="c.yaml", **options)
        Builder(clock=lambda: 0.0, rng=random.Random(7)).build(loaded, name="c.yaml")
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def profile(built: ConfigPlan | Built, name: str = "default") -> list[tuple[str, float]]:
    source = built.plan if isinstance(built, Built) else built
    return [*next(each.plugins for each in source.profiles if each.name == name)]
