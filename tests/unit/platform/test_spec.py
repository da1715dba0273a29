"""What is wrong with a platform's file is said by its path; which components are meant depends on the occasion."""

from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.platform.spec import chosen, read_platform

GOOD = """
provider: aks
pullSecret: {from: docker, name: pull}
components:
  - name: one
  - {name: two, when: deploy-all, values: {a: 1}}
  - {name: three, when: named, use: existing}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "platform.yaml"
    path.write_text(text)
    return path


def test_the_occasion_says_which_components(tmp_path: Path) -> None:
    platform = read_platform(written(tmp_path, GOOD))
    assert (platform.provider, platform.pull_secret.from_) == ("aks", "docker")

    def names(*asked: str, everything: bool = False) -> list[str]:
        return [each.name for each in chosen(platform, asked, everything=everything)]

    assert names() == ["one"]
    assert names(everything=True) == ["one", "two"]
    assert names("three", "one") == ["one", "three"]
    with pytest.raises(UserError, match="'tow' is no component: did you mean 'two'"):
        names("tow")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("components: [{nam: one}]", "components", id="a typo"),
        pytest.param(
            "components: [{name: one}, {name: one}]", r"components\[1\].name: 'one' is there twice", id="twice"
        ),
        pytest.param("components: [{name: ../x}]", "is no name", id="outside"),
        pytest.param("components: [{name: ''}]", r"components\[0\].name: '' is no name", id="no name"),
        pytest.param("components: []", "components: is empty", id="nothing"),
        pytest.param("components: [{name: a}]\nimageMiror: x", "did you mean 'imageMirror'", id="as files spell it"),
        pytest.param("components: [{name: a}]\nimageMirror: https://x", "imageMirror: 'https://x' is no", id="mirror"),
        pytest.param("components: [{name: a}]\nimageMirror: x.io/a/", "imageMirror: 'x.io/a/' is no", id="slash"),
        pytest.param(
            "components: [{name: a}]\npullSecret: {frm: x}", "pullSecret.frm: .*did you mean 'from'", id="inner typo"
        ),
        pytest.param("components: [{name: a}]\npullSecret: {from: 5}", "pullSecret.from: .*, not 5", id="inner type"),
        pytest.param("components: []\ntimeout: 0", "timeout: 0 is no time", id="no time"),
        pytest.param("components: []\nprovider: gke", "provider", id="another provider"),
        pytest.param("[]", "must hold one mapping", id="no mapping"),
        pytest.param("a: b: c", "platform.yaml", id="no YAML"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        read_platform(written(tmp_path, text))


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_platform(tmp_path / "platform.yaml")
