"""Finds and signals all processes of an attempt, including detached processes.

1. A supervisor is a subreaper, so all processes of its job stay its descendants. When wait() reports that no
   child is left, no process of the job is left.
2. After a supervisor was killed, `find_strays` finds the processes of its job by their session and by the
   marks in their environment.

The fork server must stay small and imports this module, so this module imports only small modules; `typing`
is used only for type checking.
"""

from __future__ import annotations

import ctypes
import os
import signal

from agent.processes.process_marks import SPOOL_VARIABLE, MarkedProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
FORK_SERVER_NAME = "corral-nursery"
"""The name of fork servers in `ps`. The name must stay the same in all versions, because a new agent looks
for fork servers of earlier versions by this name.
"""


def become_subreaper(name: str) -> None:
    """Let orphaned descendants become children of this process, and set the name of this process in `ps`
    (at most 15 characters).
    """
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def kill_when_parent_ends(parent: int) -> None:
    """Let the kernel kill this process when its parent exits. Call this function after a change of user,
    because the kernel forgets the setting when a process changes its user.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # The parent exited before prctl was called, so the kernel will not kill this process.
        os.kill(os.getpid(), signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by a signal or a debugger."""
    try:
        return _stat(pid)[0] in "Tt"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return (
        _children_from_list
        if os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        else _children_by_scan()
    )(pid)


def descendants(root: int) -> list[int]:
    """Return the pids of all descendants of the process `root`. Parents come before their children."""
    children = (
        _children_from_list
        if os.path.exists(f"/proc/self/task/{os.getpid()}/children")
        else _children_by_scan()
    )
    found, frontier = [], [root]
    while frontier:
        frontier = [child for parent in frontier for child in children(parent)]
        found += frontier
    return found


def _children_from_list(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    except OSError:
        # Skip a process that ended during the scan. The kernel has given its children to another parent, and
        # the next scan finds them there.
        pass
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """Scan all processes once. Return a function that returns the pids of the children of a process at the
    time of this scan. The scan is needed on kernels without /proc/<pid>/task/<tid>/children.
    """
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                found.setdefault(int(_stat(int(name))[1]), []).append(int(name))
        except OSError:
            continue
    return lambda pid: found.get(pid, [])


class ProcessTable:
    """The parents and CPU times of all processes of this host at one moment. Cost: one file of /proc for each
    process.
    """

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        self._ticks: dict[int, tuple[int, int]] = {}
        for name in os.listdir("/proc"):
            try:
                fields = _stat(int(name)) if name.isdigit() else []
            except OSError:
                continue  # Skip a process that ended during the scan.
            if fields:
                own, waited_for = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                self._children.setdefault(int(fields[1]), []).append(int(name))
                self._ticks[int(name)] = own, waited_for

    def usage_below(self, root: int) -> tuple[int, int]:
        """Return the CPU time in ticks and the memory in pages of all processes below `root`. The CPU time
        includes processes that have ended; the CPU time of `root` itself does not count.
        """
        ticks, private, shared = self._ticks.get(root, (0, 0))[1], 0, 0
        frontier = self._children.get(root, [])
        while frontier:
            for pid in frontier:
                ticks += sum(self._ticks[pid])
                try:
                    resident, files = map(int, _read(f"/proc/{pid}/statm").split()[1:3])
                except (OSError, ValueError):
                    continue
                # Count the memory of files and shared memory segments only for the process that maps most of
                # it, because most processes of a job map the same files and segments.
                private, shared = private + resident - files, max(shared, files)
            frontier = [child for pid in frontier for child in self._children.get(pid, [])]
        return ticks, private + shared


def find_strays(
    directory: str, key: str, leader: int | None, ticks: int | None, uid: int | None = None, secret: str = ""
) -> list[int]:
    """Return the running processes of the attempt `key` (such as 42.1), whose supervisor has ended.
    `directory` is the attempt's spool directory, and `secret` is the HMAC key of the spool. The processes
    are:

    1. Supervisors, and children of supervisors before exec. They have the environment of the fork server, and
       the name of the attempt as process name. The result begins with these processes.
    2. Processes in the session of the job's first process, which had the pid `leader` and started at `ticks`.
    3. Processes with the mark of the attempt, if they run as `uid` or as the agent's user, or if the mark has
       a valid code (process_marks.py).
    4. Orphans with another session and no mark. A fork server is the parent of these orphans and kills them.
       The result includes these orphans, because the end of the attempt is recorded only after their end.
    """
    session = leader if leader is not None and start_ticks(leader) in (None, ticks) else None
    spool, own_uids = os.path.dirname(os.path.dirname(directory)), (os.geteuid(), uid)
    supervisors, found, fork_servers, parents = [], [], set(), {}
    for name in os.listdir("/proc"):
        pid = int(name) if name.isdigit() else os.getpid()
        try:
            state, parent, _, in_session, *_ = _stat(pid)
            if pid == os.getpid() or state in "ZX":
                continue
            if int(in_session) == session:
                found.append(pid)
                continue
            process = MarkedProcess(pid)
            if process.is_early(spool):
                if process.uid in own_uids and _name(pid) == key[:15]:
                    supervisors.append(pid)
                elif process.uid == os.geteuid() and _name(pid) == FORK_SERVER_NAME:
                    fork_servers.add(pid)
                continue
            parents[pid] = int(parent)
            if process.attempt(spool) == key and (process.uid in own_uids or process.proves(secret, key)):
                found.append(pid)
        except OSError:
            continue  # Skip a process that ended during the scan or belongs to another user.
    orphans = [pid for pid, parent in parents.items() if parent in fork_servers and pid not in found]
    return supervisors + found + orphans


def attempts_with_processes(spool: str, secret: str) -> set[str]:
    """Return the names of all attempts of this spool that have running processes, including attempts without
    a record. `secret` is the HMAC key of the spool.

    A process counts if it is a supervisor, or if its mark proves the attempt (`MarkedProcess.proves`). A name
    in the environment is not enough, because every process can set its own environment.
    """
    found = set()
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or int(name) == os.getpid():
                continue
            process = MarkedProcess(int(name))
            attempt = process.attempt(spool)
            if process.is_early(spool) and process.uid == os.geteuid():
                # The process name of a supervisor is the name of its attempt, such as 42.1. The other
                # processes with this environment are fork servers.
                found.add(_name(int(name)))
            elif attempt and process.proves(secret, attempt):
                found.add(attempt)
        except OSError:
            continue  # Skip a process that ended during the scan or belongs to another user.
    return found - {FORK_SERVER_NAME}


def _name(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()


def spool_variable(directory: str) -> str:
    """Return the environment variable that names the attempt to which a process belongs, as NAME=VALUE.
    `directory` is the attempt's spool directory.
    """
    return f"{SPOOL_VARIABLE}={directory}"


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot; None if no process has this pid. The
    start time distinguishes the process from a later one with the same pid.
    """
    try:
        return int(_stat(pid)[19])
    except OSError:
        return None


def runs_since(pid: int, ticks: int) -> bool:
    """Return whether the process `pid` that started at `ticks` (clock ticks since boot) still runs. A zombie
    (an exited process that its parent has not collected) does not run.
    """
    try:
        fields = _stat(pid)
    except (OSError, ValueError):
        return False
    return fields[0] != "Z" and int(fields[19]) == ticks


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the process name: state, parent, process group, session,
    … Raise OSError if there is no such process.
    """
    text = _read(f"/proc/{pid}/stat").decode("utf-8", "replace")
    if not text:
        # The process ended between open() and read().
        raise ProcessLookupError(f"process {pid} has ended")
    return text[text.rindex(")") + 2 :].split()


def boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while True:
            part = os.read(descriptor, 65_536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except ProcessLookupError:
        return b""
    finally:
        os.close(descriptor)


def with_handler(pids: list[int], number: int) -> list[int]:
    """Return the processes in `pids` that have a handler for the signal `number`. Processes without a handler
    would be ended by the signal.
    """
    found = []
    for pid in pids:
        try:
            lines = _read(f"/proc/{pid}/status").split(b"\n")
        except OSError:
            continue  # Skip a process that has ended.
        caught = next((int(line[7:], 16) for line in lines if line.startswith(b"SigCgt:")), 0)
        if caught >> (number - 1) & 1:
            found.append(pid)
    return found


def send_signal(pids: list[int], number: int) -> None:
    """Send the signal `number` to processes, and continue stopped processes so that they react. Skip
    processes that have ended or belong to other users.
    """
    for pid in pids:
        try:
            os.kill(pid, number)
            if number != signal.SIGKILL:
                os.kill(pid, signal.SIGCONT)
        except OSError:
            continue
