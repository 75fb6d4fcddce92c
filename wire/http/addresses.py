"""Default paths of the state directory, the sockets and the configuration files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

SYSTEM_STATE = Path("/var/lib/corral")
SYSTEM_SOCKET = Path("/run/corral/corral.sock")
SYSTEM_CONFIG = Path("/etc/corral/scheduler.toml")


def state_dir() -> Path:
    """Return the directory in which a controller keeps its journal, unless the configuration sets another
    one.
    """
    if os.geteuid() == 0:
        return SYSTEM_STATE
    return (_from_environment("XDG_STATE_HOME") or _home() / ".local" / "state") / "corral"


def socket_path() -> Path:
    """Return the default path of the controller's socket, for a controller that this user starts."""
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    runtime = _from_environment("XDG_RUNTIME_DIR")
    return runtime / "corral" / "corral.sock" if runtime else state_dir() / "corral.sock"


def admin_socket(path: str) -> str:
    """Return the path of the admin socket, which is next to the socket `path`. Only root and the controller's
    user can connect to the admin socket. So it stays reachable when other users fill the connection queue of
    `path`.
    """
    return f"{path}.admin"


def config_dir() -> Path:
    """Return the directory of this user's configuration files: scheduler.toml and contexts.json."""
    return (_from_environment("XDG_CONFIG_HOME") or _home() / ".config") / "corral"


def find_config(path: str = "") -> Optional[Path]:
    """Return the path of the configuration file to use: `path`, or $CORRAL_CONFIG if `path` is empty. This
    file may be missing. If both are empty, return the first default file that exists, or None if none exists.
    """
    named = path or os.environ.get("CORRAL_CONFIG", "")
    if named:
        return Path(named)
    usual = (Path("scheduler.toml"), config_dir() / "scheduler.toml", SYSTEM_CONFIG)
    return next((file for file in usual if file.is_file()), None)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")  # The uid has no account and $HOME is not set, as in some containers.


def _from_environment(name: str) -> Optional[Path]:
    # Ignore a relative path, as the XDG specification requires.
    value = os.environ.get(name, "")
    return Path(value) if value.startswith("/") else None
