"""The containers of an attempt, as its supervisor sees them: did they ever run, and is nothing left of them.

Read by the nursery: imports only what is cheap.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from agent import aside, tree
from agent.launch import Launch

_PATIENCE_S = 30.0
_LONGEST_S = 5.0
_KILLED = 128 + 9
_NEVER = "0001-01-01"
"""When a container was started that never was."""
_RUNTIMES = {
    "podman",
    "conmon",
    "crun",
    "runc",
    "docker",
    "apptainer",
    "singularity",
    "starter",
    "starter-suid",
}
"""As the kernel calls them. A job that calls itself so is asked nothing before it is killed."""


def inside(pids: list[int]) -> list[int]:
    """The processes of the job itself, without those that run its container: these pass on every signal."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue  # ended meanwhile
        if name not in _RUNTIMES:
            found.append(pid)
    return found


def verdict(launch: Launch, code: int | None, rss_mib: int) -> str:
    """Why it failed, if that was not the program's doing: it never began, or memory ran out."""
    found = [aside.ask(launch, each, _PATIENCE_S) for each in launch.asks]
    own = launch.memory_mib
    # Not every runtime notices why the kernel killed somebody; to what it had grown the kernel tells.
    at_its_limit = code == _KILLED and bool(own) and rss_mib * 10 >= own * 9
    if at_its_limit or any(told.endswith("true") for _, told in found):
        return "out_of_memory: " + (f"it needed more than its {own} MiB" if own else "the host had no more")
    if code in (125, 126, 127) and any(failed or told.startswith(_NEVER) for failed, told in found):
        runtime = os.path.basename(launch.wraps[0][0])
        return f"launch_failed: {runtime} cannot run the image: {_last_words(launch)}"
    return ""


def clear(launch: Launch) -> None:
    """Take away what is left; of a daemon's containers this is their end."""
    for number, undo in enumerate(launch.undo):
        pause = 0.2
        while aside.ask(launch, undo, _PATIENCE_S)[0]:
            if aside.ask(launch, launch.asks[number], _PATIENCE_S)[0] > 0:
                break  # nobody knows of it any more
            if pause > _LONGEST_S:
                print(f"{launch.key}: a container may be left: {' '.join(undo)} fails", file=sys.stderr)
                break
            time.sleep(pause)
            pause *= 2
    tree.send(
        tree.descendants(os.getpid()), signal.SIGKILL
    )  # podman likes to leave one that keeps namespaces


def _last_words(launch: Launch) -> str:
    try:
        descriptor = os.open(f"{launch.place}/stderr", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            said = os.pread(descriptor, 2_000, max(0, size - 2_000)).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        said = ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300].replace("Error: ", "") if lines else "its stderr says why"
