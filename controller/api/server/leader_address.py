"""Decides whether a client can use the address of the leading controller."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from aiohttp import web

from controller.daemon import Daemon
from controller.store.leader.holder import pid_and_host

LOCAL_NAMES = ("localhost", "localhost.localdomain")


def leader_address(daemon: Daemon, request: web.BaseRequest) -> str:
    """Return the address of the leader for the client of this request; "" if no controller leads, or if the
    client cannot reach the leader there.

    Without `[api] url`, a controller announces the address on which it listens. This may be a unix socket or
    a loopback address. On another host, such an address leads to another controller or to none, so it is
    given only to clients on the host of the leader.
    """
    leader = daemon.standby.leader if daemon.standby is not None else None
    if leader is None:
        return ""
    same_host = pid_and_host(leader.holder)[1] == pid_and_host(daemon.holder)[1] if daemon.holder else False
    usable = not is_local(leader.address) or (same_host and is_from_this_host(request))
    return leader.address if usable else ""


def is_local(url: str) -> bool:
    """Return whether a URL has a meaning only on one host: a unix socket or a loopback address."""
    parts = urlsplit(url)
    if parts.scheme == "unix" or not parts.hostname:
        return True
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return parts.hostname.lower() in LOCAL_NAMES


def is_from_this_host(request: web.BaseRequest) -> bool:
    """Return whether the client has connected to a unix socket or to a loopback address of this host."""
    line: socket.socket | None = request.get_extra_info("socket")
    if line is None or line.family == socket.AF_UNIX:
        return line is not None
    return ipaddress.ip_address(line.getsockname()[0]).is_loopback
