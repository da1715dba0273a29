"""Real Istio, broken on purpose: the doctor names what was broken, and its own fix has picks followed again."""

import contextlib
import datetime as dt
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.istio.mesh import Mesh
from tests.istio.patient import ADMIN, GATEWAY, HOME, POOLS, Patient, grant, route

from pointsman import cli
from pointsman.doctor.findings import Finding

Document = dict[str, Any]
Break = Callable[[Patient], None]


@pytest.fixture(scope="module")
def patient(mesh: Mesh) -> Iterator[Patient]:
    patient = Patient(mesh)
    try:
        patient.admit()
        yield patient
    finally:
        patient.discharge()


def test_a_way_that_is_well(patient: Patient) -> None:
    findings = patient.findings()
    assert {one.verdict for one in findings} <= {"ok", "skipped"}, findings
    proof = {one.check: one for one in findings}["the answer comes from the picked Pod"]
    assert (proof.verdict, proof.evidence.startswith("4 of 4 requests")) == ("ok", True), proof


def command(patient: Patient, *words: str) -> tuple[int, str]:
    """Run our command line as a person does."""
    out = io.StringIO()
    where = ("-n", HOME, "--gateway", GATEWAY, "--kubeconfig", str(patient.mesh.plane.kubeconfig("admin")))
    with contextlib.redirect_stdout(out):
        return cli._run([*words, *where]), out.getvalue()


def test_experiments(patient: Patient) -> None:
    code, said = command(patient, "verify", "prefix-cache", "--json", "--pause", "0")
    result = json.loads(said)
    assert (code, result["verdict"], len(result["requests"]), len(result["pods"])) == (0, "passed", 8, 1), result
    code, said = command(patient, "verify", "round-robin", "--json", "--pause", "0")
    result = json.loads(said)
    assert (code, result["verdict"], len(result["pods"])) == (0, "passed", 3), result


def test_safe_changes_are_made_and_others_are_left(patient: Patient) -> None:
    admin = ("--envoy", f"http://127.0.0.1:{ADMIN}")
    patched("service", "epp", AS_HTTP)(patient)
    code, said = command(patient, "doctor", *admin, "--fix")
    assert (code, said.splitlines()[-1]) == (0, "all is well"), said
    deleted("referencegrants")(patient)
    cause = patient.suffers("references to other namespaces are granted")
    code, said = command(patient, "doctor", *admin, "--fix", "--json")
    found = json.loads(said)
    assert (code, found["firstCause"]) == (1, cause.check), "a grant opens access: that is for people to decide"
    patient.take(cause.fix)
    patient.recovers()


def patched(kind: str, name: str, body: object, *, namespace: str = POOLS, how: str = "json") -> Break:
    return lambda patient: patient.patch(kind, name, body, namespace=namespace, how=how)


def on_route(*changes: Document) -> Break:
    return patched("httproute", "llm", list(changes), namespace=HOME)


def deleted(kind: str) -> Break:
    def break_(patient: Patient) -> None:
        patient.mesh.plane.kubectl("delete", kind, "--all", "-n", POOLS)

    return break_


def both(*breaks: Break) -> Break:
    def break_(patient: Patient) -> None:
        for one in breaks:
            one(patient)

    return break_


def granted(patient: Patient) -> None:
    patient.mesh.apply(grant())


def destination_rule(policy: Document) -> Break:
    document = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "somebody", "namespace": POOLS},
        "spec": {"host": f"epp.{POOLS}.svc.cluster.local", "trafficPolicy": policy},
    }
    return lambda patient: patient.mesh.apply(document)


def shadowed(patient: Patient) -> None:
    """Make a route with the same host and match, and ours after it."""
    other = route()
    other["metadata"]["name"] = "another"
    other["spec"]["rules"] = [{"backendRefs": [{"name": "sim", "namespace": POOLS, "port": 8200}]}]
    patient.mesh.plane.kubectl("delete", "httproute", "llm", "-n", HOME)
    patient.mesh.apply(other)
    patient.mesh.apply(route())


GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name"


def envoyfilter(*patches: Document, namespace: str = HOME, selector: Document | None = None) -> Break:
    """Apply the manual's EnvoyFilter with these patches; ADDRESS stands for the Service's address of now."""

    def break_(patient: Patient) -> None:
        read = ("get", "service", "epp", "-n", POOLS, "-o", "jsonpath={.spec.clusterIP}")
        address = patient.mesh.plane.kubectl(*read)
        document = {
            "apiVersion": "networking.istio.io/v1alpha3",
            "kind": "EnvoyFilter",
            "metadata": {"name": "epp-ext-proc-poc", "namespace": namespace},
            "spec": {
                "workloadSelector": {"labels": selector or {GATEWAY_LABEL: GATEWAY}},
                "configPatches": json.loads(json.dumps(patches).replace("ADDRESS", address)),
            },
        }
        patient.mesh.apply(document)

    return break_


TYPES = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3"
EXT_PROC = "envoy.filters.http.ext_proc"
MANAGER = "envoy.filters.network.http_connection_manager"
OFF = {
    "request_header_mode": "SKIP",
    "request_body_mode": "NONE",
    "response_header_mode": "SKIP",
    "response_body_mode": "NONE",
}
ASK = {"envoy_grpc": {"cluster_name": "epp-cluster"}, "timeout": "2s"}
MANUAL = {"@type": f"{TYPES}.ExternalProcessor", "grpc_service": ASK, "processing_mode": OFF}


def on_filter(operation: str, name: str, config: Document, *, beside: str = EXT_PROC) -> Document:
    chain = {"filterChain": {"filter": {"name": MANAGER, "subFilter": {"name": beside}}}}
    return {
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY", "listener": chain},
        "patch": {"operation": operation, "value": {"name": name, "typed_config": config}},
    }


def static_cluster(address: str) -> Document:
    place = {"endpoint": {"address": {"socket_address": {"address": address, "port_value": 9002}}}}
    value = {
        "name": "epp-cluster",
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": "ROUND_ROBIN",
        "http2_protocol_options": {},
        "load_assignment": {"cluster_name": "epp-cluster", "endpoints": [{"lb_endpoints": [place]}]},
    }
    return {
        "applyTo": "CLUSTER",
        "match": {"context": "GATEWAY"},
        "patch": {"operation": "ADD", "value": value},
    }


def on_live_route(modes: Document | None) -> Document:
    cluster = f"outbound|9002||epp.{POOLS}.svc.cluster.local"
    overrides: Document = {"grpc_service": {"envoy_grpc": {"cluster_name": cluster}}}
    overrides |= {} if modes is None else {"processing_mode": modes}
    entry = {"@type": f"{TYPES}.ExtProcPerRoute", "overrides": overrides}
    return {
        "applyTo": "HTTP_ROUTE",
        "match": {"context": "GATEWAY", "routeConfiguration": {"vhost": {"route": {"name": "default.llm.0"}}}},
        "patch": {"operation": "MERGE", "value": {"typed_per_filter_config": {EXT_PROC: entry}}},
    }


DUPLEX = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
NAMED = {"op": "add", "path": "/spec/rules/0/name", "value": "chat"}
EXTENSION = {"group": "networking.istio.io", "kind": "EnvoyFilter", "name": "epp-ext-proc-poc"}
REFERRED = {
    "op": "add",
    "path": "/spec/rules/0/filters",
    "value": [{"type": "ExtensionRef", "extensionRef": EXTENSION}],
}
CORS = {"type": "CORS", "cors": {"allowOrigins": ["https://chat.example"]}}
TO_SERVICE = {
    "op": "replace",
    "path": "/spec/rules/0/backendRefs",
    "value": [{"name": "sim", "namespace": POOLS, "port": 8200}],
}
MISSPELT = {"op": "replace", "path": "/spec/rules/0/backendRefs/0/name", "value": "poll"}
AS_HTTP = [{"op": "replace", "path": "/spec/ports/0", "value": {"name": "http", "port": 9002, "targetPort": 9002}}]
ELSEWHERE = [{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 8100}]
TYPO = {"spec": {"selector": {"matchLabels": {"app": "sym"}}}}
NO_WATCH = [{"op": "replace", "path": "/rules/0/verbs", "value": ["list"]}]
LATE = {
    "@type": f"{TYPES}.ExternalProcessor",
    "grpc_service": {"envoy_grpc": {"cluster_name": f"outbound|9002||epp.{POOLS}.svc.cluster.local"}},
    "processing_mode": DUPLEX,
    "message_timeout": "10s",
    "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}},
}
ASLEEP = {**LATE, "processing_mode": OFF}
SIDECARS = {"match": {"context": "SIDECAR_OUTBOUND"}}
OVERRIDE = {"networking.istio.io/ext-proc-override": "request_header_mode: SEND"}
HASTY = {"@type": f"{TYPES}.ExternalProcessor", "message_timeout": "0.2s"}


AS_WRITTEN = envoyfilter(on_filter("REPLACE", EXT_PROC, MANUAL), static_cluster("ADDRESS"))


@pytest.mark.parametrize(
    ("breaks", "check", "evidence"),
    [
        pytest.param(
            deleted("referencegrants"),
            "references to other namespaces are granted",
            "pool",
            id="no grant",
        ),
        pytest.param(
            patched("service", "epp", AS_HTTP),
            "the picker's port is known to speak HTTP/2",
            "named http",
            id="port named http",
        ),
        pytest.param(
            patched("service", "epp", ELSEWHERE),
            "the Service leads to the picker's port",
            "8100",
            id="wrong target port",
        ),
        pytest.param(
            patched("inferencepool", "pool", TYPO, how="merge"),
            "the backend selects Pods",
            "app=sym",
            id="selector typo",
        ),
        pytest.param(
            on_route(MISSPELT), "the rule leads to something that exists", "poll is missing", id="pool misspelt"
        ),
        pytest.param(
            on_route({"op": "add", "path": "/spec/rules/0/filters", "value": [CORS]}),
            "no CORS filter takes the picker away",
            "CORS",
            id="CORS",
        ),
        pytest.param(
            on_route(REFERRED),
            "the route has no ExtensionRef that Istio refuses",
            "epp-ext-proc-poc",
            id="ExtensionRef",
        ),
        pytest.param(
            patched("role", "epp", NO_WATCH),
            "the picker's account may follow Pods and pools",
            "watch pods",
            id="one verb less",
        ),
        pytest.param(
            AS_WRITTEN,
            "no EnvoyFilter replaces Istio's filter",
            "REPLACE without metadata_options",
            id="the manual as written",
        ),
        pytest.param(
            envoyfilter(on_filter("REPLACE", EXT_PROC, MANUAL), static_cluster("10.96.255.7")),
            "addresses in EnvoyFilters are live",
            "10.96.255.7",
            id="the manual, ClusterIP gone",
        ),
        pytest.param(
            both(
                granted,
                on_route(TO_SERVICE),
                AS_WRITTEN,
            ),
            "no EnvoyFilter replaces Istio's filter",
            "is a REPLACE",
            id="the manual, with a Service",
        ),
        pytest.param(
            envoyfilter(on_live_route({"request_header_mode": "SEND", "request_body_mode": "NONE"})),
            "the picker is shown bodies in full duplex",
            "NONE",
            id="body NONE",
        ),
        pytest.param(
            envoyfilter(on_live_route({"request_header_mode": "SKIP", "request_body_mode": "BUFFERED"})),
            "the picker is shown bodies in full duplex",
            "BUFFERED",
            id="body BUFFERED",
        ),
        pytest.param(
            patched("inferencepool", "pool", {"spec": {"targetPorts": [{"number": 8000}]}}, how="merge"),
            "the Pods serve on the pool's port",
            "8000",
            id="pool's port",
        ),
        pytest.param(
            patched("inferencepool", "pool", {"spec": {"endpointPickerRef": {"port": {"number": 9999}}}}, how="merge"),
            "the picker's Service has the port",
            "9999",
            id="picker's port",
        ),
        pytest.param(
            patched("inferencepool", "pool", {"spec": {"endpointPickerRef": {"name": "eep"}}}, how="merge"),
            "the picker's Service is there",
            "eep",
            id="picker misspelt",
        ),
        pytest.param(
            patched("service", "epp", {"spec": {"selector": {"app": "eep"}}}, how="merge"),
            "the picker's Pods are ready",
            "app=eep",
            id="picker's selector",
        ),
        pytest.param(
            patched("httproute", "llm", {"metadata": {"annotations": OVERRIDE}}, namespace=HOME, how="merge"),
            "nobody relies on the annotation ext-proc-override",
            "ext-proc-override",
            id="annotation",
        ),
        pytest.param(
            envoyfilter(on_live_route(DUPLEX), namespace=POOLS),
            "EnvoyFilters reach the gateway",
            POOLS,
            id="EnvoyFilter elsewhere",
        ),
        pytest.param(
            envoyfilter(on_live_route(DUPLEX), selector={"app.kubernetes.io/gateway": "typo"}),
            "EnvoyFilters reach the gateway",
            "app.kubernetes.io/gateway=typo",
            id="EnvoyFilter for nobody",
        ),
        pytest.param(
            envoyfilter(on_live_route(DUPLEX) | SIDECARS),
            "EnvoyFilters reach the gateway",
            "SIDECAR_OUTBOUND",
            id="EnvoyFilter for sidecars",
        ),
        pytest.param(shadowed, "no other route takes its requests", f"{HOME}/another", id="an older route"),
        pytest.param(
            destination_rule({"portLevelSettings": [{"port": {"number": 9002}, "tls": {"mode": "SIMPLE"}}]}),
            "gateway and picker agree on TLS",
            "serves plaintext",
            id="TLS for the port",
        ),
        pytest.param(
            envoyfilter(on_filter("INSERT_BEFORE", "mine", ASLEEP, beside="envoy.filters.http.router")),
            "the filter is switched on for the route",
            "no route turns it on",
            id="global SKIP",
        ),
        pytest.param(
            envoyfilter(on_live_route(None)), "per-route entries are complete", "no processing_mode", id="partial entry"
        ),
        pytest.param(
            both(envoyfilter(on_live_route(DUPLEX)), on_route(NAMED)),
            "patches name routes that exist",
            "default.llm.0",
            id="rule name",
        ),
        pytest.param(
            envoyfilter(on_filter("MERGE", EXT_PROC, HASTY)), "the filter waits long enough", "0.2 s", id="200 ms"
        ),
        pytest.param(
            envoyfilter(on_filter("INSERT_AFTER", "late", LATE, beside="envoy.filters.http.router")),
            "the filter comes before the router",
            "INSERT_AFTER",
            id="after the router",
        ),
    ],
)
def test_what_was_broken_is_named_and_its_fix_heals(patient: Patient, breaks: Break, check: str, evidence: str) -> None:
    breaks(patient)
    try:
        cause: Finding | None = patient.suffers(check, evidence=evidence)
        for _ in range(4):  # one thing may hide another
            if cause is None:
                break
            print(f"\n{cause.check}: {cause.evidence}\n  {cause.cause}\n  {cause.fix}")
            patient.take(cause.fix)
            cause = patient.next_cause(after=cause)
        patient.recovers()
    finally:
        patient.mesh.plane.kubectl("delete", "envoyfilters", "--all", "-n", HOME)
        patient.mesh.plane.kubectl("delete", "destinationrules", "--all", "-n", POOLS)


def test_a_picker_that_hangs(patient: Patient) -> None:
    """It takes connections and answers nothing; its Pod is ready all the while."""
    go_on = patient.hang_picker()
    try:
        cause = patient.suffers("the picker takes connections", evidence="it hangs")
        assert cause.fix.startswith(f"kubectl logs -n {POOLS} epp-")
    finally:
        go_on()
    patient.recovers()


def test_a_picker_without_alpn(patient: Patient, tmp_path: Path) -> None:
    patient.stop_picker()
    certify(tmp_path, days=(-1, 100))
    patient.start_without_alpn(tmp_path)
    cause = patient.suffers("gateway and picker agree on TLS", evidence="serves TLS, the gateway speaks plaintext")
    patient.take(cause.fix)
    cause = patient.suffers("the picker's port settles on HTTP/2", evidence="chose nothing")
    patient.take(cause.fix)  # the picker's flag, and the gateway's rule
    patient.stop_picker()
    patient.start_picker()
    patient.recovers()


def certify(folder: Path, *, days: tuple[int, int]) -> None:
    """Write a certificate that is valid for these days, counted from now."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), dt.datetime.now(dt.UTC)
    start, end = (now + dt.timedelta(days=one) for one in days)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    signed = made.not_valid_before(start).not_valid_after(end).sign(key, hashes.SHA256())
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(key.private_bytes(*plain))


def test_a_picker_that_is_dead_and_one_that_speaks_tls(patient: Patient, tmp_path: Path) -> None:
    """Its Pod is ready all the while, and every object is as it was."""
    patient.stop_picker()
    cause = patient.suffers("the picker takes connections", evidence="nobody listens")
    assert cause.fix.startswith(f"kubectl logs -n {POOLS} epp-")
    patient.start_picker("--secure-serving=true")
    cause = patient.suffers("gateway and picker agree on TLS", evidence="serves TLS, the gateway speaks plaintext")
    patient.take(cause.fix)
    patient.recovers()
    found = {one.check: one.evidence for one in patient.findings()}
    assert found["the picker's port settles on HTTP/2"] == "ALPN h2"
    assert found["the picker's certificate is valid today"].startswith("from ")
    patient.stop_picker()
    certify(tmp_path, days=(-10, -1))
    patient.start_picker("--secure-serving=true", "--cert-path", str(tmp_path))
    cause = patient.suffers("the picker's certificate is valid today")
    assert (cause.verdict, "this gateway does not look at it" in cause.cause) == ("warning", True), cause
    assert cause.fix == f"kubectl rollout restart deployment -n {POOLS} epp"
    patient.stop_picker()
    patient.start_picker()
    cause = patient.suffers("gateway and picker agree on TLS", evidence="serves plaintext")
    patient.take(cause.fix)
    patient.recovers()


def test_picks_are_read_with_a_readers_token_and_never_with_ones_own(patient: Patient) -> None:
    patient.stop_picker()
    patient.start_picker("--metrics-endpoint-auth=true")
    kubectl = patient.mesh.plane.kubectl
    kubectl("create", "serviceaccount", "reader", "-n", POOLS)
    kubectl("create", "clusterrole", "reader", "--verb=get", "--non-resource-url=/metrics,/debug/decisions")
    kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", f"--serviceaccount={POOLS}:reader")
    proof = "the answer comes from the picked Pod"
    (found,) = (one for one in patient.findings() if one.check == proof)
    assert (found.verdict, "its pages need a token" in found.evidence) == ("ok", True), found
    assert "by chance 1 in 27" in found.evidence
    (found,) = (one for one in patient.findings(reader=f"{POOLS}/reader") if one.check == proof)
    assert (found.verdict, found.evidence.startswith("4 of 4 requests")) == ("ok", True), found
