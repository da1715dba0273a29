"""Make Pod addresses local, then become another program: `python -m tests.istio.enter 10.244.0.0/16 PROGRAM…`.

Runs first in a new network namespace, where the loopback is down and nothing is routed. It asks the kernel itself: `ip`
is not on every machine.
"""

import fcntl
import ipaddress
import os
import socket
import struct
import sys

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
_NEW_ROUTE, _NEW_ONLY = 24, 0x605  # RTM_NEWROUTE; NLM_F_REQUEST, _ACK, _EXCL and _CREATE
_LOCAL_TABLE, _BOOT, _HOST_SCOPE, _LOCAL = 255, 3, 254, 2  # as `ip route add local` has them
_DESTINATION, _INTERFACE = 1, 4  # RTA_DST, RTA_OIF


def start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _, flags = struct.unpack("16sh", fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sh", b"lo", 0)))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", flags | _UP))


def make_local(addresses: str) -> None:
    """Route all these addresses to ourselves."""
    network = ipaddress.IPv4Network(addresses)
    route = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, network.prefixlen, 0, 0, _LOCAL_TABLE, _BOOT, _HOST_SCOPE, _LOCAL, 0
    )
    route += struct.pack("=HH4s", 8, _DESTINATION, network.network_address.packed)
    route += struct.pack("=HHI", 8, _INTERFACE, socket.if_nametoindex("lo"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(route), _NEW_ROUTE, _NEW_ONLY, 1, 0) + route)
        (error,) = struct.unpack_from("=i", kernel.recv(4096), 16)
    if error:
        raise OSError(-error, f"no local route for {addresses}: {os.strerror(-error)}")


if __name__ == "__main__":
    start_loopback()
    make_local(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
