"""`python -m benchmarks [GROUP …]`: measured figures with their limits, for the named groups or for all.

`python -m benchmarks placement --nodes FILE --pods FILE` measures placement on traces instead.
"""

from __future__ import annotations

import importlib
import os
import sys

from benchmarks.placement.command import run_command

GROUPS = {
    "startup": "benchmarks.startup",
    "core": "benchmarks.core",
    "sim": "benchmarks.sim",
    "predictions": "benchmarks.predictions",
    "placement": "benchmarks.placement.speed",
    "system": "benchmarks.system",
    "scale": "benchmarks.scale",
    "store": "benchmarks.store",
    "retention": "benchmarks.retention",
    "questions": "benchmarks.questions",
}


def main(arguments: list[str]) -> int:
    """Run the groups named, or all of them; the exit code."""
    if arguments[:1] == ["placement"] and any(word.startswith("-") for word in arguments):
        return run_command(arguments[1:])
    unknown = [name for name in arguments if name not in GROUPS]
    if unknown:
        print(f"benchmarks: no group {unknown[0]!r}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"Python {sys.version.split()[0]}, {cores} cores, load {load:.1f} before the start")
    for name in arguments or GROUPS:
        importlib.import_module(GROUPS[name]).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
