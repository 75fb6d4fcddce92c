"""Queries and removes the containers of one attempt, through the container engine (docker or podman).

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.isolation.attempt_cgroup import out_of_memory_reason
from agent.processes import process_tree, short_command

GONE, NO_ANSWER, CREATED, RUNNING, EXITED = "gone", "no answer", "created", "running", "exited"
"""The states of a container. GONE: it does not exist. NO_ANSWER: the engine does not answer, so the state is
unknown.
"""

_ANSWER_S = 5.0
_LONGEST_PAUSE_S = 5.0
_KILLED = 128 + 9
_NEVER_STARTED = "0001-01-01"
_STATE = "{{.State.Status}}|{{.State.StartedAt}}|{{.State.OOMKilled}}|{{.State.ExitCode}}"
_ENGINE_PROCESSES = {
    "podman",
    "conmon",
    "crun",
    "runc",
    "docker",
    "docker-init",
    "catatonit",
    "apptainer",
    "singularity",
    "starter",
    "starter-suid",
}
"""The names in /proc/<pid>/comm of processes of container engines. These processes get only the signal
SIGKILL, because they would forward any other signal to the job, and the signal could end processes without a
handler. A process of the job with such a name is treated in the same way.
"""
_NO_DEVICE = ("could not select device driver", "unresolvable CDI devices", "CDI device injection failed")
_NO_ENGINE = ("Cannot connect to the Docker daemon",)
"""The texts that docker prints if it cannot connect to its daemon, so that the daemon has got no request."""
_ENGINE_LOST, _START_REQUEST = "error during connect", "/start"
"""If the daemon died before answering, docker prints _ENGINE_LOST, followed by the request. A request that
contains _START_REQUEST starts the job's program.
"""
_LOST_CODES = (_KILLED, 255)
"""The exit codes that docker reports for a container whose real exit code is lost."""


class ContainerState:
    """The state of one container. `began` is True if the program of the container was started."""

    def __init__(self, state: str, code: int = 0, out_of_memory: bool = False, began: bool = False) -> None:
        self.state = state
        self.code = code
        self.out_of_memory = out_of_memory
        self.began = began


def inspect_container(launch: LaunchSpec, name: str) -> ContainerState:
    """Return the state of a container, as the container engine reports it.

    1. If `inspect` succeeds, use the state that `inspect` prints.
    2. If `inspect` fails, list the containers with this name. This is needed because docker's exit code is 1
       both for an unknown container and without a daemon. If the list is empty, the container has been
       removed.
    3. If the list fails too, or contains the container, the state is NO_ANSWER: the container may still run.
    """
    failed, output = _run_engine(launch, "inspect", "--format", _STATE, name)
    words = output.split("|")
    if not failed and len(words) == 4:
        status, started, oom, code = words
        began = bool(started) and not started.startswith(_NEVER_STARTED)
        if status in ("created", "configured", "initialized"):
            return ContainerState(CREATED)
        state = EXITED if status in ("exited", "stopped", "dead", "removing") else RUNNING
        return ContainerState(state, int(code) if code.isdigit() else 0, oom == "true", began)
    failed, output = _run_engine(
        launch, "ps", "--all", "--filter", f"name=^{name}$", "--format", "{{.Names}}"
    )
    return ContainerState(NO_ANSWER if failed or output else GONE)


def _run_engine(launch: LaunchSpec, *words: str, timeout_s: float = _ANSWER_S) -> tuple[int, str]:
    """Run one command of the engine, and return its exit code and stdout. Docker runs as the agent's user,
    podman as the job's user.

    Podman keeps separate containers for each user. Docker does not run as the job's user, because the
    daemon may stop accepting that user at any time.
    """
    return short_command.run_and_read(
        launch, [*launch.container_engine, *words], timeout_s, as_agent=launch.is_docker
    )


def daemon_refused(launch: LaunchSpec) -> bool:
    """Return whether the docker daemon has refused the job's user. In that case the attempt has no
    container.
    """
    return "permission denied while trying to connect" in _error_line(launch).lower()


def attach_command(launch: LaunchSpec, name: str) -> list[str]:
    """Return a command line that attaches to a running container, waits for the end of the container, and
    exits with the container's exit code.
    """
    return [*launch.container_engine, "attach", "--no-stdin", name]


def job_processes(launch: LaunchSpec, descendants: list[int]) -> list[int]:
    """Return the processes of the job, without the processes of the container engine.

    With podman and apptainer, the job's processes are in `descendants`, the descendants of the supervisor.
    With docker, the job's processes are descendants of the daemon. They are found by the mark in their
    environment (process_marks.py), as with podman and apptainer if `descendants` has none.
    """
    if launch.is_docker:
        return _without_engine(marked_processes(launch))
    return _without_engine(descendants) or _without_engine(marked_processes(launch))


def marked_processes(launch: LaunchSpec) -> list[int]:
    """Return all processes that have the mark of the attempt in their environment, including processes of the
    container engine.
    """
    uid = launch.user[0] if launch.user is not None else None
    return process_tree.find_strays(launch.directory, launch.key, None, None, uid, launch.mark_key)


def was_lost(launch: LaunchSpec, found: ContainerState) -> bool:
    """Return whether docker has lost the real exit code of a container that it reports as exited, for
    instance because the daemon was restarted.

    The exit code is lost if processes of the container still run. It is also taken as lost if it is in
    `_LOST_CODES` and the kernel did not kill the container for lack of memory.
    """
    return launch.is_docker and (
        (found.code in _LOST_CODES and not found.out_of_memory)
        or bool(_without_engine(marked_processes(launch)))
    )


def _without_engine(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue  # Skip a process that has ended.
        if name not in _ENGINE_PROCESSES:
            found.append(pid)
    return found


def failure_reason(launch: LaunchSpec, code: int | None, rss_mib: int) -> str:
    """Return why an attempt failed, if its program did not cause the failure; empty if the program itself
    failed. `code` is the exit code of the attempt, and `rss_mib` its peak memory.

    If the docker daemon died while it handled the request to start the program, the program may have run. The
    reason is then supervisor_lost, and the job's restart policy decides whether the job runs again. If the
    daemon died earlier, the reason is node_unfit, and another node may run the job.
    """
    found = [inspect_container(launch, name) for name in launch.container_names]
    own = launch.memory_mib
    # A job that was killed with at least 90 % of its memory limit in use counts as killed for lack of memory,
    # because not every engine reports such a kill.
    at_its_limit = code == _KILLED and bool(own) and rss_mib * 10 >= own * 9
    if at_its_limit or any(container.out_of_memory for container in found):
        return out_of_memory_reason(own, rss_mib)
    never_began = launch.is_docker and any(container.state == CREATED for container in found)
    if code not in (125, 126, 127) and not never_began:
        return ""
    engine, words = os.path.basename(launch.container_commands[0][0]), _error_line(launch)
    if words.startswith("[FATAL tini") and code == 127:
        # Docker's init process (tini) reports that the image does not contain the job's program.
        return f"launch_failed: {engine} cannot run {launch.argv[0]}: the image has no such program"
    if all(container.began for container in found):
        return ""
    some_began = any(container.began for container in found)
    if (_ENGINE_LOST in words and (some_began or _START_REQUEST in words)) or code not in (125, 126, 127):
        return f"supervisor_lost: the daemon of {engine} ended while it started the container"
    if not some_began and any(sentence in words for sentence in (*_NO_DEVICE, *_NO_ENGINE, _ENGINE_LOST)):
        return f"node_unfit: {engine} cannot run jobs here: {words}"
    return f"launch_failed: {engine} cannot run the image: {words or 'its stderr says why'}"


def remove_containers(launch: LaunchSpec) -> None:
    """Remove the containers of the attempt, and wait until the engine reports that they no longer exist.

    With docker, wait without a limit if the daemon does not answer, because the container may still use its
    GPUs. With podman, give up after some tries: the kernel has reported that no process is left.
    """
    force = ["--force", "--ignore"] if launch.is_podman else ["--force"]
    for name in launch.container_names:
        pause, output = 0.2, False
        while _run_engine(launch, "rm", *force, name, timeout_s=6 * _ANSWER_S)[0] or launch.is_docker:
            if inspect_container(launch, name).state == GONE or daemon_refused(launch):
                break
            if pause > _LONGEST_PAUSE_S and launch.is_podman:
                print(
                    f"{launch.key}: podman does not remove {name}; none of its processes is left",
                    file=sys.stderr,
                )
                break
            if pause > _LONGEST_PAUSE_S and not output:
                output = True
                print(
                    f"{launch.key}: waits until {launch.container_engine[0]} has removed {name}",
                    file=sys.stderr,
                )
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S + 1)
    # Kill the process that rootless podman leaves running to keep its namespaces.
    process_tree.send_signal(process_tree.descendants(os.getpid()), signal.SIGKILL)


def _error_line(launch: LaunchSpec) -> str:
    """Return the last error of the container engine in the job's stderr. If there is none, return the last
    line; empty if there is no line.
    """
    try:
        name = "stdout" if launch.merge_output else "stderr"
        descriptor = os.open(f"{launch.directory}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            text = os.pread(descriptor, 4_000, max(0, size - 4_000)).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and "--help'" not in line]
    errors = [line for line in lines if line.startswith(("docker: ", "Error: ", "[FATAL tini"))]
    line = errors[-1] if errors else lines[-1] if lines else ""
    for prefix in ("docker: ", "Error: ", "Error response from daemon: "):
        line = line[len(prefix) :] if line.startswith(prefix) else line
    return line[:300]
