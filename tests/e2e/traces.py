"""What a node could leave behind on the machine: mounts, interfaces, cgroups, processes, files in common places."""

from dataclasses import dataclass, fields
from pathlib import Path

PLACES = ("/etc", "/opt", "/run", "/var/lib", "/var/log", "/var/lib/kubelet", "/var/lib/cni", "/etc/cni")
NODE_PROGRAMS = ("etcd", "kube-", "kubelet", "containerd", "coredns", "pause", "runc")


@dataclass(frozen=True, slots=True)
class Traces:
    """The machine at one moment."""

    mounts: frozenset[str]
    interfaces: frozenset[str]
    cgroups: frozenset[str]
    programs: frozenset[str]
    files: frozenset[str]

    @classmethod
    def take(cls, cgroup: str) -> "Traces":
        """Look at the machine; of cgroups and processes at those of one node, since others may run beside it.

        Nor does what is mounted below /sys/kernel count: the kernel does that when anybody looks there, a profiler say.
        """
        points = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        files = (str(path) for place in PLACES if Path(place).is_dir() for path in Path(place).iterdir())
        return cls(
            mounts=frozenset(point for point in points if not point.startswith("/sys/kernel/")),
            interfaces=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
            cgroups=frozenset(str(path) for path in Path("/sys/fs/cgroup").rglob(f"*{cgroup}*")),
            programs=frozenset(_programs(cgroup)),
            files=frozenset(files),
        )

    def beyond(self, earlier: "Traces") -> dict[str, list[str]]:
        """Return what is here and was not there before."""
        new = {one.name: sorted(getattr(self, one.name) - getattr(earlier, one.name)) for one in fields(self)}
        return {name: found for name, found in new.items() if found}


def _programs(cgroup: str) -> list[str]:
    """Return the node's programs that run, with their numbers; other tests' processes are theirs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            groups = (entry / "cgroup").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if cgroup in groups and Path(command).name.startswith(NODE_PROGRAMS):
            found.append(f"{Path(command).name} {entry.name}")
    return found
