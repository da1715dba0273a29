"""The configuration files of a node: pure functions from places to documents, so that they can be read in one go.

What is unusual here is so because the node runs inside a container-like machine: cgroup v1, a root without
CAP_SYS_RESOURCE, no registry and no way out.
"""

from typing import Any

from tools.node.places import ADDRESS, COREDNS, DNS, NODE, PAUSE, PODS, Places

SOCKET = "/run/containerd/containerd.sock"


def containerd(places: Places) -> str:
    """Return containerd's configuration (Debian's 1.6, version 2 of the format)."""
    return f"""version = 2
root = '{places.state}/containerd'
state = '/run/containerd'
[grpc]
  address = '{SOCKET}'
[plugins.'io.containerd.internal.v1.opt']
  path = '{places.state}/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{PAUSE}'
  restrict_oom_score_adj = true  # lowering it needs CAP_SYS_RESOURCE
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '/usr/lib/cni'
    conf_dir = '{places.state}/cni'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
      BinaryName = '/usr/sbin/runc'
"""


def cni(places: Places) -> dict[str, Any]:
    """Return the Pod network: one bridge, addresses from a file, and a way out of nowhere."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{places.state}/cni-data",
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def kubelet(places: Places) -> dict[str, Any]:
    """Return kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": ADDRESS,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(places.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(places.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(places.pki / "kubelet-server.key"),
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(places.state / "pod-resolv.conf"),
        "protectKernelDefaults": True,
        "failSwapOn": False,
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": str(places.state / "flex"),
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "syncFrequency": "5s",  # else a changed ConfigMap takes more than a minute to reach its Pod
        "imageGCHighThresholdPercent": 100,  # a collected image could not be pulled again
        "evictionHard": {"memory.available": "64Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }


def kube_proxy(places: Places) -> dict[str, Any]:
    """Return kube-proxy's configuration; it must not touch sysctls that the whole machine shares."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(places.kubeconfig("proxy"))},
        "hostnameOverride": NODE,
        "clusterCIDR": PODS,
        "detectLocalMode": "ClusterCIDR",
        "bindAddress": ADDRESS,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }


# "No such name" for everything else needs a server of its own: the template plugin runs before the kubernetes plugin.
COREFILE = """cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
}
.:53 {
    ready
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""
RBAC = "rbac.authorization.k8s.io"


def coredns() -> list[dict[str, Any]]:
    """Return CoreDNS as a Deployment behind the cluster's DNS address, with what its account may read."""
    name = {"name": "coredns", "namespace": "kube-system"}
    role = {"name": "system:coredns"}
    labels = {"k8s-app": "kube-dns"}
    verbs = ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", **role}
    subjects = [{"kind": "ServiceAccount", **name}]
    template = {"metadata": {"labels": labels}, "spec": _coredns_pod()}
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    ports = [{"name": proto.lower(), "port": 53, "protocol": proto} for proto in ("UDP", "TCP")]
    service = {"clusterIP": DNS, "selector": labels, "ports": ports}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": role, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": reference,
            "subjects": subjects,
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": {"Corefile": COREFILE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**name, "labels": labels}, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": {**name, "name": "kube-dns"}, "spec": service},
    ]


def _coredns_pod() -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        # Without, it has 2 shares beside the 1024 of anything else on the machine, and names get lost.
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def kubeconfig(places: Places, user: str, *, server: str) -> dict[str, Any]:
    """Return the kubeconfig of a user that has a certificate in the PKI."""
    identity = {
        "client-certificate": str(places.pki / f"{user}.crt"),
        "client-key": str(places.pki / f"{user}.key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": user, "namespace": "default"}}],
        "clusters": [
            {"name": "node", "cluster": {"server": server, "certificate-authority": str(places.pki / "ca.crt")}}
        ],
        "users": [{"name": user, "user": identity}],
    }
