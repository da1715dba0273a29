"""What holds of every stack, whatever its resource says and its cluster has: its parts fit together.

Each function asserts one thing; `test_stack` tries them on every case, `test_stack_fuzz` on any resource at all.
"""

from collections import Counter
from collections.abc import Callable

from tests.unit.render.stacks import container, named, of_kind, selects

from pointsman.render.manifests.objects import Object
from pointsman.render.manifests.stack import Stack

Invariant = Callable[[Stack], None]


def every_object_is_named_once_and_in_the_namespace(stack: Stack) -> None:
    assert max(Counter(named(stack.objects)).values()) == 1
    assert {one["metadata"]["namespace"] for one in stack.objects} == {stack.names.namespace}
    assert all(len(one["metadata"]["name"]) <= 63 for one in stack.objects)


def every_deployment_selects_its_own_pods_and_no_others(stack: Stack) -> None:
    deployments = of_kind(stack.objects, "Deployment")
    for one in deployments:
        wanted = one["spec"]["selector"]["matchLabels"]
        assert [other for other in deployments if selects(wanted, other)] == [one]


def every_service_leads_to_a_port_that_its_pods_have(stack: Stack) -> None:
    for service in of_kind(stack.objects, "Service"):
        spec = service["spec"]
        (target,) = (one for one in of_kind(stack.objects, "Deployment") if selects(spec["selector"], one))
        open_ports = {port["containerPort"] for port in container(target)["ports"]}
        assert {port["targetPort"] for port in spec["ports"]} <= open_ports
        for what in ("name", "port"):
            assert max(Counter(port[what] for port in spec["ports"]).values()) == 1


def every_probe_asks_a_port_that_the_container_has(stack: Stack) -> None:
    for deployment in of_kind(stack.objects, "Deployment"):
        only = container(deployment)
        open_ports = {port["containerPort"] for port in only["ports"]}
        probes = [probe for name, probe in only.items() if name.endswith("Probe")]
        assert len(probes) >= 2
        assert {_asked(probe)["port"] for probe in probes} <= open_ports


def _asked(probe: Object) -> Object:
    (only,) = (probe[how] for how in ("httpGet", "tcpSocket", "grpc") if how in probe)
    found: Object = only
    return found


def whatever_a_pod_refers_to_is_there(stack: Stack) -> None:
    there = named(stack.objects)
    for deployment in of_kind(stack.objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        mounted = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        assert all(f"ConfigMap/{name}" in there for name in mounted)
        assert "serviceAccountName" not in pod or f"ServiceAccount/{pod['serviceAccountName']}" in there
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container(deployment)["volumeMounts"]} == volumes


def every_pod_is_restricted(stack: Stack) -> None:
    """What the strictest Pod Security level asks for; the one sysctl is among those it allows."""
    for deployment in of_kind(stack.objects, "Deployment"):
        context = deployment["spec"]["template"]["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {one["name"] for one in context.get("sysctls", [])} <= {"net.ipv4.ip_unprivileged_port_start"}
        locked = container(deployment)["securityContext"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert (locked["allowPrivilegeEscalation"], locked["readOnlyRootFilesystem"]) == (False, True)


def every_pod_knows_who_it_is(stack: Stack) -> None:
    for deployment in of_kind(stack.objects, "Deployment"):
        names = {variable["name"] for variable in container(deployment)["env"]}
        assert names >= {"POD_NAME", "POD_NAMESPACE", "POD_IP"}


def every_component_is_an_object_of_the_stack(stack: Stack) -> None:
    assert {f"{one.kind}/{one.name}" for one in stack.components} <= set(named(stack.objects))
    deployments = {one["metadata"]["name"]: one["spec"]["replicas"] for one in of_kind(stack.objects, "Deployment")}
    waited_for = {one.name: one.replicas for one in stack.components if one.kind == "Deployment"}
    assert waited_for == deployments  # no Deployment that nobody waits for


def every_condition_is_said_once(stack: Stack) -> None:
    said = Counter(one.condition for one in stack.components) + Counter(one.type for one in stack.notices)
    assert max(said.values()) == 1


def a_route_leads_to_something_that_is_there(stack: Stack) -> None:
    there = named(stack.objects)
    for route in of_kind(stack.objects, "HTTPRoute"):
        assert {f"Gateway/{parent['name']}" for parent in route["spec"]["parentRefs"]} <= set(there)
        for backend in (one for rule in route["spec"]["rules"] for one in rule["backendRefs"]):
            assert f"{backend['kind']}/{backend['name']}" in there
    for gateway in of_kind(stack.objects, "Gateway"):
        reference = gateway["spec"]["infrastructure"].get("parametersRef")
        assert reference is None or f"ConfigMap/{reference['name']}" in there


INVARIANTS: tuple[Invariant, ...] = (
    every_object_is_named_once_and_in_the_namespace,
    every_deployment_selects_its_own_pods_and_no_others,
    every_service_leads_to_a_port_that_its_pods_have,
    every_probe_asks_a_port_that_the_container_has,
    whatever_a_pod_refers_to_is_there,
    every_pod_is_restricted,
    every_pod_knows_who_it_is,
    every_component_is_an_object_of_the_stack,
    every_condition_is_said_once,
    a_route_leads_to_something_that_is_there,
)
