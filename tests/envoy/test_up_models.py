"""`pointsman up --models`: two pools behind one Envoy, and the model in the body decides, not a client's header."""

import json

import httpx
from tests.envoy.commands import PORTS, Run, alive, pids, status

ANYWHERE = ("up", "--detach", *(f"{flag}=0" for flag in PORTS))


def ask(http: httpx.Client, model: object, *, size: int = 10, claims: str = "") -> httpx.Response:
    """Send a prompt of some size, with the model behind it, and a header that claims another."""
    headers = {"content-type": "application/json"} | ({"x-gateway-model-name": claims} if claims else {})
    body = {"prompt": "x" * size, "max_tokens": 1, **({} if model is None else {"model": model})}
    return http.post("/v1/completions", content=json.dumps(body), headers=headers)


def test_each_model_has_a_pool_of_its_own(run: Run) -> None:
    started = run(*ANYWHERE, "--models", "org/a, b", "--replicas=2", "--sim-args=--max-model-len 1000000")
    assert started.returncode == 0, started.stderr + started.stdout
    assert all(f'"model": "{model}"' in started.stdout for model in ("org/a", "b")), "a command to try for each"
    document = status(run)
    assert [endpoint["name"] for endpoint in document["endpoints"]] == [
        f"simulator-{model}-{n}" for model in "ab" for n in range(2)
    ]
    assert all(endpoint["picks"] is not None for endpoint in document["endpoints"]), "each is known to a picker"
    assert {"picker-a", "picker-b", "router", "envoy"} <= document["pids"].keys()
    with httpx.Client(base_url=document["gateway"], timeout=30) as http:
        for model, short in (("org/a", "a"), ("b", "b")):
            for size in (10, 1000, 100_000):
                answers = [ask(http, model, size=size) for _ in range(4)]
                assert [(answer.status_code, answer.json()["model"]) for answer in answers] == [(200, model)] * 4
                pods = {answer.headers["x-inference-pod"] for answer in answers}
                assert pods <= {f"simulator-{short}-0", f"simulator-{short}-1"}
        forged = ask(http, "b", claims="org/a")
        assert forged.headers["x-inference-pod"].startswith("simulator-b-"), "the body decides, not the client's header"
        unknown = ask(http, "nobody", claims="b")
        assert (unknown.status_code, "nobody" in unknown.text) == (404, True)
        assert unknown.headers["x-inference-pod"].startswith("simulator-a-"), "the first pool says so"
        assert "model not found" in ask(http, None).text, "as without a router: a picker wants one"
        assert http.get("/v1/models").json()["data"][0]["id"] == "org/a"
        assert http.post("/v1/completions", content=b"no JSON").status_code == 400

    assert run("up", "--models", "b,org/a").returncode == 2
    assert run("up", "--replicas", "1").returncode == 0
    less = status(run)
    assert [endpoint["name"] for endpoint in less["endpoints"]] == ["simulator-a-0", "simulator-b-0"]
    everyone = pids(less)
    assert run("down").returncode == 0
    assert not any(alive(pid) for pid in everyone)
