"""Uses Maestro as its documentation shows: a study of three steps, of which two depend on another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUDY = """
description: {name: trial, description: Two steps with parameters and their sum.}
batch: {type: slurm, host: here, bank: default, queue: gpu}
study:
  - name: write
    description: Write a number.
    run:
      cmd: |
        $(LAUNCHER) sh -c 'echo $(NUMBER) > number.txt'
      nodes: 1
      procs: 1
      walltime: "00:05:00"
  - name: total
    description: Add the numbers.
    run:
      cmd: |
        cat $(write.workspace)/*/number.txt > all.txt
      depends: [write_*]
      nodes: 1
      procs: 1
      walltime: "00:05:00"
global.parameters:
  NUMBER: {values: [1, 2], label: NUMBER.%%}
"""


def main() -> None:
    """Print one line for each use."""
    Path("study.yaml").write_text(STUDY)
    words = ["maestro", "run", "-fg", "-y", "-s", "1", "-o", "out", "study.yaml"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    [found] = Path("out").glob("total/**/all.txt")
    print("numbers", sorted(found.read_text().split()))
    status = subprocess.run(
        ["maestro", "status", "--layout", "legacy", "out"], capture_output=True, text=True
    )
    print("finished", status.stdout.count("FINISHED"))


if __name__ == "__main__":
    main()
