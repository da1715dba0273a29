"""An LLMInferenceService on a real node: the requirement's manifest and its four commands, with simulators for GPUs.

Beside it runs the picker that KServe's controller would make of its own preset, with our image and nothing else
changed.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests import kserve
from tests.cluster.test_kserve_drop_in import configurations
from tests.e2e.cluster import ROOT, Cluster
from tests.e2e.test_hands_on import blocks
from tests.waiting import wait_until

from pointsman.core.certificates import self_signed
from pointsman.render.serving.templates import expanded

NS = ("-n", "rhaii-inference")
NAME = "phi3-gpu-alpn-test"
SERVICE = f"llminferenceservice/{NAME}"
CUSTOM = "gcr.io/ecoeng-llmd/llm-d-inference-scheduler:alpn-fix"
POOLS = "config/crd/inference/inference.networking.k8s.io_inferencepools.yaml"
LABELS = "app.kubernetes.io/component=router-scheduler"

PAGES = ("serve-a-model.md", "verify-alpn.md")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def served(cluster: Cluster, named: None) -> Iterator[str]:
    """Install the operator and the manifest, as the page says; yield the URL of the service, which is ready."""
    cluster.bash(block("config/default-llm"))
    cluster.bash(block("simulators.yaml"))
    cluster.kubectl("label", "namespace", NS[1], "pod-security.kubernetes.io/enforce=restricted")
    cluster.apply(*kserve_picker(cluster.image))  # it takes half a minute to be asked for the first time
    cluster.bash(block("kubectl wait llminferenceservice"))
    yield cluster.kubectl("get", SERVICE, *NS, "-o", "jsonpath={.status.url}")
    cluster.bash(f"""
        kubectl delete llminferenceservice --all -n rhaii-inference --timeout=60s
        kubectl delete deployment,pod --all -n rhaii-inference --force --grace-period=0 >/dev/null 2>&1
        kubectl delete namespace rhaii-inference --timeout=180s
        kubectl delete -k config/default-llm --ignore-not-found --timeout=180s
        kubectl delete -f {POOLS} --timeout=180s
    """)


def block(words: str) -> str:
    """Return the commands of the pages in the block with these words."""
    (found,) = (text for page in PAGES for text in blocks(ROOT / "docs" / "how-to" / page) if words in text)
    return found


def kserve_picker(image: str) -> list[dict[str, Any]]:
    """Return what KServe 0.17 makes of its scheduler preset for a service `theirs`, with our image in it."""
    metadata = {"name": "theirs", "namespace": NS[1]}
    context = {"ObjectMeta": metadata, "Spec": {"model": {"name": "m"}}}
    preset = expanded(kserve.presets("v0.17.0")["kserve-config-llm-scheduler"], context)["router"]["scheduler"]
    (main,) = preset["template"]["containers"]
    main |= {"image": image, "args": [*main["args"], "--config-text", configurations("v0.17.0")[-1]]}
    # Our image is one for all parts: KServe after 0.17 says which program it wants, and the requirement does.
    main["command"] = ["/usr/local/bin/epp-scheduler"]
    labels = {"app": "theirs"}
    pod = {**preset["template"], "serviceAccountName": "theirs"}
    certificate, key = (text.decode() for text in self_signed())
    rbac = "rbac.authorization.k8s.io"
    watch = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": watch},
        {
            "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io"],
            "resources": ["inferencepools", "inferenceobjectives", "inferencemodels"],
            "verbs": watch,
        },
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "theirs"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata | {"name": "theirs-kserve-self-signed-certs"},
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": certificate, "tls.key": key},
        },
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": metadata | {"name": "theirs-inference-pool"},
            # Its pool has the model servers of the other service.
            "spec": {
                **preset["pool"]["spec"],
                "selector": {"matchLabels": {"app.kubernetes.io/name": NAME, "kserve.io/component": "workload"}},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
    ]


def test_the_four_commands_of_the_requirement(cluster: Cluster, served: str) -> None:
    shown = cluster.bash(f"kubectl get llminferenceservice {NAME} -n rhaii-inference -o yaml")
    assert "kind: LLMInferenceService" in shown and f"url: {served}" in shown
    head, row = cluster.bash(f"kubectl get deployment -n rhaii-inference -l {LABELS}").splitlines()
    assert head.split()[:2] == ["NAME", "READY"]
    assert row.split()[:2] == [f"{NAME}-kserve-router-scheduler", "1/1"]
    head, row = cluster.bash(f"kubectl get pods -n rhaii-inference -l {LABELS}").splitlines()
    assert row.startswith(f"{NAME}-kserve-router-scheduler-") and row.split()[1:3] == ["1/1", "Running"]
    image = cluster.bash(f"""
        kubectl get deployment {NAME}-kserve-router-scheduler -n rhaii-inference \\
          -o jsonpath='{{.spec.template.spec.containers[0].image}}'
    """)
    assert image == "ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0"


def test_ready_means_that_the_picked_pod_answers(cluster: Cluster, served: str) -> None:
    token = cluster.bash("""
        kubectl create serviceaccount reader -n rhaii-inference >/dev/null
        kubectl create clusterrolebinding llm-reader --clusterrole=pointsman-metrics-reader \\
          --serviceaccount=rhaii-inference:reader >/dev/null
        kubectl create token reader -n rhaii-inference
    """).strip()
    try:
        for number in range(3):
            answer = cluster.bash(f"""
                curl -sSi -X POST {served}/v1/completions -H 'content-type: application/json' \\
                  -H 'x-request-id: llm-{number}' \\
                  -d '{{"model": "{NAME}", "prompt": "hello {number}", "max_tokens": 4}}'
            """)
            assert answer.startswith("HTTP/1.1 200"), answer
            (pod,) = re.findall(r"^x-inference-pod: (\S+)\r?$", answer, flags=re.MULTILINE)

            def decided(number: int = number) -> list[Any]:
                said = cluster.bash(
                    f"curl -sS -H 'authorization: Bearer {token}' "
                    f"http://{NAME}-epp-service.rhaii-inference:9090/debug/decisions?id=llm-{number}"
                )
                found: list[Any] = json.loads(said)["decisions"]
                return found

            (decision,) = wait_until(decided, despite=(ValueError,))
            chosen = [one["name"] for one in decision["candidates"] if one["address"] == decision["picked"][0]]
            assert [name.removesuffix("-rank-0") for name in chosen] == [pod]
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "llm-reader")


def test_the_page_shows_what_was_made_and_asks_it(cluster: Cluster, served: str) -> None:
    shown = cluster.bash(block("-l app.kubernetes.io/component=router-scheduler"))
    assert shown.endswith("ghcr.io/llm-d/llm-d-inference-scheduler:v0.4.0")
    answer = cluster.bash(block("serve-1"))
    assert answer.startswith("HTTP/1.1 200") and f"x-inference-pod: {NAME}-kserve-" in answer


def test_alpn_by_hand(cluster: Cluster, served: str) -> None:
    assert cluster.bash(block("-alpn h2 </dev/null")).strip() == "ALPN protocol: h2"
    assert cluster.bash(block("-alpn http/1.1")).strip() == "No ALPN negotiated"
    verified = cluster.bash(block("-verify_hostname"))
    assert "ALPN protocol: h2" in verified and "Verification: OK" in verified


def test_a_custom_image(cluster: Cluster, served: str) -> None:
    cluster.bash("""
        kubectl get deployment pointsman-operator -n pointsman-system -o json \\
          | sed 's#"--trusted-image-prefixes=#&gcr.io/ecoeng-llmd/,#' | kubectl replace -f -
    """)
    before = cluster.kubectl("get", "pods", *NS, "-l", LABELS, "-o", "name")

    def use(image: str) -> None:
        """Apply the manifest of the requirement with another image of the picker."""
        cluster.bash(f"""
kubectl apply -f - <<EOF
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata:
  name: {NAME}
  namespace: rhaii-inference
spec:
  replicas: 3
  router:
    route: {{}}
    gateway: {{}}
    scheduler:
      image: {image}
EOF
        """)

    # One that nobody has is told, and the picker that runs serves on.
    use("gcr.io/ecoeng-llmd/nobody-has-this:1")
    moving = 'jsonpath={.status.conditions[?(@.type=="Progressing")].message}'
    wait_until(lambda: "nobody-has-this" in cluster.kubectl("get", SERVICE, *NS, "-o", moving), within=120)
    assert before.strip() in cluster.kubectl("get", "pods", *NS, "-l", LABELS, "-o", "name")
    assert "200" in cluster.bash(f"curl -sS -o /dev/null -w '%{{http_code}}' {served}/v1/models")
    use(CUSTOM)
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    deployment = ("deployment", f"{NAME}-kserve-router-scheduler", *NS)
    wait_until(lambda: cluster.kubectl("get", *deployment, "-o", path) == CUSTOM, within=120)
    cluster.kubectl("rollout", "status", *deployment, "--timeout=120s")
    wait_until(lambda: cluster.kubectl("get", "pods", *NS, "-l", LABELS, "-o", "name") != before)
    reason = cluster.kubectl("get", SERVICE, *NS, "-o", 'jsonpath={.status.conditions[?(@.type=="SpecHonoured")]}')
    assert json.loads(reason)["reason"] == "Shorthand"
    cluster.kubectl("wait", SERVICE, *NS, "--for=condition=Ready", "--timeout=120s")


def test_our_image_under_kserve_s_own_preset(cluster: Cluster, served: str) -> None:
    cluster.kubectl("wait", "deployment/theirs", *NS, "--for=condition=Available", "--timeout=120s")
    restarts = cluster.kubectl("get", "pods", *NS, "-l", "app=theirs", "-o", "jsonpath={..restartCount}")
    assert restarts == "0"
    # It is ready only with a pool that it knows, and the pool has the servers of the other service.
    assert "picker: ready" in cluster.bash("kubectl logs -n rhaii-inference -l app=theirs --tail=-1")


def test_the_samples_name_images_that_the_node_has() -> None:
    text = "".join(path.read_text() for path in (ROOT / "config" / "samples" / "llm").glob("*.yaml"))
    assert set(re.findall(r"image: (\S+)", text)) == {"ghcr.io/llm-d/llm-d-simulator:latest"}
