"""A cluster on which all is well: Istio's own way, a pool in one namespace, Gateway and route in another.

Documents as an API server and an Envoy return them; tests break one thing each.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pointsman.doctor import envoy
from pointsman.doctor.cluster.facts import Cluster, Counts, Focus, Health, Port, Probe, Proxy
from pointsman.doctor.cluster.objects import Objects
from pointsman.doctor.cluster.path import rights_needed, trace

Document = dict[str, Any]
NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
SIM, SCHED = "llm-d-sim", "llm-d-inference-scheduler"
GATEWAY = "infra-inference-scheduling-inference-gateway"
PICKER_CLUSTER = f"outbound|9002||epp.{SIM}.svc.cluster.local"
POOL_CLUSTER = f"outbound|54321||pool-ip-27cac550.{SIM}.svc.cluster.local"
EXT_PROC = "envoy.filters.http.ext_proc"
TYPES = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3"
DUPLEX = {
    "request_header_mode": "SEND",
    "response_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_trailer_mode": "SEND",
}


def true(*types: str) -> list[Document]:
    return [{"type": one, "status": "True", "reason": one, "observedGeneration": 1} for one in types]


def definition(plural: str, group: str, *, versions: tuple[str, ...] = ("v1",)) -> Document:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "versions": [{"name": name, "served": True} for name in versions]},
        "status": {"conditions": true("NamesAccepted", "Established")},
    }


def pod(name: str, namespace: str, labels: Document, *, address: str, ports: Document, **spec: Any) -> Document:
    listed = [{"name": key, "containerPort": value} for key, value in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "c", "ports": listed, "args": spec.pop("args", [])}], **spec},
        "status": {"podIP": address, "phase": "Running", "conditions": true("Ready")},
    }


def deployment(name: str, namespace: str, labels: Document, template: Document) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
        "status": {"readyReplicas": 1},
    }


def service(name: str, namespace: str, selector: Document, ports: list[Document], *, address: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ClusterIP", "clusterIP": address, "selector": selector, "ports": ports},
    }


def endpoint_slice(name: str, namespace: str, *addresses: str) -> Document:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
    }


def gateway() -> Document:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": GATEWAY, "namespace": SCHED, "generation": 1},
        "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        "status": {"conditions": true("Accepted", "Programmed")},
    }


def route(name: str = "llm", backend: Document | None = None) -> Document:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool", "namespace": SIM}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": SCHED, "generation": 1},
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": [{"backendRefs": [backend or pool]}]},
        "status": {"parents": [{"parentRef": {"name": GATEWAY}, "conditions": true("Accepted", "ResolvedRefs")}]},
    }


def pool() -> Document:
    parent = {"parentRef": {"name": GATEWAY, "namespace": SCHED}, "conditions": true("Accepted", "ResolvedRefs")}
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "pool", "namespace": SIM, "generation": 1},
        "spec": {
            "selector": {"matchLabels": {"app": "sim"}},
            "targetPorts": [{"number": 8200}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}, "failureMode": "FailClose"},
        },
        "status": {"parents": [parent]},
    }


def grant() -> Document:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "from-scheduler", "namespace": SIM},
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": SCHED}],
            "to": [{"group": "", "kind": "Service"}, {"group": "inference.networking.k8s.io", "kind": "InferencePool"}],
        },
    }


def envoyfilter(*patches: Document, name: str = "epp-ext-proc-poc", namespace: str = SCHED) -> Document:
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "workloadSelector": {"labels": {"gateway.networking.k8s.io/gateway-name": GATEWAY}},
            "configPatches": list(patches),
        },
    }


def everything() -> list[Document]:
    gateway_api, inference = "gateway.networking.k8s.io", "inference.networking.k8s.io"
    args = ["--pool-name", "pool", "--pool-namespace", SIM, "--grpc-port", "9002"]
    ports = {"grpc": 9002, "grpc-health": 9003, "metrics": 9090}
    epp = pod("epp-1", SIM, {"app": "epp"}, address="10.244.0.9", ports=ports, args=args, serviceAccountName="epp")
    label = {"gateway.networking.k8s.io/gateway-name": GATEWAY}
    grpc = {"name": "grpc-ext-proc", "port": 9002, "targetPort": 9002, "appProtocol": "http2"}
    return [
        *(definition(one, gateway_api) for one in ("gatewayclasses", "gateways", "httproutes", "referencegrants")),
        definition("inferencepools", inference),
        definition("inferenceobjectives", "inference.networking.x-k8s.io", versions=("v1alpha2",)),
        {
            "apiVersion": f"{gateway_api}/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "istio"},
            "spec": {"controllerName": "istio.io/gateway-controller"},
            "status": {"conditions": true("Accepted")},
        },
        gateway(),
        route(),
        grant(),
        pool(),
        *(pod(f"sim-{n}", SIM, {"app": "sim"}, address=f"10.244.0.{n}", ports={"http": 8200}) for n in (1, 2, 3)),
        epp,
        deployment("epp", SIM, {"app": "epp"}, epp),
        service("epp", SIM, {"app": "epp"}, [grpc], address="10.96.0.9"),
        endpoint_slice("epp", SIM, "10.244.0.9"),
        service("sim", SIM, {"app": "sim"}, [{"name": "http", "port": 8200}], address="10.96.0.8"),
        pod(f"{GATEWAY}-istio-1", SCHED, label, address="10.244.0.20", ports={"http": 80}),
    ]


def listener(*, ext_proc: list[Document], router_last: bool = True) -> Document:
    router = [{"name": envoy.ROUTER, "typed_config": {}}]
    chain = [*ext_proc, *router] if router_last else [*router, *ext_proc]
    manager = {"name": "hcm", "typed_config": {"http_filters": [{"name": "envoy.filters.http.cors"}, *chain]}}
    body = {"name": "0.0.0.0_80", "filter_chains": [{"filters": [manager]}]}
    return {"active_state": {"listener": body}}


def native_filter(**changes: Any) -> Document:
    config = {
        "@type": f"{TYPES}.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "dummy"}, "timeout": "10s"},
        "failure_mode_allow": True,
        "processing_mode": {"request_header_mode": "SKIP", "response_header_mode": "SKIP"},
        "message_timeout": "1000s",
        "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}},
    }
    return {"name": EXT_PROC, "typed_config": {**config, **changes}}


def per_route(modes: Document | None = DUPLEX, *, cluster: str = PICKER_CLUSTER) -> Document:
    overrides: Document = {"failure_mode_allow": False}
    overrides |= {"processing_mode": modes} if modes is not None else {}
    overrides |= {"grpc_service": {"envoy_grpc": {"cluster_name": cluster}}} if cluster else {}
    return {"@type": f"{TYPES}.ExtProcPerRoute", "overrides": overrides}


def live_route(name: str, cluster: str, entries: Document) -> Document:
    return {"name": name, "route": {"cluster": cluster}, "typed_per_filter_config": entries}


def eds(
    name: str, *, follows: bool = False, http2: bool = False, tls: bool = False, verifies: bool = False
) -> Document:
    found: Document = {"name": name, "type": "EDS"}
    if follows:
        source = {"metadata": {"key": "envoy.lb", "path": [{"key": envoy.DESTINATION}]}}
        policy = {"typed_extension_config": {"typed_config": {"override_host_sources": [source]}}}
        found["load_balancing_policy"] = {"policies": [policy]}
    if http2:
        found["typed_extension_protocol_options"] = {"o": {"explicit_http_config": {"http2_protocol_options": {}}}}
    if tls:
        context: Document = {"validation_context": {"trusted_ca": {}}} if verifies else {"validation_context": {}}
        config = {
            "@type": "x/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": context,
        }
        found["transport_socket"] = {"name": "tls", "typed_config": config}
    return found


@dataclass
class Pages:
    """The pages of the gateway's Envoy, to be changed in place."""

    listeners: list[Document] = field(default_factory=lambda: [listener(ext_proc=[native_filter()])])
    routes: list[Document] = field(
        default_factory=lambda: [live_route(f"{SCHED}.llm.0", POOL_CLUSTER, {EXT_PROC: per_route()})]
    )
    clusters: list[Document] = field(
        default_factory=lambda: [
            eds(PICKER_CLUSTER, http2=True),
            eds(POOL_CLUSTER, follows=True),
            eds(f"outbound|8200||sim.{SIM}.svc.cluster.local"),
        ]
    )
    members: dict[str, list[str]] = field(
        default_factory=lambda: {
            PICKER_CLUSTER: ["10.244.0.9:9002"],
            POOL_CLUSTER: [f"10.244.0.{n}:8200" for n in (1, 2, 3)],
        }
    )
    rejected: str = ""

    def proxy(self) -> Proxy:
        hosts = [{"name": "vhost", "routes": self.routes}]
        refused = [{"error_state": {"details": self.rejected}}] if self.rejected else []
        dump = {
            "configs": [
                {"dynamic_listeners": [*self.listeners, *refused]},
                {"dynamic_route_configs": [{"route_config": {"virtual_hosts": hosts}}]},
                {"dynamic_active_clusters": [{"cluster": one} for one in self.clusters]},
            ]
        }
        status = {
            "cluster_statuses": [
                {"name": name, "host_statuses": [{"address": _socket(one)} for one in hosts]}
                for name, hosts in self.members.items()
            ]
        }
        return Proxy(
            admin="127.0.0.1:15000",
            filters=envoy.read_filters(dump),
            routes=envoy.read_routes(dump),
            upstreams=envoy.read_upstreams(dump),
            members=envoy.read_clusters(status),
            rejected=envoy.read_rejected(dump),
        )


def _socket(address: str) -> Document:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


@dataclass
class Scene:
    """Everything, to be broken in place; `cluster` is what the doctor then sees."""

    documents: list[Document] = field(default_factory=lambda: copy.deepcopy(everything()))
    pages: Pages | None = field(default_factory=Pages)
    ports: list[Port] = field(default_factory=lambda: [Port(address="10.244.0.9:9002", reached=True, http2=True)])
    health: list[Health] = field(default_factory=lambda: [Health(address="10.244.0.9:9003", status="SERVING")])
    refused: tuple[tuple[str, str], ...] = ()
    """Verbs and resources that the picker's account does not have."""
    counts: Document = field(default_factory=lambda: {"streams_started": 4})
    probes: list[Probe] = field(
        default_factory=lambda: [Probe(status=200, answered="sim-1", picked="sim-1") for _ in range(4)]
    )
    changes: Document = field(default_factory=dict)

    def get(self, kind: str, name: str) -> Document:
        return next(one for one in self.documents if (one["kind"], one["metadata"]["name"]) == (kind, name))

    def drop(self, kind: str, name: str) -> None:
        self.documents.remove(self.get(kind, name))

    def add(self, *documents: Document) -> None:
        self.documents += copy.deepcopy(list(documents))

    def tls(self, **changes: Any) -> None:
        port = Port(
            address="10.244.0.9:9002",
            reached=True,
            tls=True,
            alpn="h2",
            http2=True,
            starts=NOW - timedelta(days=100),
            ends=NOW + timedelta(days=100),
        )
        self.ports = [replace(port, **changes)]

    def cluster(self) -> Cluster:
        found: dict[str, list[Document]] = {}
        for one in self.documents:
            found.setdefault(one["kind"], []).append(one)
        objects = Objects(found={kind: tuple(many) for kind, many in found.items()})
        focus = Focus(namespace=SCHED, gateway=GATEWAY)
        proxy = self.pages.proxy() if self.pages else None
        needed = rights_needed(trace(objects, focus, proxy), objects)
        nothing = dict.fromkeys(self.counts, 0)
        seen = Cluster(
            now=NOW,
            objects=objects,
            focus=focus,
            proxy=proxy,
            ports=tuple(self.ports),
            health=tuple(self.health),
            rights={right: (right.verb, right.resource) not in self.refused for right in needed},
            before=Counts(asked=nothing, requests={}) if self.pages else None,
            after=Counts(asked=self.counts, requests={}) if self.pages else None,
            probes=tuple(self.probes),
        )
        return replace(seen, **self.changes)


Break = Callable[[Scene], None]


def broken(*breaks: Break) -> Scene:
    """Return a scene with things broken in it."""
    scene = Scene()
    for one in breaks:
        one(scene)
    return scene
