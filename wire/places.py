"""Where things are, once for everybody: state, sockets, configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

SYSTEM_STATE = Path("/var/lib/corral")
SYSTEM_SOCKET = Path("/run/corral/corral.sock")
SYSTEM_CONFIG = Path("/etc/corral/scheduler.toml")


def state_dir() -> Path:
    """Where a controller keeps its journal unless told otherwise."""
    if os.geteuid() == 0:
        return SYSTEM_STATE
    return (_from_environment("XDG_STATE_HOME") or _home() / ".local" / "state") / "corral"


def socket_path() -> Path:
    """Where a controller of this user listens unless told otherwise."""
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    runtime = _from_environment("XDG_RUNTIME_DIR")
    return runtime / "corral" / "corral.sock" if runtime else state_dir() / "corral.sock"


def find_url() -> str:
    """Which controller a client talks to: $CORRAL_URL, the user's own, the machine's."""
    given = os.environ.get("CORRAL_URL", "")
    if given:
        return given
    own = socket_path()
    return f"unix://{own if own.exists() else SYSTEM_SOCKET}"


def find_config(given: str = "") -> Optional[Path]:
    """The configuration file to use; one that was named counts even if it is not there."""
    named = given or os.environ.get("CORRAL_CONFIG", "")
    if named:
        return Path(named)
    config_home = _from_environment("XDG_CONFIG_HOME") or _home() / ".config"
    usual = (Path("scheduler.toml"), config_home / "corral" / "scheduler.toml", SYSTEM_CONFIG)
    return next((path for path in usual if path.is_file()), None)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")  # a uid without a name and without $HOME, as in some containers


def _from_environment(name: str) -> Optional[Path]:
    # The XDG specification: a relative path in these variables is to be ignored.
    value = os.environ.get(name, "")
    return Path(value) if value.startswith("/") else None
