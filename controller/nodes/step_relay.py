"""Passes messages of srun between agents: tasks that srun starts on other nodes of its job, and records of
steps (one step per srun command)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.core.model.job import Job
from controller.nodes.link import NodeAway, NodeLink
from wire.agent.frames import AgentFrame, ControllerFrame
from wire.agent.orders import CloseShell, OpenShell, ShellInput, ShellSignal, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import InputTaken, OpenTask, RunTask, StepCall, StepNumber, TaskAway
from wire.job.steps import Step
from wire.names import JobState

if TYPE_CHECKING:
    from controller.nodes.session import AgentSession

ANSWER_S = 30.0
"""Seconds within which the agent of the job's first node must answer a StepCall (a message of srun about a
step).
"""
MAX_UNREAD_INPUT = 24 * 1024 * 1024
"""If an agent has left more bytes than this unread, it gets no further input of tasks. At MAX_UNREAD_BYTES
(session.py) its connection would be cut, and all tasks and logs of the node share this connection.
"""
TaskAnswer = ShellOutput | ShellEnded | InputTaken | TaskAway


class RelayedTask:
    """A task that srun on one node has started on another node. The messages of the task are passed to the
    agent of srun's node.

    Only the request number in each message is replaced, because both agents number their requests separately.
    """

    def __init__(self, order: OpenShell, answer: Callable[[TaskAnswer], None]) -> None:
        self.order = order
        self.closed = False
        self._answer = answer

    def receive(self, message: TaskAnswer) -> None:
        self.closed = self.closed or isinstance(message, (ShellEnded, TaskAway))
        self._answer(message)

    def lose(self) -> None:
        """Tell srun that the connection to the node of the task is lost."""
        if not self.closed and self.order.task:
            self.receive(TaskAway(self.order.request, "the connection to the node was lost"))
        elif not self.closed:
            self.receive(
                ShellEnded(
                    self.order.request, error="the connection to the node was lost; the task has ended"
                )
            )


class StepRelay:
    """Passes messages of srun from the agent of srun's node (A) to the agent of another node (the target),
    and the answers back.

    1. OpenTask or RunTask from A: if one attempt runs on both nodes, open a command on the target as `corral
       exec` does. The dictionary `_tasks` maps (A, request number of A) to the command on the target. While
       a node of the job has not reported its start, srun gets TaskAway and sends RunTask again.
    2. ShellInput, ShellTaken, ShellSignal and CloseShell of A are sent to the target with the target's
       request number. Output and end of the command are sent to A with the request number of A.
    3. StepCall from A: pass the call to the first node of the job, and the answer back to A.
    4. When the connection to A is lost, close the commands that srun on A has opened. When the connection to
       the target is lost, the target's session calls RelayedTask.lose.
    5. A task of RunTask continues in both cases of step 4, and srun connects to the task again later. So its
       command is closed with `keep`, and srun gets TaskAway.
    6. If the target reads the input of a task too slowly, disconnect srun from the task as in step 5.

    Invariant: an agent reaches another node only if one attempt runs on both nodes. So an attacker that
    controls an agent gets no access to other jobs.

    An agent numbers its requests from 1 again after a restart. So an answer is passed on only on the session
    (connection) on which its request came. Otherwise another srun with the same number would get the answer.

    Cost: one dictionary entry for each task, and nothing while no srun runs.
    """

    def __init__(self, job_of: Callable[[int], Job | None], links: dict[str, NodeLink]) -> None:
        self._job_of = job_of
        self._links = links
        self._tasks: dict[tuple[str, int], tuple[str, RelayedTask]] = {}
        self._calls: dict[tuple[str, int], Callable[[StepNumber], None]] = {}
        self._last_call = 0

    def take(self, node: str, frame: AgentFrame) -> None:
        """Handle a message about steps from the agent of `node`. Ignore any other message."""
        match frame:
            case OpenTask() | RunTask():
                self._open(node, frame)
            case ShellInput() | ShellTaken() | ShellSignal() | CloseShell():
                self._pass_on(node, frame)
            case StepCall():
                self._call(node, frame)
            case StepNumber():
                answer = self._calls.pop((node, frame.request), None)
                if answer is not None:
                    answer(frame)
            case _:
                pass

    def forget(self, node: str) -> None:
        """Close the commands that srun on `node` has opened, because the connection to the agent of `node` is
        lost. Tasks of RunTask continue. Calls that wait for an answer of this agent get an error.
        """
        for key in [key for key in self._tasks if key[0] == node]:
            target, task = self._tasks.pop(key)
            if not task.closed:
                task.closed = True
                self._send(target, CloseShell(task.order.request, keep=bool(task.order.task)))
        for call in [call for call in self._calls if call[0] == node]:
            self._calls.pop(call)(StepNumber(0, error=f"the connection to {node} was lost"))

    async def record(self, job: Job, step: Step) -> StepNumber:
        """Record a step that a client of the API has started. Raise NodeAway if the agent of the job's first
        node does not answer.
        """
        answer: asyncio.Future[StepNumber] = asyncio.get_running_loop().create_future()

        def done(number: StepNumber) -> None:
            if not answer.done():
                answer.set_result(number)

        call = self._ask_first(job, step, done)
        try:
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise NodeAway(f"node {call[0]} has not answered") from None
        finally:
            self._calls.pop(call, None)

    def _open(self, node: str, frame: OpenTask | RunTask) -> None:
        def refuse(why: str) -> None:
            self._send(node, ShellEnded(frame.request, error=why))

        def postpone(why: str) -> None:
            again = isinstance(frame, RunTask)
            self._send(node, TaskAway(frame.request, why) if again else ShellEnded(frame.request, error=why))

        job = self._attempt(node, frame.job, frame.attempt)
        if job is None:
            refuse(f"job {frame.job} does not run on {node}")
            return
        member = job.members.get(frame.node)
        link = self._links.get(frame.node)
        if member is None or member.ended_at is not None or link is None:
            refuse(f"job {job.label} does not run on {frame.node}")
            return
        if job.state is JobState.SCHEDULED:
            # The first node may have started srun before the report of the last node has arrived.
            postpone(f"job {job.label} has not started on all of its nodes")
            return
        key = (node, frame.request)
        asking = self._session(node)

        def answer(message: TaskAnswer) -> None:
            if self._tasks.get(key) != (frame.node, task) or self._session(node) is not asking:
                return
            if isinstance(message, (ShellEnded, TaskAway)):
                del self._tasks[key]
            self._send(node, replace(message, request=frame.request))

        order = OpenShell(
            *(0, frame.job, frame.attempt, frame.command),
            step=True,
            pmi=frame.pmi,
            variables=frame.variables,
        )
        if isinstance(frame, RunTask):
            order = replace(order, task=frame.task, received=frame.received, resume=frame.resume)
        try:
            session = link.session()
        except NodeAway as away:
            postpone(str(away))
            return
        if session.unread_bytes > MAX_UNREAD_INPUT:
            postpone(f"the connection to {frame.node} is too slow")
            return
        task = session.relay(order, answer)
        self._tasks[key] = (frame.node, task)

    def _pass_on(self, node: str, frame: ShellInput | ShellTaken | ShellSignal | CloseShell) -> None:
        target, task = self._tasks.get((node, frame.request), ("", None))
        if task is not None and not task.closed:
            session = self._session(target)
            if isinstance(frame, ShellInput) and session and session.unread_bytes > MAX_UNREAD_INPUT:
                self._stop_input(target, task)
                return
            self._send(target, replace(frame, request=task.order.request))
        if isinstance(frame, CloseShell):
            self._tasks.pop((node, frame.request), None)

    def _stop_input(self, target: str, task: RelayedTask) -> None:
        """Disconnect srun from a task whose node reads its input too slowly. If srun is of an older version,
        which cannot connect to the task again, end the task.
        """
        why = f"the connection to {target} is too slow for the input of the task"
        request = task.order.request
        self._send(target, CloseShell(request, keep=bool(task.order.task)))
        task.receive(TaskAway(request, why) if task.order.task else ShellEnded(request, error=why))

    def _call(self, node: str, frame: StepCall) -> None:
        job = self._attempt(node, frame.job, frame.attempt)
        asking = self._session(node)

        def answer(number: StepNumber) -> None:
            if self._session(node) is asking:
                self._send(node, replace(number, request=frame.request))

        if job is None:
            answer(StepNumber(0, error=f"job {frame.job} does not run on {node}"))
            return
        try:
            self._ask_first(job, frame.step, answer)
        except NodeAway as away:
            answer(StepNumber(0, error=str(away)))

    def _ask_first(self, job: Job, step: Step, answer: Callable[[StepNumber], None]) -> tuple[str, int]:
        """Ask the agent of the job's first node to record a step. `answer` is called when the agent answers.
        Return the key of the call in `_calls`. Raise NodeAway if this agent is not connected.
        """
        first = next(iter(job.members), "")
        if self._session(first) is None:
            raise NodeAway(f"node {first} is away, and its agent records the steps of job {job.label}")
        self._last_call += 1
        call = (first, self._last_call)
        self._calls[call] = answer
        self._send(first, StepCall(self._last_call, job.id, job.attempt, step))
        return call

    def _attempt(self, node: str, number: int, attempt: int) -> Job | None:
        """Return the job if this attempt of the job runs or starts on the node, and None otherwise."""
        job = self._job_of(number)
        placed = job is not None and job.state in (JobState.SCHEDULED, JobState.RUNNING)
        if job is None or job.attempt != attempt or not placed:
            return None
        member = job.members.get(node)
        return job if member is not None and member.ended_at is None else None

    def _session(self, node: str) -> AgentSession | None:
        """Return the session on the present connection to a node; None if its agent is not connected."""
        link = self._links.get(node)
        try:
            return None if link is None else link.session()
        except NodeAway:
            return None

    def _send(self, node: str, frame: ControllerFrame) -> None:
        link = self._links.get(node)
        if link is not None:
            link.send(frame)
