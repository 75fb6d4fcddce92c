"""Uses MyQueue as its documentation shows: the configuration from sinfo, tasks, a dependency, and remove."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def mq(*words: str) -> str:
    """The output of a command of MyQueue."""
    return subprocess.run(["mq", *words], capture_output=True, text=True, check=True).stdout


def states() -> dict[str, str]:
    """The states of the tasks by their names."""
    rows = [line.split() for line in mq("ls", "-c", "ns").splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def wait(task: str, *wanted: str) -> str:
    """The state of a task, once it is one of these."""
    while (state := states().get(task, "")) not in wanted:
        mq("kick")
        time.sleep(0.3)
    return state


def main() -> None:
    """Print one line for each use."""
    os.environ["HOME"] = str(Path.cwd())  # because MyQueue keeps its tasks in the home directory
    print("config", "'gpu'" in mq("config", "slurm"))
    Path(".myqueue").mkdir(exist_ok=True)
    Path(".myqueue/config.py").write_text(
        "config = {'scheduler': 'slurm', 'nodes': [('gpu', {'cores': 16, 'memory': '100G'})],\n"
        "          'extra_args': ['--mem=500M']}\n"
    )
    Path("bad.py").write_text("raise SystemExit(1)\n")
    try:
        mq("submit", "-n", "one", "shell:true", "-R", "1:5m")
        mq("submit", "-n", "two", "-d", "one", "shell:true", "-R", "1:5m")
        mq("submit", "bad.py", "-R", "1:5m")
        print(
            "states", wait("one", "done", "FAILED"), wait("two", "done", "FAILED"), wait("bad.py", "FAILED")
        )
        mq("submit", "-n", "late", "shell:true", "-R", "1:5m", "-X=--begin=now+1hour")
        wait("late", "queued")
        mq("rm", "-s", "q", "-n", "late")
        print("removed", "late" not in states())
    finally:
        subprocess.run(["mq", "daemon", "stop"], check=False, capture_output=True)


if __name__ == "__main__":
    main()
