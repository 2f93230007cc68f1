"""Prints the network interface by which this machine reaches an address: python interface.py ADDRESS.

NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME want a name, and it differs from machine to machine; the route tells it. Waits
for a name that is not known yet, as that of a pod that starts beside this one.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import time
from pathlib import Path

WAIT_SECONDS = 120
_SIOCGIFADDR = 0x8915  # netdevice(7)


def own_address(address: str, wait_seconds: float = WAIT_SECONDS) -> str:
    """Return the address from which packets to another one leave; nothing is sent."""
    until = time.monotonic() + wait_seconds
    while True:
        try:
            family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as out:
                out.connect(target)
                return str(out.getsockname()[0])
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"interface: {address} cannot be reached: {error}; check MASTER_ADDR")
            time.sleep(2)


def addresses_of(name: str) -> set[str]:
    """Return the addresses of an interface."""
    found: set[str] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            packed = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            found.add(socket.inet_ntoa(packed[20:24]))
        except OSError:
            pass  # it has no address of version 4
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        words = line.split()
        if words[-1] == name:
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0])))
    return found


def interface_to(address: str, wait_seconds: float = WAIT_SECONDS) -> str:
    """Return the name of the interface."""
    own = own_address(address, wait_seconds)
    for _, name in socket.if_nameindex():
        if own in addresses_of(name):
            return name
    sys.exit(f"interface: no interface has the address {own}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("interface: give one address: python interface.py 10.0.0.1")
    print(interface_to(sys.argv[1]))
