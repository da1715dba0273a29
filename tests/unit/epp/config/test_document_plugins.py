"""Classes of people's own, named in a configuration file."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.epp.custom_plugins import Counting, WithContext
from tests.unit.epp.plugins.making import endpoint, request

from pointsman.core.documents import to_yaml
from pointsman.core.values import ConfigError
from pointsman.epp.config.build import Builder, Built
from pointsman.epp.config.defaults import load
from pointsman.epp.config.follow import allow_imports
from pointsman.epp.config.registry import BUILT_IN, LATER, UnknownType, find_type

HERE = "tests.unit.epp.custom_plugins"


def build(type_name: str, previous: Built | None = None, **parameters: Any) -> Built:
    document = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": type_name, "name": "mine", "parameters": parameters}],
    }
    return Builder(clock=lambda: 42.0, rng=random.Random(7)).build(load(to_yaml(document)), previous=previous)


def mistakes(type_name: str, **parameters: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build(type_name, **parameters)
    return [str(problem) for problem in caught.value.problems]


def test_a_dataclass_is_its_own_parameters() -> None:
    built = build(f"{HERE}:ByName", prefer="b")
    outcome = built.scheduler.decide(request(), [endpoint("a"), endpoint("b")])
    assert outcome.picked.first.name == "b"
    assert "prefer: b" in built.to_yaml()


@pytest.mark.parametrize("name", ["max_waiting", "maxWaiting"])
def test_its_fields_may_be_written_as_in_python_or_as_in_files(name: str) -> None:
    parameters: dict[str, Any] = {name: 3}
    assert build(f"{HERE}:ByName", **parameters).made["mine"].plugin.max_waiting == 3


def test_a_dataclass_may_remember_and_keeps_its_memory_over_a_reload() -> None:
    first = build(f"{HERE}:Counting", step=2)
    first.scheduler.decide(request(), [endpoint("a")])
    plugin = build(f"{HERE}:Counting", previous=first, step=2).made["mine"].plugin
    assert isinstance(plugin, Counting) and plugin.seen == 2
    assert build(f"{HERE}:Counting", previous=first, step=3).made["mine"].plugin.seen == 0


def test_a_pydantic_model_is_its_own_parameters() -> None:
    built = build(f"{HERE}:ByModel", limit=2)
    outcome = built.scheduler.decide(request(), [endpoint("a", waiting=5), endpoint("b", waiting=1)])
    assert outcome.picked.first.name == "b"


def test_a_plain_class_is_given_its_parameters_and_a_context() -> None:
    plugin = build(f"{HERE}:WithContext", inner={"share": 0.25}).made["mine"].plugin
    assert isinstance(plugin, WithContext)
    assert plugin.parameters.inner.share == 0.25
    assert (plugin.context.name, plugin.context.clock()) == ("mine", 42.0)
    assert build(f"{HERE}:Plain").made["mine"].plugin


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        pytest.param("ByName", {"prefr": "x"}, "parameters.prefr: unknown field: did you mean 'prefer'?", id="unknown"),
        pytest.param("ByName", {"prefer": 5}, "parameters.prefer: input should be a valid string, not 5", id="type"),
        pytest.param("ByModel", {}, "parameters.limit: is missing: it has no default", id="missing"),
        pytest.param(
            "ByModel", {"limit": 1, "limt": 2}, "parameters.limt: unknown field: did you mean 'limit'?", id="model"
        ),
        pytest.param("WithContext", {"inner": {"shar": 1}}, "parameters.inner.shar: unknown field", id="nested"),
        pytest.param("Useless", {}, f"type: '{HERE}:Useless' has none of the methods of a plugin", id="no method"),
        pytest.param("Demanding", {}, "type: Demanding.__init__ wants 'database'", id="wants too much"),
        pytest.param("Fails", {}, "cannot be made: RuntimeError: no such luck", id="fails"),
        pytest.param("function", {}, f"type: '{HERE}:function' is not a class", id="not a class"),
        pytest.param("ByNam", {}, f"type: module '{HERE}' has no 'ByNam': did you mean 'ByName'?", id="typo"),
    ],
)
def test_mistakes_in_plugins_of_ones_own_are_named_too(name: str, parameters: dict[str, Any], expected: str) -> None:
    (found,) = mistakes(f"{HERE}:{name}", **parameters)
    assert found.removeprefix("plugins[0]").lstrip(".: ").startswith(expected), found


def test_a_module_beside_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "class Mine:\n    def filter(self, request, endpoints):\n        return endpoints\n"
    (tmp_path / "beside_the_file.py").write_text(text)
    with pytest.raises(UnknownType, match="cannot be imported"):
        find_type("beside_the_file:Mine")
    allow_imports(tmp_path)
    assert find_type("beside_the_file:Mine").kinds == ("filter",)


def test_an_installed_package_can_give_a_plugin_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pointsman.plugins]\nby-name-scorer = {HERE}:ByName\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert find_type("by-name-scorer").kinds == ("scorer",)


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_comes_later_is_known_and_refused_in_words(name: str) -> None:
    with pytest.raises(UnknownType, match="which this version does not implement yet"):
        find_type(name)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_type_of_ours_can_do_something_and_says_what_it_takes(name: str) -> None:
    kind = find_type(name)
    assert kind.kinds
    assert kind.parameters is None or kind.parameters.model_fields is not None
