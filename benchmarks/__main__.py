"""Runs benchmarks: `python -m benchmarks [GROUP …]`. Without a group, all groups run.

`python -m benchmarks placement --nodes FILE --pods FILE` measures placement on traces instead, and
`python -m benchmarks lab --mixes wide --loads 1.2` chooses the runs of the lab benchmark.
"""

from __future__ import annotations

import importlib
import os
import sys

from benchmarks.lab.command import run_command as run_lab
from benchmarks.placement.command import run_command as run_placement

GROUPS = {
    "startup": "benchmarks.startup",
    "core": "benchmarks.core",
    "sim": "benchmarks.sim",
    "predictions": "benchmarks.predictions.comparison",
    "placement": "benchmarks.placement.speed",
    "system": "benchmarks.system",
    "scale": "benchmarks.scale",
    "store": "benchmarks.store",
    "retention": "benchmarks.retention",
    "questions": "benchmarks.questions",
    "lab": "benchmarks.lab.command",
    "pools": "benchmarks.pools",
}
COMMANDS = {"placement": run_placement, "lab": run_lab}
"""For each group of benchmarks that has options: the function that runs the group. Its argument is the list
of the words after the name of the group.
"""


def main(arguments: list[str]) -> int:
    """Run the named groups of benchmarks; without a name, run all groups. Return the exit code."""
    if arguments and arguments[0] in COMMANDS and any(word.startswith("-") for word in arguments):
        return COMMANDS[arguments[0]](arguments[1:])
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
