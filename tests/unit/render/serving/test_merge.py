from typing import Any

import pytest

from pointsman.render.serving.merge import MergeConflict, merged


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}, id="blocks"),
        pytest.param({"a": 1}, {"a": None}, {"a": 1}, id="null is left out"),
        pytest.param({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}, id="lists replace"),
        pytest.param(
            {"containers": [{"name": "main", "image": "a", "args": ["x"]}, {"name": "b"}]},
            {"containers": [{"name": "main", "image": "c"}, {"name": "d"}]},
            {"containers": [{"name": "main", "image": "c", "args": ["x"]}, {"name": "b"}, {"name": "d"}]},
            id="by name",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            id="a volume has one source",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {}}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}]},
            id="a variable has one value",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "a", "mountPath": "/x", "readOnly": True}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/x"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/x", "readOnly": True}]},
            id="by path",
        ),
        pytest.param(
            {"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 2}]}, id="ports of no container"
        ),
        pytest.param(
            {"inline": {"a": 1}}, {"inline": {"b": 2}}, {"inline": {"b": 2}}, id="what is opaque is one value"
        ),
        pytest.param({"containers": []}, {"containers": []}, {"containers": []}, id="nothing"),
    ],
)
def test_merges(base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]) -> None:
    before = repr((base, over))
    assert merged(base, over) == expected
    assert repr((base, over)) == before


@pytest.mark.parametrize(
    ("base", "over", "sentence"),
    [
        ({"a": {"b": []}}, {"a": {"b": {}}}, "spec.a.b is a block here and a list in what it is merged over"),
        ({"a": 1}, {"a": {}}, "spec.a is a block here and 1 in"),
        ({"containers": []}, {"containers": [{"image": "a"}]}, r"spec.containers\[0\] has no name, by which"),
        ({"containers": []}, {"containers": ["a"]}, r"spec.containers\[0\] is 'a': it is a block"),
    ],
)
def test_conflicts_say_where(base: dict[str, Any], over: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MergeConflict, match=sentence):
        merged(base, over)
