"""The files that `make binary` has built. Tests of them skip where they are missing or old."""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).parents[2]
BINARY = HOME / "dist" / "corral"
PROGRAM = HOME / "build" / "binary" / "corral"
"""The unpacked program, from which the Debian package is made."""


def outdated() -> str:
    """Why there is no binary to test; empty if there is one."""
    if not (BINARY.exists() and PROGRAM.exists()):
        return "dist/corral is not built: make binary"
    built = BINARY.stat().st_mtime
    sources = [
        path
        for package in ("agent", "cli", "controller", "tui", "wire")
        for path in (HOME / package).rglob("*.py")
    ]
    return (
        ""
        if max(path.stat().st_mtime for path in sources) < built
        else "dist/corral is older than the sources: make binary"
    )
