"""However a path is spelled, the picker reads the body of what a model server will serve."""

import time
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.http.messages import split_target
from pointsman.epp.body.parsers import ParserChoice, path_of
from pointsman.epp.body.paths import canonical
from pointsman.epp.request.refusals import BadRequest
from pointsman.sim.api.routes import CONTROLS, GENERATION

NAME_A_MODEL = {*GENERATION, *(path for path in CONTROLS if path.endswith(("/embeddings", "/render")))}

SPELLINGS = {
    "/v1/completions": "/v1/completions",
    "/v1/completions?a=/../b%2f": "/v1/completions",
    "/v1/completions#?": "/v1/completions",
    "/v1/chat/%63ompletions": "/v1/chat/completions",
    "/%76%31/%43": "/v1/C",
    "/v1/%2563ompletions": "/v1/%2563ompletions",
    "//v1///completions/": "/v1/completions",
    "/./v1/%2e/completions/.": "/v1/completions",
    "/v1/x/../completions": "/v1/completions",
    "/v1/x/%2E%2e/completions": "/v1/completions",
    "/../../v1/completions": "/v1/completions",
    "/v1/completions/..": "/v1",
    "/v1\\completions": "/v1/completions",
    "/V1/Completions": "/V1/Completions",
    "/v1/completions%20": "/v1/completions%20",
    "/v1/completions%3Fa": "/v1/completions%3Fa",
    "/v1/completions%00": "/v1/completions%00",
    "/v1/completions%": "/v1/completions%",
    "/v1/completions%zz": "/v1/completions%zz",
    "/v1/%c3%a9": "/v1/%c3%a9",
    "http://a/v1/completions": "/http:/a/v1/completions",
    "": "/",
    "*": "/*",
}


@pytest.mark.parametrize(("target", "path"), SPELLINGS.items())
def test_a_path_has_one_spelling(target: str, path: str) -> None:
    assert canonical(target) == path
    assert canonical(path) == path


@pytest.mark.parametrize("target", ["/v1%2fcompletions", "/v1%2Fcompletions", "/v1%5ccompletions", "/v1/%5C"])
def test_an_encoded_slash_is_refused(target: str) -> None:
    with pytest.raises(BadRequest, match="the path has an encoded slash: write it as /"):
        path_of({":path": target})


def _simulator(target: str) -> str:
    return split_target(target.encode())[0]


def _uvicorn(target: str) -> str:
    """What vLLM's own server looks up: it drops the fragment too."""
    return unquote(target.partition("?")[0].partition("#")[0])


def _passes_unread(target: str) -> bool:
    try:
        return not ParserChoice().choose({":path": target}).reads
    except BadRequest:
        return False


def _spellings(character: str) -> st.SearchStrategy[str]:
    escapes = [f"%{ord(character):02x}", f"%{ord(character):02X}", f"%25{ord(character):02x}"]
    if character == "/":
        escapes += ["//", "/./", "/x/../", "\\", "/%2e/", "/x/%2e%2e/"]
    return st.sampled_from([character] * 30 + escapes)


_ENDS = st.sampled_from(
    ["", "", "", "?", "?a=b", "?/v1/models", "#", "#/x", "/", "/.", "/x/..", "%00", ";a", "%20", "%3f"]
)
hostile = st.sampled_from(sorted(NAME_A_MODEL)).flatmap(
    lambda path: st.builds("".join, st.tuples(*map(_spellings, path), _ENDS))
)


@given(hostile)
def test_nothing_that_names_a_model_is_served_and_passes_unread(target: str) -> None:
    served = {_simulator(target), _uvicorn(target)} & NAME_A_MODEL
    assert not (served and _passes_unread(target))


@pytest.mark.parametrize("target", sorted(NAME_A_MODEL))
def test_what_names_a_model_is_read(target: str) -> None:
    assert not _passes_unread(target)


@pytest.mark.parametrize("piece", ["%63", "../", "/x", "//", "\\", "%", "%2", "?", "/.", "a"])
def test_long_paths_take_no_longer_than_their_length(piece: str) -> None:
    started = time.perf_counter()
    canonical("/" + piece * 100_000)
    assert time.perf_counter() - started < 2
