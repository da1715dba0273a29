"""A registry with a door: tokens, passwords, TLS, redirects; and what is never sent to whom."""

import json
import re
import time
from pathlib import Path

import pytest
from tests.unit.bundle.made import files
from tests.unit.bundle.packed import Registry, digest, packed, serving, tar

from pointsman.bundle.sources.credentials import Credentials, find_credentials
from pointsman.bundle.sources.limits import BUNDLE_LIMITS
from pointsman.bundle.sources.references import ImageReference, parse_reference
from pointsman.bundle.sources.registry import Access, pulling
from pointsman.bundle.sources.source import Registries, read_bundle, resolve_digest
from pointsman.core.certificates import self_signed
from pointsman.core.errors import PointsmanError, Unavailable, UserError

SECRET = "a-secret-that-must-not-be-shown"


def image() -> dict[str, object]:
    return {"team/bundle": packed(tar(files()))}


def pull(registry: Registry, *, tag: str = ":v1", **options: object) -> str:
    source = f"{registry.host}/team/bundle{tag}"
    return read_bundle(source, registries=Registries(insecure=True, **options)).csv.name  # type: ignore[arg-type]


def auth_file(folder: Path, registry: Registry, entry: dict[str, str]) -> dict[str, str]:
    path = folder / "auth.json"
    path.write_text(json.dumps({"auths": {f"{registry.host}/team": entry}}))
    return {"REGISTRY_AUTH_FILE": str(path), "HOME": str(folder)}


def test_a_password_is_exchanged_for_a_token() -> None:
    with serving(Registry(images=image(), user="u", password=SECRET)) as registry:  # type: ignore[arg-type]
        assert pull(registry, username="u", password=SECRET) == "thing.v1.2.3"


def test_a_password_is_sent_where_the_registry_wants_it(tmp_path: Path) -> None:
    with serving(Registry(images=image(), user="u", password="p", basic=True)) as registry:  # type: ignore[arg-type]
        assert pull(registry, environment=auth_file(tmp_path, registry, {"auth": "dTpw"})) == "thing.v1.2.3"


def test_an_identity_token_is_exchanged(tmp_path: Path) -> None:
    with serving(Registry(images=image(), identity_token="it")) as registry:  # type: ignore[arg-type]
        environment = auth_file(tmp_path, registry, {"identitytoken": "it"})
        assert pull(registry, environment=environment) == "thing.v1.2.3"


def test_a_wrong_password_is_one_sentence_without_it() -> None:
    with (
        serving(Registry(images=image(), user="u", password="right")) as registry,  # type: ignore[arg-type]
        pytest.raises(UserError, match="token service answered 401: log in again") as caught,
    ):
        pull(registry, username="u", password=SECRET)
    assert SECRET not in str(caught.value)


def test_nobody_is_told_to_log_in() -> None:
    with (
        serving(Registry(images=image(), user="u", password="p", basic=True)) as registry,  # type: ignore[arg-type]
        pytest.raises(UserError, match="does not let us: log in with `podman login`"),
    ):
        pull(registry)


def test_credentials_do_not_follow_a_redirect_to_another_host() -> None:
    content = image()
    with (
        serving(Registry(images=content)) as store,  # type: ignore[arg-type]
        serving(Registry(images=content, user="u", password="p")) as registry,  # type: ignore[arg-type]
    ):
        registry.redirect = f"http://127.0.0.1:{store.port}"
        assert pull(registry, username="u", password="p") == "thing.v1.2.3"
    assert store.asked
    assert {authorization for _, authorization in store.asked} == {""}


def test_redirects_end() -> None:
    with serving(Registry(images=image())) as registry:  # type: ignore[arg-type]
        registry.redirect = f"http://127.0.0.1:{registry.port}"
        with pytest.raises(UserError, match="redirects more than 5 times"):
            pull(registry)


def test_a_manifest_with_another_digest_is_refused() -> None:
    content = packed(tar(files()))
    content.blobs[digest(b"wanted")] = content.manifest
    with (
        serving(Registry(images={"team/bundle": content})) as registry,
        pytest.raises(UserError, match="the registry sent a manifest with another digest"),
    ):
        pull(registry, tag=f"@{digest(b'wanted')}")


def test_an_absent_image_and_an_absent_registry_are_one_sentence() -> None:
    with serving(Registry()) as registry, pytest.raises(UserError, match="there is no such image"):
        pull(registry)
    with pytest.raises(Unavailable, match="the registry cannot be reached"):
        pull(registry)


def test_a_layer_that_breaks_off_is_one_sentence() -> None:
    with (
        serving(Registry(images=image(), cut=100)) as registry,  # type: ignore[arg-type]
        pytest.raises(Unavailable, match="the registry cannot be reached: peer closed connection"),
    ):
        pull(registry)


def test_a_registry_that_drips_is_not_waited_for_without_end() -> None:
    """A byte now and then keeps every read within its time; only the whole transfer has an end."""
    with serving(Registry(images=image(), drip=0.05)) as registry:  # type: ignore[arg-type]
        began = time.monotonic()
        reference = parse_reference(f"{registry.host}/team/bundle:v1")
        with (
            pytest.raises(Unavailable, match=r"did not send it within 0\.5 s"),
            pulling(reference, Access(insecure=True, patience=0.5)) as found,
        ):
            found.read(wanted=("manifests/", "metadata/"), limits=BUNDLE_LIMITS)
        assert time.monotonic() - began < 30


def test_tls_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    certificate, key = self_signed()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    with serving(Registry(images=image()), tls=(tmp_path / "tls.crt", tmp_path / "tls.key")) as registry:  # type: ignore[arg-type]
        source = f"{registry.host}/team/bundle:v1"
        with pytest.raises(Unavailable, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            read_bundle(source, registries=Registries())
        known = Registries(authority=tmp_path / "tls.crt")
        assert read_bundle(source, registries=known).csv.name == "thing.v1.2.3"
        assert read_bundle(source, registries=Registries(insecure=True)).csv.name == "thing.v1.2.3"


def test_plain_http_needs_the_flag() -> None:
    with serving(Registry(images=image())) as registry:  # type: ignore[arg-type]
        with pytest.raises(PointsmanError, match="cannot be reached"):
            read_bundle(f"{registry.host}/team/bundle:v1", registries=Registries())
        assert not registry.asked


def test_a_blob_beyond_its_limit_is_cut_off() -> None:
    with serving(Registry(images=image())) as registry:  # type: ignore[arg-type]
        reference = ImageReference(registry.host, "team/bundle", "v1")
        with (
            pulling(reference, Access(insecure=True)) as client,
            pytest.raises(UserError, match="a blob is larger than 10 bytes"),
        ):
            client.blob(next(iter(packed(tar(files())).blobs)), limit=10)


def test_a_tag_is_pinned() -> None:
    content = packed(tar(files()))
    with serving(Registry(images={"team/bundle": content})) as registry:
        pinned = resolve_digest(f"{registry.host}/team/bundle:v1", registries=Registries(insecure=True))
        assert pinned == f"{registry.host}/team/bundle@{digest(content.manifest)}"
        assert resolve_digest(pinned, registries=Registries()) == pinned


def test_half_a_password_is_refused() -> None:
    with pytest.raises(UserError, match="--registry-username and --registry-password go together"):
        read_bundle("localhost:1/a/b", registries=Registries(username="u"))


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        pytest.param("nginx", ImageReference("docker.io", "library/nginx"), id="short"),
        pytest.param("quay.io/a/b:v1", ImageReference("quay.io", "a/b", "v1"), id="tag"),
        pytest.param("localhost:5000/a", ImageReference("localhost:5000", "a"), id="port"),
        pytest.param(
            "docker://quay.io/a@sha256:" + "0" * 64,
            ImageReference("quay.io", "a", "", "sha256:" + "0" * 64),
            id="digest",
        ),
    ],
)
def test_a_reference_has_parts(text: str, reference: ImageReference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    "text",
    ["", "UPPER", "quay.io/", "quay.io/a:b:c", "quay.io/a@sha256:1", "a b", "../x", "x" * 5000, "quay.io/a/../b"],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_reference(text)


REFERENCE = ImageReference("quay.io", "team/app/bundle")


def credentials(folder: Path, content: object, **answers: bytes | None) -> Credentials:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return find_credentials(
        REFERENCE, environment={"REGISTRY_AUTH_FILE": str(path)}, ask=lambda helper, server: answers[helper]
    )


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param({"auths": {"quay.io": {"auth": "dTpw"}}}, Credentials("u", "p"), id="by host"),
        pytest.param({"auths": {"https://quay.io/v2/": {"auth": "dTpw"}}}, Credentials("u", "p"), id="by address"),
        pytest.param(
            {"auths": {"quay.io": {"auth": "eDp5"}, "quay.io/team": {"auth": "dTpw"}}},
            Credentials("u", "p"),
            id="longest path",
        ),
        pytest.param({"auths": {"quay.io/tea": {"auth": "dTpw"}}}, Credentials(), id="half a word is no path"),
        pytest.param(
            {"auths": {"quay.io": {"username": "u", "password": "p"}}}, Credentials("u", "p"), id="in the open"
        ),
        pytest.param(
            {"auths": {"quay.io": {"registrytoken": "t"}}}, Credentials(registry_token="t"), id="registry token"
        ),
        pytest.param({"credHelpers": {"quay.io": "good"}}, Credentials("u", "p"), id="helper"),
        pytest.param({"credHelpers": {"quay.io": "token"}}, Credentials(identity_token="t"), id="helper with a token"),
        pytest.param({"credsStore": "good"}, Credentials("u", "p"), id="store"),
        pytest.param({"credsStore": "empty"}, Credentials(), id="store without it"),
        pytest.param(
            {"auths": {"quay.io": {}}, "credsStore": "good"}, Credentials("u", "p"), id="an entry with nothing in it"
        ),
        pytest.param({}, Credentials(), id="nothing"),
    ],
)
def test_files_of_podman_and_docker(tmp_path: Path, content: object, found: Credentials) -> None:
    answers: dict[str, bytes | None] = {
        "good": b'{"Username": "u", "Secret": "p"}',
        "token": b'{"Username": "<token>", "Secret": "t"}',
        "empty": None,
    }
    assert credentials(tmp_path, content, **answers) == found


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param({"auths": {"quay.io": {"auth": "%%"}}}, "is not base64 of user:password", id="no base64"),
        pytest.param({"credsStore": "../../bin/sh"}, "is no credential helper's name", id="a path as helper"),
        pytest.param({"credsStore": "bad"}, "answered what is not JSON", id="odd answer"),
        pytest.param("{", "cannot be read as credentials", id="no JSON"),
    ],
)
def test_credentials_that_cannot_be_read(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        credentials(tmp_path, content, bad=b"oops")


def test_a_real_helper_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text(
        '#!/bin/sh\nread host\n[ "$host" = quay.io ] && echo \'{"Username":"u","Secret":"p"}\' || exit 3\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "auth.json"
    path.write_text('{"credsStore": "mine"}')
    environment = {"REGISTRY_AUTH_FILE": str(path)}
    assert find_credentials(REFERENCE, environment=environment) == Credentials("u", "p")
    with pytest.raises(UserError, match="docker-credential-mine failed with exit code 3"):
        find_credentials(ImageReference("ghcr.io", "a/b"), environment=environment)


def test_a_password_is_not_in_what_is_printed() -> None:
    assert SECRET not in repr(Credentials("u", SECRET, SECRET, SECRET)) + repr(Registries(password=SECRET))
    assert re.search("Credentials", repr(Access(Credentials("u", SECRET))))


def test_the_named_file_must_be_there() -> None:
    with pytest.raises(UserError, match="REGISTRY_AUTH_FILE=/absent: there is no such file"):
        find_credentials(REFERENCE, environment={"REGISTRY_AUTH_FILE": "/absent"})
