"""Default paths: state, sockets, configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

SYSTEM_STATE = Path("/var/lib/corral")
SYSTEM_SOCKET = Path("/run/corral/corral.sock")
SYSTEM_CONFIG = Path("/etc/corral/scheduler.toml")


def state_dir() -> Path:
    """The default directory of a controller's journal."""
    if os.geteuid() == 0:
        return SYSTEM_STATE
    return (_from_environment("XDG_STATE_HOME") or _home() / ".local" / "state") / "corral"


def socket_path() -> Path:
    """The default socket of a controller of this user."""
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    runtime = _from_environment("XDG_RUNTIME_DIR")
    return runtime / "corral" / "corral.sock" if runtime else state_dir() / "corral.sock"


def admin_socket(path: str) -> str:
    """The socket beside `path` for root and the controller's user, whose queue other users cannot fill."""
    return f"{path}.admin"


def config_dir() -> Path:
    """The directory of the user's own configuration: scheduler.toml, and the contexts of clients."""
    return (_from_environment("XDG_CONFIG_HOME") or _home() / ".config") / "corral"


def find_config(given: str = "") -> Optional[Path]:
    """The configuration file to use; a given path is returned even if the file does not exist."""
    named = given or os.environ.get("CORRAL_CONFIG", "")
    if named:
        return Path(named)
    usual = (Path("scheduler.toml"), config_dir() / "scheduler.toml", SYSTEM_CONFIG)
    return next((path for path in usual if path.is_file()), None)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")  # because a uid may have neither a name nor $HOME, as in some containers


def _from_environment(name: str) -> Optional[Path]:
    # because the XDG specification says to ignore a relative path in these variables
    value = os.environ.get(name, "")
    return Path(value) if value.startswith("/") else None
