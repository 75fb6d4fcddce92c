"""Sends Wake-on-LAN packets."""

from __future__ import annotations

import re
import socket

PORT = 9
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")


def magic_packet(mac: str) -> bytes:
    """Return the packet for an Ethernet address: six bytes FF, and the address 16 times. Raise ValueError if
    the text is no address.
    """
    if not _MAC.fullmatch(mac):
        raise ValueError(f"cannot read {mac!r} as an Ethernet address; write 00:11:22:aa:bb:cc")
    return b"\xff" * 6 + bytes.fromhex(re.sub("[:-]", "", mac)) * 16


def send_magic_packet(mac: str, broadcast: str, port: int = PORT) -> None:
    """Send a Wake-on-LAN packet to a broadcast address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        line.sendto(magic_packet(mac), (broadcast, port))
