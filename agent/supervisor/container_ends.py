"""Queries the container engine whether the containers of an attempt have exited."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from agent.isolation import container_supervision
from agent.processes import process_tree
from agent.supervisor.after_exit import LOST, SWEEP_PAUSES_S
from agent.supervisor.task_process import start_task, write_notice

if TYPE_CHECKING:
    from agent.supervisor.supervisor import Supervisor


def confirm_ends(attempt: Supervisor, now: float) -> None:
    """Query the container engine for the containers of tasks whose client process (`docker run`) has exited.

    1. The engine does not answer: query the engine again later. The attempt keeps its GPUs until the engine
       answers.
    2. The container still runs, because the client or the daemon was restarted: attach to the container
       again.
    3. The container has exited: the task has the exit code of the container.
    4. The container never ran or was removed: the task has the exit status of the client.
    """
    attempt.engine_at, launch = None, attempt.launch
    for pid, status in list(attempt.unconfirmed.items()):
        number = attempt.task_numbers[pid]
        found = container_supervision.inspect_container(launch, launch.container_names[number])
        if (
            found.state in (container_supervision.NO_ANSWER, container_supervision.RUNNING)
            and attempt.killing
        ):
            # Do not wait for the end of the container, because the job is being killed. `finish_attempt`
            # removes the container later, and waits until the container no longer exists.
            _task_ended_in_engine(attempt, pid, status)
        elif found.state == container_supervision.NO_ANSWER and (
            launch.is_podman or container_supervision.daemon_refused(launch)
        ):
            # Do not wait until podman answers, because the job's processes are descendants of this process,
            # and the attempt ends only when none of them is left. Do not wait for a docker daemon that has
            # refused the job's user either, because then there is no container.
            _task_ended_in_engine(attempt, pid, status)
        elif found.state == container_supervision.NO_ANSWER:
            attempt.engine_was_away = True
            _notice_once(attempt, f"{launch.container_engine[0]} does not answer; the job waits for it")
            attempt.engine_at = now + attempt.engine_pause_s
            attempt.engine_pause_s = min(attempt.engine_pause_s * 2, SWEEP_PAUSES_S[1])
        elif found.state == container_supervision.RUNNING:
            del attempt.unconfirmed[pid]
            _reattach(attempt, pid, number)
        else:
            # Compare the exit codes of the client and of the container. They differ if the docker daemon was
            # restarted so fast that only the client has noticed the restart.
            away = attempt.engine_was_away or os.waitstatus_to_exitcode(status) != found.code
            if away and not attempt.ending and container_supervision.was_lost(launch, found):
                attempt.why = (
                    attempt.why or f"{LOST}: docker was restarted and lost the exit code of the container"
                )
            # A docker daemon that died while it started the container may have forgotten the container.
            # Find the container's processes by their marks, and kill them.
            if launch.is_docker:
                process_tree.send_signal(container_supervision.marked_processes(launch), signal.SIGKILL)
            code = found.code << 8 if found.state == container_supervision.EXITED else status
            _task_ended_in_engine(attempt, pid, code)


def _task_ended_in_engine(attempt: Supervisor, pid: int, status: int) -> None:
    del attempt.unconfirmed[pid]
    attempt.task_ended(pid, status)


def _reattach(attempt: Supervisor, pid: int, number: int) -> None:
    attempt.engine_was_away = True
    name = attempt.launch.container_names[number]
    again = start_task(
        attempt.launch, attempt.cgroup, container_supervision.attach_command(attempt.launch, name), {}
    )
    del attempt.tasks[pid]
    attempt.tasks[again], attempt.task_numbers[again] = None, number


def _notice_once(attempt: Supervisor, sentence: str) -> None:
    if sentence not in attempt.notices:
        attempt.notices.add(sentence)
        write_notice(attempt.launch.directory, sentence)
