"""Finds the controller for a client that was started without a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

from wire.dataclass import dataclass
from wire.http import addresses, contexts


@dataclass(frozen=True)
class ControllerAddress:
    """The URL of a controller, and the source of this URL. `tried` lists the sources that had no URL, for
    error messages.
    """

    url: str
    source: str
    tried: tuple[str, ...] = ()


def find_url() -> str:
    return find_controller().url


def find_controller() -> ControllerAddress:
    """Return the address of the controller, from the first of these sources that has one:

    1. $CORRAL_URL, which `--url` sets
    2. $CORRAL_CONTEXT, which `--context` sets
    3. [controller] socket in the file $CORRAL_CONFIG or, if that is not set, in ./scheduler.toml
    4. the context chosen by `corral config use`
    5. [controller] socket in ~/.config/corral/scheduler.toml
    6. the default socket of this user, then the default socket of the machine

    A scheduler.toml that belongs neither to this user nor to root is skipped, because its owner could
    otherwise send the jobs of this user to another controller.
    """
    tried: list[str] = []
    url = os.environ.get("CORRAL_URL", "")
    if url:
        return ControllerAddress(url, "$CORRAL_URL")
    tried.append("$CORRAL_URL: not set")
    known = contexts.load()
    named = os.environ.get("CORRAL_CONTEXT", "")
    if named:
        if named not in known.known:
            there = ", ".join(known.known) or "none"
            raise contexts.InvalidContexts(f"there is no context {named!r}; known contexts: {there}")
        return ControllerAddress(known.known[named].url, f"context {named}", tuple(tried))
    given = os.environ.get("CORRAL_CONFIG", "")
    near = Path(given) if given else Path("scheduler.toml")
    found = _socket_in(near, tried)
    if found:
        return ControllerAddress(f"unix://{found}", str(near), tuple(tried))
    if known.current in known.known:
        return ControllerAddress(known.known[known.current].url, f"context {known.current}", tuple(tried))
    tried.append("contexts: no context is chosen ('corral config use NAME')")
    own_file = addresses.config_dir() / "scheduler.toml"
    found = _socket_in(own_file, tried)
    if found:
        return ControllerAddress(f"unix://{found}", str(own_file), tuple(tried))
    own = addresses.socket_path()
    if own.exists() or own == addresses.SYSTEM_SOCKET:
        return ControllerAddress(f"unix://{own}", "the usual socket", tuple(tried))
    tried.append(f"{own}: not there")
    return ControllerAddress(f"unix://{addresses.SYSTEM_SOCKET}", "the machine's socket", tuple(tried))


def _socket_in(file: Path, tried: list[str]) -> Optional[str]:
    """Return the path of the socket that this scheduler.toml sets. If the file sets none, return None and add
    the reason to `tried`.
    """
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_uid not in (0, os.geteuid()):
                tried.append(f"{file}: belongs to another user")
                return None
            text = opened.read(1 << 20).decode("utf-8", "replace")
    except OSError as error:
        tried.append(f"{file}: {'not there' if isinstance(error, FileNotFoundError) else error.strerror}")
        return None
    tables = _toml(text)
    section = tables.get("controller") if isinstance(tables, dict) else None
    socket = section.get("socket") if isinstance(section, dict) else None
    if isinstance(socket, str) and socket:
        return str(Path(socket).expanduser())
    tried.append(f"{file}: has no [controller] socket" if tables is not None else f"{file}: is not TOML")
    return None


def _toml(text: str) -> Optional[Any]:
    try:
        import tomllib
    except ImportError:
        # Ignore the missing module: Python 3.9 and 3.10 have no tomllib, but only agents run on these
        # versions.
        return None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
