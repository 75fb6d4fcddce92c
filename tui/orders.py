"""Changes people ask for: confirmed, carried out by the desk, and what came of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tui import confirm
from tui.desk import Failure, sentence
from tui.dialogs.ask import Ask
from tui.dialogs.fill import Fill
from tui.forms.job import new_job
from tui.stage import Stage
from wire.api.jobs import JobsOrder, JobView, Submitted
from wire.api.nodes import NodeView
from wire.client import Client, Refused, Unreachable
from wire.text import plain

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Outcome(Generic[Thing]):
    """What became of an order about several things."""

    done: tuple[Thing, ...]
    failed: tuple[tuple[Thing, Failure], ...]


class Orders:
    """One method for each action that changes something."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def submit(self) -> None:
        """Fill in the form, then queue the job."""
        self._stage.push_screen(Fill(new_job(os.getcwd()), self._submitted))

    def cancel(self) -> None:
        """Cancel the chosen jobs, after asking."""

        def still() -> list[JobView]:
            rows = self._stage.model.jobs.rows
            return [rows[job] for job in ids if job in rows and confirm.cancellable(rows[job])]

        def question() -> confirm.Question | None:
            jobs = still()
            return confirm.cancel(jobs, self._stage.model.now()) if jobs else None

        ids = [job.id for job in self._chosen(confirm.cancellable)]
        first = question()
        if first is None:
            self._stage.say("nothing to cancel: it has ended", "warn")
            return

        def answered(yes: str | None) -> None:
            if yes is not None:
                self._order("cancelled", "cancel", still())

        self._stage.push_screen(Ask(question, first), answered)

    def preempt(self) -> None:
        """Preempt the chosen jobs, after asking."""

        def still() -> list[JobView]:
            rows = self._stage.model.jobs.rows
            return [rows[job] for job in ids if job in rows and confirm.preemptible(rows[job])]

        def question() -> confirm.Question | None:
            jobs = still()
            return confirm.preempt(jobs, self._stage.model.now()) if jobs else None

        ids = [job.id for job in self._chosen(confirm.preemptible)]
        first = question()
        if first is None:
            self._stage.say("nothing to preempt: only jobs that run can be", "warn")
            return

        def answered(yes: str | None) -> None:
            if yes is not None:
                self._order("preempted", "preempt", still())

        self._stage.push_screen(Ask(question, first), answered)

    def hold(self) -> None:
        """Hold the chosen jobs."""
        self._waiting("held", "hold")

    def release(self) -> None:
        """Release the chosen jobs."""
        self._waiting("released", "release")

    def drain(self) -> None:
        """Drain the chosen nodes, after asking why."""
        nodes = self._stage.view.nodes()
        if not nodes:
            return

        def question() -> confirm.Question | None:
            rows = self._stage.model.nodes.rows
            there = [rows[node.name] for node in nodes if node.name in rows]
            return confirm.drain(there) if there else None

        def answered(why: str | None) -> None:
            if why is not None:
                self._each("drained", nodes, lambda client, node: client.drain(node.name, why))

        self._stage.push_screen(Ask(question, confirm.drain(nodes)), answered)

    def resume(self) -> None:
        """Resume the chosen nodes."""
        self._each("resumed", self._stage.view.nodes(), lambda client, node: client.resume(node.name))

    # -- inside -------------------------------------------------------------------------

    def _chosen(self, possible: Callable[[JobView], bool]) -> list[JobView]:
        return [job for job in self._stage.view.jobs() if possible(job)]

    def _waiting(self, done: str, verb: str) -> None:
        jobs = self._chosen(confirm.holdable)
        if jobs:
            self._order(done, verb, jobs)
        else:
            self._stage.say(f"nothing to {verb}: only jobs that wait can be held", "warn")

    def _order(self, done: str, action: str, jobs: Sequence[JobView]) -> None:
        """One request for all of them, however many are marked."""
        meant = {job.label: job for job in jobs}

        def carry_out(client: Client) -> Outcome[JobView]:
            # By labels: the id of an array's first element would mean the whole array.
            answer = client.order(JobsOrder(action, tuple(meant)))
            failed = ((meant[each.job], Refused(409, each.problem)) for each in answer.refused)
            return Outcome(answer.done, tuple(failed))

        self._stage.desk.ask(carry_out, lambda outcome: self._report(done, outcome))

    def _each(self, done: str, things: Sequence[Thing], order: Callable[[Client, Thing], object]) -> None:
        def carry_out(client: Client) -> Outcome[Thing]:
            good: list[Thing] = []
            bad: list[tuple[Thing, Failure]] = []
            for thing in things:
                try:
                    order(client, thing)
                    good.append(thing)
                except (Refused, Unreachable) as failure:
                    bad.append((thing, failure))
            return Outcome(tuple(good), tuple(bad))

        self._stage.desk.ask(carry_out, lambda outcome: self._report(done, outcome))

    def _report(self, done: str, outcome: Outcome[Thing] | Failure) -> None:
        """What failed is said, and stays marked."""
        if not isinstance(outcome, Outcome):
            self._stage.say(sentence(outcome), "bad")
            return
        marks = self._stage.model.jobs.marks
        marks -= {job.id for job in outcome.done if isinstance(job, JobView)}
        names = [_name(thing) for thing in outcome.done]
        about = names[0] if len(names) == 1 else f"{len(names):,}"
        if not outcome.failed:
            self._stage.say(f"{about} {done}", "good")
        else:
            thing, failure = outcome.failed[0]
            first = f"{_name(thing)}: {sentence(failure)}"
            self._stage.say(f"{len(names):,} {done}, {len(outcome.failed):,} failed: {first}", "bad")
        self._stage.refresh_view()

    def _submitted(self, answer: Submitted) -> None:
        many = f" ({len(answer.ids):,} jobs)" if len(answer.ids) > 1 else ""
        self._stage.say(f"submitted {plain(answer.label)}{many}", "good")
        self._stage.model.jobs.follow(answer.ids[0])
        self._stage.refresh_view()


def _name(thing: object) -> str:
    return plain(
        thing.label if isinstance(thing, JobView) else thing.name if isinstance(thing, NodeView) else "", 40
    )
