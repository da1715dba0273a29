"""What may be asked for through the gateway, however it is spelled: the inference API, read by the picker."""

import json
from typing import Any

from tests.envoy.conftest import StartLab
from tests.envoy.harness import MODEL, Lab
from tests.envoy.raw import exchange, status
from tests.waiting import until

from pointsman.core.documents import to_yaml
from pointsman.core.files import replace
from pointsman.local import programs
from pointsman.render.envoy.paths import INFERENCE
from pointsman.sim.api.routes import CONTROLS, GENERATION

FOR_ONE_POD = {
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/ping", "/version", "/load", "/metrics"),
    *("/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache", "/query", "/admin/config", "/openapi.json"),
    "/fake_metrics",
}
IN_DISGUISE = (
    *("/%61dmin/config", "//admin/config", "/./admin/config", "/v1/models/../../admin/config", "/\\admin\\config"),
    *("/v1/completions/%2e%2e/%2e%2e/fake_metrics", "/admin/config?/v1/models", "/", "/v1", "/v1/completionsx"),
)
SPELLINGS = (
    *("/v1/chat/%63ompletions", "/%76%31/chat/completions", "//v1//chat//completions", "/v1/x/../chat/completions"),
    *(
        "/v1/./chat/%2e/completions",
        "/v1/x/%2e%2E/chat/completions",
        "/v1\\chat\\completions",
        "/v1/chat/completions?a",
    ),
)
REFUSED = ("/v1%2fchat/completions", "/v1%5cchat/completions", "/v1/chat/completions%00", "/v1/chat/completions#a")


async def ask(lab: Lab, path: str, *, method: str = "POST", body: Any = None) -> str:
    """Send a request whose path is written as it is, and return the head of the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
    return await exchange(lab, head.encode("latin-1") + data)


async def test_what_is_for_one_pod_is_not_served_to_clients(strict_lab: Lab) -> None:
    lab = strict_lab
    before = await lab.picks()
    for path in (*sorted(FOR_ONE_POD), *IN_DISGUISE):
        for method in ("GET", "POST"):
            answer = await ask(lab, path, method=method, body={"time-to-first-token": "1s"})
            assert (path, status(answer)) == (path, 404)
            assert "x-inference-pod" not in answer and "content-type: application/json" in answer
    assert await lab.picks() == before


def test_every_path_of_the_simulator_is_of_one_kind_or_the_other() -> None:
    """Whoever adds a path decides whether clients may ask for it."""
    listed = {path for path in {*GENERATION, *CONTROLS} if any(f"{path}/".startswith(f"{one}/") for one in INFERENCE)}
    assert listed.isdisjoint(FOR_ONE_POD)
    assert listed | FOR_ONE_POD == {*GENERATION, *CONTROLS}


async def test_clients_may_be_given_other_paths(start_lab: StartLab) -> None:
    lab = await start_lab(failure_mode="FailOpen", replicas=1, paths=("/v1", "/version"))
    assert status(await ask(lab, "/version", method="GET")) == 200
    assert status(await ask(lab, "/v1/models", method="GET")) == 200
    assert status(await ask(lab, "/metrics", method="GET")) == 404


async def test_no_spelling_of_a_path_escapes_the_picker(strict_lab: Lab) -> None:
    """A model that the picker renames is renamed, or the request is refused; `alias` itself no simulator has."""
    lab = strict_lab
    rule = {"targets": [{"modelRewrite": MODEL}], "matches": [{"model": {"value": "alias"}}]}
    listing = programs.picker_endpoints(list(lab.pods.items()))
    replace(lab.folder / "endpoints.yaml", to_yaml(listing | {"modelRewrites": [{"name": "one", "rules": [rule]}]}))
    body = {"model": "alias", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}

    async def renamed() -> bool:
        return status(await ask(lab, "/v1/chat/completions", body=body)) == 200

    await until(renamed)
    answers = {path: status(await ask(lab, path, body=body)) for path in (*SPELLINGS, *REFUSED)}
    assert answers == dict.fromkeys(SPELLINGS, 200) | dict.fromkeys(REFUSED, 400)
