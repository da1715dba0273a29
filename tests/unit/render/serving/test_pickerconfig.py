import pytest

from pointsman.core.documents import to_yaml
from pointsman.render.serving.pickerconfig import problems
from pointsman.render.serving.presets import picker_config

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


@pytest.mark.parametrize("staged", [True, False])
def test_ours_are_fine(staged: bool) -> None:
    assert problems(to_yaml(picker_config(staged=staged)), where="c") == []


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("a: [", ["c:"]),
        ("[]", ["c is no EndpointPickerConfig"]),
        ("kind: Pod", ["c.kind is 'Pod': write EndpointPickerConfig", "c.apiVersion is None"]),
        (HEAD + "plugins: {}", ["c.plugins is no list"]),
        (HEAD + "plugins: [{name: a}, 3]", ["c.plugins[0].type is missing", "c.plugins[1].type is missing"]),
        (HEAD + "plugins: [{type: a}, {type: b, name: a}]", ["c.plugins[1].name 'a' is there twice"]),
        (HEAD + "schedulingProfiles: {}", ["c.schedulingProfiles is no list"]),
        (HEAD + "schedulingProfiles: [{}]", ["c.schedulingProfiles[0].name is missing"]),
        (HEAD + "schedulingProfiles: [{name: a, plugins: {}}]", ["c.schedulingProfiles[0].plugins is no list"]),
        (
            HEAD
            + "plugins: [{type: a}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: a}, {pluginRef: b}, 1]}]",
            [
                "c.schedulingProfiles[0].plugins[1].pluginRef 'b' is none",
                "c.schedulingProfiles[0].plugins[2].pluginRef None",
            ],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_field(text: str, sentences: list[str]) -> None:
    found = problems(text, where="c")
    assert len(found) == len(sentences)
    for said, sentence in zip(found, sentences, strict=True):
        assert said.startswith(sentence)
