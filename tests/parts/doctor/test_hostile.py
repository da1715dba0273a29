"""What others wrote into objects reaches a person's terminal and shell: as text, and as nothing else.

Names of objects are checked by the API server; references, flags, labels, messages and everything in an EnvoyFilter are
not. An administrator copies our fixes.
"""

import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.unit.doctor.breaks import (
    REPLACE,
    Break,
    add,
    as_replaced,
    change,
    drop,
    manual_cluster,
    own_route_patch,
    pages,
    says,
    tls,
)
from tests.unit.doctor.scene import (
    DUPLEX,
    EXT_PROC,
    NOW,
    POOL_CLUSTER,
    SCHED,
    SIM,
    broken,
    envoyfilter,
    live_route,
    per_route,
)
from tests.unit.doctor.test_chain import KEPT, spots

from pointsman.doctor.cluster.chain import examine
from pointsman.doctor.report import lines

SHELL = "$(: > pwned)`: > pwned`'; : > pwned; '\"; : > pwned; \" | : > pwned"
SCREEN = "\x1b]0;owned\x07\x1b[2J\r\n\u202efirst cause: none"
ASKED = f"outbound|9002||x{SHELL}.{SIM}.svc.cluster.local"


def named(cluster: str) -> dict[str, Any]:
    """The manual's cluster under another name."""
    patch = manual_cluster()
    patch["patch"]["value"]["name"] = cluster
    return patch


def flags(*words: str) -> Break:
    return change("Pod", "epp-1", "spec", "containers", 0, "args", to=list(words))


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(
            (change("InferencePool", "pool", "spec", "endpointPickerRef", "name", to=f"epp{SHELL}"), pages(routes=[])),
            id="picker's name",
        ),
        pytest.param(
            (pages(routes=[live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {EXT_PROC: per_route(cluster=ASKED)})]),),
            id="cluster that Envoy asks",
        ),
        pytest.param(
            (add(envoyfilter(own_route_patch(DUPLEX, cluster=ASKED))), pages(routes=[])), id="cluster that a patch asks"
        ),
        pytest.param(
            (add(envoyfilter(own_route_patch(DUPLEX, cluster=SHELL), named(SHELL))),), id="cluster of one's own"
        ),
        pytest.param(
            (
                lambda s: setattr(s, "refused", (("list", "pods"),)),
                flags("--pool-name", "pool", "--pool-namespace", SHELL),
            ),
            id="namespace in a flag",
        ),
        pytest.param(
            (
                lambda s: setattr(s, "refused", (("list", "inferencepools"),)),
                flags("--pool-name", "pool", "--pool-group", SHELL),
            ),
            id="group in a flag",
        ),
        pytest.param((flags("--pool-name", SHELL, "--pool-namespace", SHELL),), id="pool in a flag"),
        pytest.param(
            (
                drop("ReferenceGrant", "from-scheduler"),
                change("HTTPRoute", "llm", "spec", "rules", 0, "backendRefs", 0, "name", to=SHELL),
            ),
            id="backend's name",
        ),
        pytest.param(
            (
                change("Service", "epp", "spec", "type", to="ExternalName"),
                change("Service", "epp", "spec", "externalName", to=f"a.{SHELL}"),
            ),
            id="external name",
        ),
        pytest.param(
            (
                tls(ends=NOW),
                flags("--pool-name", "pool", "--cert-path", "/c"),
                change(
                    "Deployment", "epp", "spec", "template", "spec", "volumes", to=[{"secret": {"secretName": SHELL}}]
                ),
            ),
            id="Secret's name",
        ),
        pytest.param(
            (change("Gateway", "infra-inference-scheduling-inference-gateway", "spec", "gatewayClassName", to=SHELL),),
            id="class",
        ),
        pytest.param(
            (
                change("HTTPRoute", "llm", "spec", "rules", 0, "name", to=SHELL),
                add(envoyfilter(own_route_patch(DUPLEX, name="x"))),
            ),
            id="rule's name",
        ),
        pytest.param((says("HTTPRoute", "llm", "ResolvedRefs", SHELL, SHELL),), id="condition"),
        pytest.param((add(envoyfilter(REPLACE, manual_cluster(f"10.9.9.9{SHELL}"))), as_replaced), id="address"),
    ],
)
def test_no_fix_runs_what_an_object_says(tmp_path: Path, breaks: tuple[Break, ...]) -> None:
    findings = [one for one in examine(broken(*breaks).cluster()) if one.fix]
    assert findings
    for fix in {one.fix for one in findings}:
        subprocess.run(["/bin/sh", "-c", fix], cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, check=False)
        assert not list(tmp_path.iterdir()), fix


def test_nothing_moves_the_cursor() -> None:
    """Whichever text of an object it stands in."""
    made = envoyfilter(REPLACE, manual_cluster(), own_route_patch(DUPLEX, cluster="epp-cluster"))
    places = sum(1 for one in broken(add(made)).documents for _ in spots(one))
    for number in range(0, places, 5):
        scene = broken(add(made), as_replaced)
        holder, key = next(islice((spot for one in scene.documents for spot in spots(one)), number, None))
        if key in KEPT or not isinstance(holder[key], str):
            continue
        holder[key] += SCREEN
        for line in lines(examine(scene.cluster())):
            assert line.isprintable(), line
