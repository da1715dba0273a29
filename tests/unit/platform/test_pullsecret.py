"""Only the registries that are needed, from the source that was asked for, and never in print."""

import base64
import json
from pathlib import Path

import pytest

from pointsman.core.errors import UserError
from pointsman.platform.debug import redacted
from pointsman.platform.pullsecret import docker_config

SECRET = "tell-nobody"
IMAGES = ["one.example.com/a/b@sha256:" + "0" * 64, "two.example.com/c:v1", "${PLACEHOLDER}", "three.example.com/d"]


def auth(user: str = "u") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{SECRET}".encode()).decode()}


def home(tmp_path: Path) -> dict[str, str]:
    podman, docker = tmp_path / ".config" / "containers", tmp_path / ".docker"
    for folder, user in ((podman, "podman"), (docker, "docker")):
        folder.mkdir(parents=True)
        auths = {name: auth(user) for name in ("one.example.com", "two.example.com/c", "unneeded.example.com")}
        name = "auth.json" if user == "podman" else "config.json"
        (folder / name).write_text(json.dumps({"auths": auths}))
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize("source", ["podman", "docker", "file"])
def test_only_needed_registries_are_copied(tmp_path: Path, source: str) -> None:
    environment = home(tmp_path)
    named = str(tmp_path / ".docker" / "config.json") if source == "file" else source
    made = docker_config(IMAGES, source=named, environment=environment)
    assert made.registries == ("one.example.com", "two.example.com")
    assert made.missing == ("three.example.com",)
    found = json.loads(made.text)["auths"]
    assert sorted(found) == ["one.example.com", "two.example.com"]
    user = base64.b64decode(found["one.example.com"]["auth"]).decode().partition(":")[0]
    assert user == ("podman" if source == "podman" else "docker")
    assert SECRET not in repr(made)
    assert made.text not in repr(made)


def test_two_users_of_one_registry_are_both_copied(tmp_path: Path) -> None:
    file = tmp_path / "auth.json"
    auths = {"one.example.com/a": auth("a"), "one.example.com/b": auth("b"), "one.example.com/c": auth("c")}
    file.write_text(json.dumps({"auths": auths, "credHelpers": None}))
    images = ["one.example.com/a/x:1", "one.example.com/b/y:1", "one.example.com/b/y:2", "one.example.com/open/z:1"]
    made = docker_config(images, source=str(file), environment={})
    assert (made.registries, made.missing) == (("one.example.com",), ())
    found = json.loads(made.text)["auths"]
    assert found == {"one.example.com/a/x": auth("a"), "one.example.com/b/y": auth("b")}


def test_none_is_none_and_no_file_is_one_sentence(tmp_path: Path) -> None:
    assert docker_config(IMAGES, source="none", environment=home(tmp_path)).text == ""
    with pytest.raises(UserError, match=r"pullSecret\.from: .* is no file: write podman, docker, none"):
        docker_config(IMAGES, source=str(tmp_path / "absent"), environment={})


def test_a_helper_is_asked_and_its_answer_copied(tmp_path: Path) -> None:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"credHelpers": {"one.example.com": "vault"}}))
    asked: list[tuple[str, str]] = []

    def ask(helper: str, server: str) -> bytes:
        asked.append((helper, server))
        return json.dumps({"Username": "<token>", "Secret": SECRET}).encode()

    made = docker_config([*IMAGES[:1], "one.example.com/other:1"], source=str(file), environment={}, ask=ask)
    assert asked == [("vault", "one.example.com")]
    assert json.loads(made.text)["auths"] == {"one.example.com": {"identitytoken": SECRET}}


def test_what_is_collected_holds_no_secret() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    document = {"kind": "Secret", "metadata": {"name": "x", "annotations": annotations}, "data": {"password": SECRET}}
    made = redacted(document)
    assert SECRET not in json.dumps(made)
    assert made["data"] == {"password": "REDACTED"}
