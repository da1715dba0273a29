"""Any document is either a configuration or a sentence about why it is not; never a traceback."""

import os
import random
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pointsman.core.documents import to_yaml
from pointsman.core.errors import UserError
from pointsman.core.values import ConfigError, names_at
from pointsman.epp.config.build import Builder
from pointsman.epp.config.defaults import load
from pointsman.epp.config.document import Document
from pointsman.epp.config.registry import BUILT_IN, LATER

EXAMPLES = int(os.environ.get("POINTSMAN_FUZZ_EXAMPLES", "150"))

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=True), st.text(max_size=5), st.just("1s")
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
types = st.sampled_from([*BUILT_IN, *LATER, "nonsense", "os:path", "no.module:X"])
names = st.sampled_from([*BUILT_IN, "a", "b", ""])


@st.composite
def plugins(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(types)
    known: list[str] = []
    if kind in BUILT_IN and BUILT_IN[kind].parameters is not None:
        known = names_at(BUILT_IN[kind].parameters, ())
    keys = st.sampled_from(known) | st.text(max_size=3) if known else st.text(max_size=3)
    spec = {"type": kind, "parameters": draw(st.dictionaries(keys, values, max_size=2))}
    return {**spec, "name": draw(names)} if draw(st.booleans()) else spec


WRITTEN = {"apiVersion", "kind", "plugins", "schedulingProfiles"}
references = st.fixed_dictionaries({"pluginRef": names}, optional={"weight": scalars, "x": scalars})
documents = st.fixed_dictionaries(
    {"apiVersion": st.just("llm-d.ai/v1alpha1"), "kind": st.just("EndpointPickerConfig")},
    optional={
        "plugins": st.lists(plugins(), max_size=4) | values,
        "schedulingProfiles": st.lists(
            st.fixed_dictionaries({"name": names}, optional={"plugins": st.lists(references, max_size=4)}), max_size=3
        )
        | values,
        **{name: values for name in names_at(Document, ()) if name not in WRITTEN},
    },
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(documents)
def test_fuzz_documents(document: dict[str, Any]) -> None:
    builder = Builder(clock=lambda: 0.0, rng=random.Random(7))
    try:
        built = builder.build(load(to_yaml(document)))
    except UserError as error:
        problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        event(f"refused with {len(problems)} problems")
        return
    again = builder.build(load(built.to_yaml(), allow_experimental=True))
    assert again.to_yaml() == built.to_yaml(), "the effective configuration means the same"


@settings(max_examples=EXAMPLES)
@given(st.text() | st.binary(), st.booleans())
def test_fuzz_texts(text: str | bytes, head: bool) -> None:
    start = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n" if head else ""
    try:
        load(start + text if isinstance(text, str) else start.encode() + text)
    except UserError:
        pass
