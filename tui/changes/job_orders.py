"""Actions that change jobs or nodes. Each action asks the user for confirmation, sends the request, and shows
the result on the status line.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from tui.app_interface import AppInterface
from tui.changes import confirmations
from tui.changes.confirmed_request import confirm_and_send
from tui.changes.job_shell import run_in_job
from tui.data.request_workers import Failure, OrderResults, effect_changed, failure_text
from tui.dialogs.form_dialog import FormDialog
from tui.dialogs.menu import Menu, MenuEntry
from tui.forms import drain
from tui.forms.edit_jobs import edit_jobs
from tui.forms.job import new_job
from wire.api.forecasts import Easing
from wire.api.jobs import JobsAnswer, JobsOrder, JobView, Submitted
from wire.api.nodes import GpuView, NodeView
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState
from wire.text import printable

Thing = TypeVar("Thing")

PRIORITY_STEP: Final = 10
"""The keys for a higher and a lower priority change the priority by this number."""


class JobOrders:
    """One method for each action of the user that changes jobs or nodes."""

    def __init__(self, app: AppInterface) -> None:
        self._app = app

    def submit(self) -> None:
        self._app.push_screen(FormDialog(new_job(os.getcwd(), self._app.cli.inherit), self._submitted))

    def cancel(self) -> None:
        self._ask(
            "cancel",
            "cancelled",
            confirmations.cancellable,
            confirmations.cancel,
            "the job has ended",
        )

    def preempt(self) -> None:
        self._ask(
            "preempt",
            "preempted",
            confirmations.preemptible,
            confirmations.preempt,
            "only running jobs can be preempted",
        )

    def requeue(self) -> None:
        self._ask(
            "requeue",
            "requeued",
            confirmations.preemptible,
            confirmations.requeue,
            "only running jobs can be requeued",
        )

    def edit_job(self) -> None:
        """Open the form that changes the marked jobs, or the job under the cursor."""
        jobs = self._chosen(confirmations.cancellable)
        if jobs:
            self._app.push_screen(FormDialog(edit_jobs(jobs, self._app.model.now), self._edited))
        else:
            self._app.show_message("nothing to change: the job has ended", "warn")

    def raise_priority(self) -> None:
        self._change_priority(
            PRIORITY_STEP, confirmations.priority_raisable, "the priority is the highest one"
        )

    def lower_priority(self) -> None:
        self._change_priority(
            -PRIORITY_STEP, confirmations.priority_lowerable, "the priority is the lowest one"
        )

    def _change_priority(self, by: int, can_change: Callable[[JobView], bool], impossible: str) -> None:
        """Ask the user to confirm, then change the priority of the marked jobs, or of the job under the
        cursor, by `by`.
        """
        still = self._still(can_change)

        def question() -> confirmations.Confirmation | None:
            jobs = still()
            return confirmations.priority(jobs, by, self._app.model.now()) if jobs else None

        def request_of(_: str) -> Callable[[Client], OrderResults[JobView]]:
            changes = confirmations.new_priorities(still(), by)
            # Send one request for each new priority, because a request makes the same change to all its jobs.
            orders = [
                order_of("set", [job for job, value in changes if value == new], {"priority": new})
                for new in sorted({value for _, value in changes})
            ]

            def carry_out(client: Client) -> OrderResults[JobView]:
                results = [order(client) for order in orders]
                return OrderResults(
                    tuple(job for each in results for job in each.done),
                    tuple(failed for each in results for failed in each.failed),
                )

            return carry_out

        word = "raised" if by > 0 else "lowered"
        if not confirm_and_send(
            self._app, question, request_of, lambda outcome: self._report(f"{word} in priority", outcome)
        ):
            self._app.show_message(f"no priority can be {word}: the job has ended, or {impossible}", "warn")

    def attach(self) -> None:
        """Open a shell in the job under the cursor. The terminal UI returns when the shell ends."""
        self._in_job(())

    def run_in_job(self) -> None:
        """Let the user type a command, and run it in the job under the cursor."""

        def typed(text: str) -> None:
            try:
                words = tuple(shlex.split(text))
            except ValueError as error:
                self._app.show_message(f"the command is not complete: {error}", "warn")
                return
            if words:
                self._in_job(words)

        if self._runs_one():
            self._app.ask_text("command in the job, such as nvidia-smi", typed)

    def _runs_one(self) -> JobView | None:
        """Return the chosen job if it is the only one and runs. Otherwise show a message and return None."""
        jobs = self._app.view.jobs()
        if len(jobs) == 1 and jobs[0].state is JobState.RUNNING:
            return jobs[0]
        self._app.show_message("choose one running job", "warn")
        return None

    def _in_job(self, words: tuple[str, ...]) -> None:
        job = self._runs_one()
        if job is not None:
            wrong = run_in_job(self._app, job, words)
            if wrong:
                self._app.show_message(wrong, "warn")

    def _edited(self, answer: JobsAnswer) -> None:
        failed = tuple((refused.job, Refused(409, refused.problem)) for refused in answer.refused)
        self._report("changed", OrderResults(answer.done, failed))

    def hold(self) -> None:
        self._waiting("held", "hold")

    def release(self) -> None:
        self._waiting("released", "release")

    def drain(self) -> None:
        """Ask the user for confirmation and an optional reason, then drain the marked nodes. Without marks,
        drain the node under the cursor or the node that the view shows.
        """
        nodes = self._app.view.nodes()
        if not nodes:
            return

        def question() -> confirmations.Confirmation | None:
            rows = self._app.model.nodes.rows
            there = [rows[node.name] for node in nodes if node.name in rows]
            return confirmations.drain(there) if there else None

        confirm_and_send(
            self._app,
            question,
            lambda why: each_of(nodes, lambda client, node: client.drain(node.name, why)),
            lambda outcome: self._report("drained", outcome),
        )

    def drain_by(self) -> None:
        """Open the form for a timed drain of the marked nodes. Without marks, it is for the node under the
        cursor or the node that the view shows.
        """
        nodes = self._app.view.nodes()
        if nodes:
            self._app.push_screen(FormDialog(drain.new(nodes, self._app.model.now), self._draining))

    def _draining(self, nodes: Sequence[NodeView]) -> None:
        self._app.show_message(f"{', '.join(map(_name, nodes))} draining", "good")
        self._app.refresh_view()

    def resume(self) -> None:
        self.resume_nodes(self._app.view.nodes())

    def resume_nodes(self, nodes: Sequence[NodeView], gpu: GpuView | None = None) -> None:
        """Resume nodes, or one GPU of the first node."""
        if gpu is None:
            self._resume(nodes, lambda client, node: client.resume(node.name))
        else:
            name = f"{nodes[0].name}:{gpu.number}"
            self._resume([name], lambda client, _: client.resume_gpu(nodes[0].name, gpu.number))

    def apply_advice(self, job: JobView, advice: Easing, command: str) -> None:
        """Ask the user to confirm a change that would start a waiting job now, and then make the change.

        `advice` describes the change: new values of fields of the job, or a command that releases the job,
        resumes nodes and GPUs, or preempts other jobs.
        """

        def question() -> confirmations.Confirmation | None:
            row = self._app.model.jobs.rows.get(job.id)
            return (
                confirmations.advice(row, advice, command) if row and row.state is JobState.QUEUED else None
            )

        verb, *names = [word for word in advice.command[1:] if not word.startswith("--")] or ["set"]

        def send(client: Client) -> JobsAnswer | OrderResults[str]:
            if verb == "resume":
                return each_of(names, resume_by_name)(client)
            order = JobsOrder(
                verb,
                (job.label,) if verb == "set" else tuple(names),
                changes=advice.changes,
                stay_held="--hold" in advice.command,
            )
            return client.order(order)

        def told(answer: JobsAnswer | OrderResults[str] | Failure) -> None:
            if isinstance(answer, JobsAnswer):
                self._edited(answer)
            else:
                self._report("resumed", answer)

        confirm_and_send(self._app, question, lambda _: send, told)

    def cordon_gpu(self, node: NodeView, gpu: GpuView) -> None:
        """Ask the user for confirmation and an optional reason, then cordon a GPU."""

        name, asked = f"{node.name}:{gpu.number}", confirmations.cordon_gpu(node, gpu)
        confirm_and_send(
            self._app,
            lambda: asked,
            lambda why: each_of([name], lambda client, _: client.cordon_gpu(node.name, gpu.number, why)),
            lambda outcome: self._report("cordoned", outcome),
        )

    def _ask(
        self,
        action: str,
        done: str,
        can_change: Callable[[JobView], bool],
        confirmation: Callable[[Sequence[JobView], float], confirmations.Confirmation],
        impossible: str,
    ) -> None:
        """Ask the user to confirm a change of the marked jobs, or of the job under the cursor. Then change
        those jobs for which `can_change` returns True.

        Example: to cancel jobs, `action` is "cancel", `done` is "cancelled", and `impossible` is the reason
        why no job can be cancelled, such as "the job has ended".
        """
        still = self._still(can_change)

        def question() -> confirmations.Confirmation | None:
            jobs = still()
            return confirmation(jobs, self._app.model.now()) if jobs else None

        if not confirm_and_send(
            self._app,
            question,
            lambda _: order_of(action, still()),
            lambda outcome: self._report(done, outcome),
        ):
            self._app.show_message(f"nothing to {action}: {impossible}", "warn")

    def _still(self, can_change: Callable[[JobView], bool]) -> Callable[[], list[JobView]]:
        """Remember the chosen jobs. Return a function that returns those of them that can still be changed
        when the function is called.
        """
        ids = [job.id for job in self._chosen(can_change)]

        def still() -> list[JobView]:
            rows = self._app.model.jobs.rows
            return [rows[job] for job in ids if job in rows and can_change(rows[job])]

        return still

    def _chosen(self, can_change: Callable[[JobView], bool]) -> list[JobView]:
        return [job for job in self._app.view.jobs() if can_change(job)]

    def _waiting(self, done: str, verb: str) -> None:
        jobs = self._chosen(confirmations.holdable)
        others = len(self._app.view.jobs()) - len(jobs)
        rule = "only queued jobs can be held and released"
        if jobs:
            self._order(done, verb, jobs, f", {others:,} left out: {rule}" if others else "")
        else:
            self._app.show_message(f"nothing to {verb}: {rule}", "warn")

    def _order(self, done: str, action: str, jobs: Sequence[JobView], left_out: str = "") -> None:
        """Send one request that applies `action`, such as cancel, to all these jobs. The message about the
        result contains `done`, such as "cancelled". The message ends with `left_out`, a text about marked
        jobs that cannot be changed.
        """
        self._app.requests.change(
            confirmations.job_command(action, jobs),
            order_of(action, jobs),
            lambda outcome: self._report(done, outcome, left_out),
        )

    def _resume(self, things: Sequence[Thing], order: Callable[[Client, Thing], object]) -> None:
        names = " ".join(shlex.quote(_name(thing)) for thing in things)
        self._app.requests.change(
            f"corral nodes resume {names}",
            each_of(things, order),
            lambda outcome: self._report("resumed", outcome),
        )

    def _report(self, done: str, outcome: OrderResults[Thing] | Failure, left_out: str = "") -> None:
        """Show the result on the status line, and remove the marks of changed jobs. If `done` is "held" or
        "released", jobs keep their marks, so that the user can undo the change with one key.
        """
        if not isinstance(outcome, OrderResults):
            self._app.show_message(failure_text(outcome), "bad")
            return
        if done not in ("held", "released"):
            self._app.model.jobs.marks -= {job.id for job in outcome.done if isinstance(job, JobView)}
            self._app.model.nodes.marks -= {node.name for node in outcome.done if isinstance(node, NodeView)}
        names = [_name(thing) for thing in outcome.done]
        about = names[0] if len(names) == 1 else f"{len(names):,}"
        if not outcome.failed:
            self._app.show_message(f"{about} {done}{left_out}", "good")
        else:
            thing, failure = outcome.failed[0]
            first = f"{_name(thing)}: {failure_text(failure)}"
            self._app.show_message(
                f"{len(names):,} {done}, {len(outcome.failed):,} failed: {first}{left_out}", "bad"
            )
        if len(outcome.failed) > 1:
            self._list_failures(done, outcome)
        self._app.refresh_view()

    def _list_failures(self, done: str, outcome: OrderResults[Thing]) -> None:
        """Open a list of the jobs or nodes that were not changed, each with the reason. Enter opens the job
        or the node.
        """
        entries = [
            MenuEntry(str(number), _name(thing), printable(failure_text(failure), 400))
            for number, (thing, failure) in enumerate(outcome.failed)
        ]

        def picked(number: str | None) -> None:
            thing = outcome.failed[int(number)][0] if number is not None else None
            if isinstance(thing, JobView):
                self._app.open_job(thing.id)
            elif isinstance(thing, NodeView):
                self._app.open_node(thing.name)

        title = f"{len(outcome.done):,} {done}, {len(entries):,} failed"
        self._app.push_screen(Menu(title, entries), picked)

    def _submitted(self, answer: Submitted) -> None:
        many = f" ({len(answer.ids):,} jobs)" if len(answer.ids) > 1 else ""
        notes = "".join(f"; {printable(note)}" for note in answer.notes)
        self._app.show_message(f"submitted {printable(answer.label)}{many}{notes}", "good")
        self._app.model.jobs.follow(answer.ids[0])
        self._app.refresh_view()


def order_of(
    action: str, jobs: Sequence[JobView], changes: Mapping[str, object] = MappingProxyType({})
) -> Callable[[Client], OrderResults[JobView]]:
    """Return a function that sends one request, which applies `action`, such as cancel, to all these jobs.
    `changes` has the new values of fields for the action set.
    """
    # Name each job by its display id, because internal ids are ambiguous: 7 is the id of the array element
    # 7_0, but in a request it means the whole array.
    by_label = {job.label: job for job in jobs}

    def carry_out(client: Client) -> OrderResults[JobView]:
        answer = client.order(JobsOrder(action, tuple(by_label), changes=dict(changes)))
        failed = ((by_label[each.job], Refused(409, each.problem)) for each in answer.refused)
        return OrderResults(answer.done, tuple(failed))

    return carry_out


def each_of(
    things: Sequence[Thing], order: Callable[[Client, Thing], object]
) -> Callable[[Client], OrderResults[Thing]]:
    """Return a function that sends one request for each job or node. A failed request does not stop the
    others. The function raises Refused if the controller refuses the first request because the effect of the
    change is no longer the shown one.
    """

    def carry_out(client: Client) -> OrderResults[Thing]:
        good: list[Thing] = []
        bad: list[tuple[Thing, Failure]] = []
        for thing in things:
            try:
                order(client, thing)
                good.append(thing)
            except (Refused, Unreachable) as failure:
                if effect_changed(failure) and not good:
                    raise
                bad.append((thing, failure))
        return OrderResults(tuple(good), tuple(bad))

    return carry_out


def resume_by_name(client: Client, name: str) -> object:
    """Resume a node, or a GPU with a name such as gpu01:3."""
    node, _, gpu = name.partition(":")
    return client.resume_gpu(node, gpu) if gpu else client.resume(node)


def _name(thing: object) -> str:
    return printable(
        thing.label
        if isinstance(thing, JobView)
        else thing.name
        if isinstance(thing, NodeView)
        else str(thing),
        40,
    )
