"""A real one-node Kubernetes on this machine, for tests and for people: `python -m tools.node.cluster up|shell|down`.

Needs root on Linux. `up` returns when Pods can be scheduled and names resolve, `shell` runs a command inside the node's
namespaces (Pod and Service addresses work there), `ours` builds our image and brings it in, `down` ends everything and
leaves no trace. Tests reach the API server from outside by a port of the machine's loopback. NODE_STATE names the
directory for its files.

Outside changes only what `isolation` says. `up` on a directory that is up refuses; `down` on one that is not is fine.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tools.node import configs
from tools.node.image import Layer, write_image
from tools.node.isolation import make_cgroups, remove_cgroups
from tools.node.ours import IMAGE, NAMES, build_image
from tools.node.places import ADDRESS, COREDNS, PAUSE, Places

ROOT = Path(__file__).parents[2]
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup")


class Down(Exception):
    """The node is not up."""


def places_of(state: Path) -> Places:
    """Return the places of a state directory, building what is missing."""
    built = [
        Path(
            subprocess.run(
                [ROOT / "tools" / name / "build"], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.strip()
        )
        for name in ("kube", "node")
    ]
    return Places(state.resolve(), *built)


def up(places: Places, *, images: Sequence[Path] = (), patience: float = 300.0) -> dict[str, float]:
    """Start the node and return how long each part took; raises RuntimeError with the reason when it does not start."""
    if (places.state / "pid").exists():
        raise RuntimeError(f"a node is up in {places.state}: `down` it first")
    shutil.rmtree(places.state, ignore_errors=True)
    (places.state / "images").mkdir(parents=True)
    _own_images(places)
    for image in images:
        shutil.copy(image, places.state / "images")
    cgroups = make_cgroups(places)
    outer = _unshare(places, cgroups)
    deadline = time.monotonic() + patience
    while not (places.state / "ready").exists():
        failed = places.state / "failed"
        if failed.exists() or outer.poll() is not None or time.monotonic() > deadline:
            reason = failed.read_text() if failed.exists() else (places.state / "inside.log").read_text()[-3000:]
            down(places)
            raise RuntimeError(f"the node did not start: {reason}")
        _remember_pid(places, outer.pid)
        time.sleep(0.05)
    times: dict[str, float] = json.loads((places.state / "ready").read_text())
    return times


def down(places: Places) -> None:
    """End the node; raises RuntimeError when something of it is left."""
    try:
        pid = _pid(places)
    except Down:
        pid = 0
    if pid:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 15
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    left = remove_cgroups(places)
    if left:
        raise RuntimeError(f"still in use: {', '.join(left)}")
    shutil.rmtree(places.state, ignore_errors=True)


def inside(places: Places, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command inside the node."""
    flags = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", f"--wd={Path.cwd()}"]
    return ["nsenter", f"--target={_pid(places)}", *flags, "--", *command]


def load_image(places: Places, archive: Path) -> None:
    """Import an image into the running node."""
    _images(places, "import", str(archive))


def tag_image(places: Places, name: str, *, others: Sequence[str]) -> None:
    """Give an image of the running node more names; each with its host part, as Pods are given them."""
    _images(places, "tag", "--force", name, *others)


def load_ours(places: Places) -> None:
    """Build our image and import it under all its names."""
    load_image(places, build_image(places.node))
    tag_image(places, IMAGE, others=NAMES)


def forward(places: Places, *, ready: threading.Event | None = None) -> socket.socket:
    """Serve the API server on a port of the machine's loopback, in threads of this process; returns the listener.

    A socket belongs to the network namespace in which its thread was when it was made: one thread enters the node's
    and does all the dialling.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    target = os.open(f"/proc/{_pid(places)}/ns/net", os.O_RDONLY)
    threading.Thread(target=_accept, args=(listener, target, ready), daemon=True).start()
    return listener


def outside_kubeconfig(places: Places, port: int) -> Path:
    """Write and return the administrator's kubeconfig for use outside the node."""
    path = places.state / "outside.kubeconfig"
    document = configs.kubeconfig(places, "admin", server=f"https://127.0.0.1:{port}")
    path.write_text(json.dumps(document))
    return path


def _images(places: Places, *arguments: str) -> None:
    command = inside(places, [places.program("ctr"), "-n", "k8s.io", "images", *arguments])
    run = subprocess.run(command, capture_output=True, text=True, env=places.environment(), check=False)
    if run.returncode:
        raise RuntimeError(f"ctr images {' '.join(arguments)}: {run.stderr.strip()}")


def _own_images(places: Places) -> None:
    built, target = places.node / "bin", places.state / "images"
    for name, program in ((PAUSE, "pause"), (COREDNS, "coredns")):
        layer = Layer(built / program, at=f"/{program}")
        write_image(target / f"{program}.tar", name=name, layers=[layer], command=[f"/{program}"])


def _unshare(places: Places, cgroups: Sequence[Path]) -> subprocess.Popen[bytes]:
    def enter() -> None:
        for cgroup in cgroups:
            (cgroup / "cgroup.procs").write_text("0")

    variables = {"NODE_STATE": places.state, "NODE_KUBE": places.kube, "NODE_BUILT": places.node, "PYTHONPATH": ROOT}
    command = ["unshare", *NAMESPACES, "--fork", "--kill-child=SIGKILL", "--propagation=private"]
    with (places.state / "inside.log").open("wb") as log:
        return subprocess.Popen(
            [*command, sys.executable, "-m", "tools.node.inside"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=enter,  # noqa: PLW1509 - no threads run yet, and unshare must already be in the cgroups
            start_new_session=True,
            env={**places.environment(), **{name: str(value) for name, value in variables.items()}},
        )


def _remember_pid(places: Places, outer: int) -> None:
    """Write down the node's first process, as the machine counts: the only child of unshare."""
    path = Path(f"/proc/{outer}/task/{outer}/children")
    children = path.read_text().split() if path.exists() else []
    if children and not (places.state / "pid").exists():
        (places.state / "pid").write_text(children[0])


def _pid(places: Places) -> int:
    record = places.state / "pid"
    if not record.exists():
        raise Down(f"no node is up in {places.state}: start one with `make cluster-up`")
    pid = int(record.read_text())
    groups = Path(f"/proc/{pid}/cgroup")
    # A number may have been reused; ours is in our cgroup.
    if not groups.exists() or places.cgroup not in groups.read_text():
        raise Down(f"the node in {places.state} has ended: clean up with `make cluster-down`")
    return pid


def _accept(listener: socket.socket, namespace: int, ready: threading.Event | None) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
    if ready is not None:
        ready.set()
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection((ADDRESS, 6443), timeout=10)
        except OSError:
            near.close()
            continue
        far.settimeout(None)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=("up", "shell", "down", "ours", "load", "tag"))
    what = "for shell: the command; for load: image archives; for tag: an image's name and its further names"
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=what)
    options = parser.parse_args()
    if options.what == "tag" and len(options.rest) < 2:
        parser.error("tag needs an image's name and at least one more name for it")
    if os.geteuid() != 0:
        sys.exit("a node on this machine needs root: run as root, or use any cluster with E2E_KUBECONFIG")
    places = places_of(Path(os.environ.get("NODE_STATE", "/var/tmp/pointsman-node")))
    try:
        if options.what == "up":
            print(json.dumps(up(places)))
        elif options.what == "down":
            down(places)
        elif options.what == "ours":
            load_ours(places)
        elif options.what == "load":
            for archive in options.rest:
                load_image(places, Path(archive))
        elif options.what == "tag":
            tag_image(places, options.rest[0], others=options.rest[1:])
        else:
            command = inside(places, options.rest or [os.environ.get("SHELL", "bash")])
            os.execvpe(command[0], command, places.environment())
    except (Down, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
