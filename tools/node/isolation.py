"""What keeps the node apart from the machine: cgroups of its own, and a view of the file system and network of its own.

Outside, only two things change while a node is up: a child cgroup in each hierarchy, and the state directory.
Everything else (mounts, interfaces, nft rules, processes) lives in namespaces and ends with the node's first process.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tools.node.places import ADDRESS, DNS, NODE, SERVICES, Places

CGROUPS = Path("/sys/fs/cgroup")
# Kubelet insists on these and they are not namespaced: it is shown files instead, and the machine's values stay.
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def hierarchies() -> Iterator[tuple[str, Path]]:
    """Yield the controllers and our own directory of each cgroup hierarchy; the unified one has no controllers."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        yield controllers, CGROUPS / (controllers.removeprefix("name=") or "unified") / path.lstrip("/")


def make_cgroups(places: Places) -> list[Path]:
    """Make a child of our own cgroup in every hierarchy, so that what the node uses counts as ours."""
    made = []
    for controllers, own in hierarchies():
        child = own / places.cgroup
        child.mkdir(exist_ok=True)
        if controllers == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (child / name).write_text((own / name).read_text())
            (child / "cgroup.clone_children").write_text("1")
        made.append(child)
    (places.state / "cgroups.json").write_text(json.dumps([str(path) for path in made]))
    return made


def remove_cgroups(places: Places, *, patience: float = 5.0) -> list[str]:
    """Remove what `make_cgroups` made, the deepest first; returns what is still in use."""
    record = places.state / "cgroups.json"
    left = [Path(path) for path in json.loads(record.read_text())] if record.exists() else []
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        for root in left:
            for directory, _, _ in os.walk(root, topdown=False):
                try:
                    Path(directory).rmdir()
                except OSError:
                    pass  # a process in it has not been reaped yet
        left = [root for root in left if root.exists()]
        time.sleep(0.05)
    return [str(root) for root in left]


def enter_mounts(places: Places) -> None:
    """Inside the new mount namespace: give the node its own /proc, /sys, cgroups, /run, /var and /usr."""
    names = [controllers for controllers, _ in hierarchies()]
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for controllers in names:
        _mount_cgroup(controllers)
    for name, value in KERNEL.items():
        _show(places.state / "sysctl" / name.replace("/", "."), f"{value}\n", at=f"/proc/sys/{name}")
    for directory in ("/run", "/var/log"):
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
    # Kubelet's plugin socket and the CNI cache have fixed places below /var/lib.
    upper, work = places.state / "var-lib" / "upper", places.state / "var-lib" / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    _run("mount", "-t", "overlay", "-o", f"lowerdir=/var/lib,upperdir={upper},workdir={work}", "overlay", "/var/lib")
    # Debian's containerd, runc, nft and their libraries, as if installed.
    _run("mount", "-t", "overlay", "-o", f"lowerdir={places.node / 'root' / 'usr'}:/usr", "overlay", "/usr")
    search = "search default.svc.cluster.local svc.cluster.local cluster.local"
    resolver = f"{search}\nnameserver {DNS}\noptions ndots:5\n"
    _show(places.state / "resolv.conf", resolver, at=os.path.realpath("/etc/resolv.conf"))
    _show(places.state / "hosts", f"127.0.0.1 localhost\n{ADDRESS} {NODE}\n", at="/etc/hosts")
    Path("/run/netns").mkdir()
    _run("mount", "--make-rshared", "/")  # containers' mounts must reach kubelet's


def enter_network() -> None:
    """Inside the new network namespace: a bridge as the node's only interface, and no way out."""
    socket.sethostname(NODE)
    for command in (
        "link set lo up",
        "link add node0 type bridge",
        f"addr add {ADDRESS}/24 dev node0",
        "link set node0 up",
        f"route add {SERVICES} dev node0",  # connect() wants some route before the address is translated
    ):
        _run("ip", *command.split())
    for name, value in {"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0"}.items():
        Path("/proc/sys/net", name).write_text(value)
    bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridged.exists():
        bridged.write_text("1")


def _mount_cgroup(controllers: str) -> None:
    directory = CGROUPS / (controllers.removeprefix("name=") or "unified")
    directory.mkdir()
    if not controllers:
        _run("mount", "-t", "cgroup2", "cgroup2", str(directory))
        return
    option = f"none,{controllers}" if controllers.startswith("name=") else controllers
    _run("mount", "-t", "cgroup", "-o", option, "cgroup", str(directory))


def _show(file: Path, text: str, *, at: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    _run("mount", "--bind", str(file), at)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
