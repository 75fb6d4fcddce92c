"""`python -m benchmarks [GROUP …]`: figures with their bars, of the groups below or of all."""

from __future__ import annotations

import importlib
import os
import sys

GROUPS = ("startup", "core", "sim", "predictions", "placement", "system", "scale")


def main(chosen: list[str]) -> int:
    """Run the groups named, or all of them."""
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        print(f"benchmarks: no group {unknown[0]!r}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"Python {sys.version.split()[0]}, {cores} cores, load {load:.1f} before the start")
    for name in chosen or GROUPS:
        importlib.import_module(f"benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
