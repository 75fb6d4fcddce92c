"""Changes to who may have what: shares, quotas, reservations, and who is moved to make room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tui import confirm
from tui.desk import Failure, sentence
from tui.dialogs.ask import Ask
from tui.dialogs.fill import Fill
from tui.forms import quota, reservation, share
from tui.listing import Listing
from tui.moves import Step
from tui.stage import Stage
from wire.api.moves import Rebalanced
from wire.api.tenants import QuotaView, ReservationView
from wire.client import Client, Refused, Unreachable
from wire.text import counted, plain

Thing = TypeVar("Thing")


class Edits:
    """One method for each action that changes something of this; what it is about is under the cursor."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def edit_share(self) -> None:
        """Change the share under the cursor."""
        row = self._here(self._stage.model.shares, "share")
        if row is not None:
            said = f"share of {plain(row.share, 60)} set"
            self._stage.push_screen(Fill(share.edit(row), lambda _: self._done(said)))

    def new_quota(self) -> None:
        """Limit somebody who has no line yet."""
        self._stage.push_screen(Fill(quota.new(), self._quota_set))

    def edit_quota(self) -> None:
        """Change the quota under the cursor."""
        row = self._here(self._stage.model.quotas, "quota")
        if row is not None:
            self._stage.push_screen(Fill(quota.edit(row), self._quota_set))

    def unset_quota(self) -> None:
        """Take back what was set, after asking."""
        row = self._here(self._stage.model.quotas, "quota")
        if row is not None and not row.edited:
            self._stage.say("nothing to unset: it is as configured", "warn")
        elif row is not None:
            self._ask(
                lambda: confirm.unset_quota(row),
                lambda client: client.unset_quota(row.scope, row.name),
                lambda _: f"quota of {row.scope} {plain(row.name, 60)} unset",
            )

    def new_reservation(self) -> None:
        """Keep nodes for a time."""

        def made(view: ReservationView) -> None:
            self._stage.model.reservations.put((view,))
            self._stage.model.reservations.follow(view.spec.name)
            nodes = counted(len(view.nodes), "node")
            self._done(f"reservation {plain(view.spec.name, 60)}: {nodes} kept")

        self._stage.push_screen(Fill(reservation.new(self._stage.model.now), made))

    def cancel_reservation(self) -> None:
        """Give nodes back, after asking."""
        model = self._stage.model
        row = self._here(model.reservations, "reservation")
        if row is None:
            return
        name = row.spec.name

        def question() -> confirm.Question | None:
            there = model.reservations.rows.get(name)
            return confirm.cancel_reservation(there, model.now()) if there is not None else None

        said = f"reservation {plain(name, 60)} cancelled"
        self._ask(question, lambda client: client.cancel_reservation(name), lambda _: said)

    def move(self) -> None:
        """Do the proposal under the cursor, after asking."""
        steps = self._stage.model.steps
        row = self._here(steps, "proposal")
        if row is not None and row.state != "proposed":
            self._stage.say(f"nothing to do: this is {row.state} already", "warn")
        elif row is not None:
            self._move(lambda: [step for step in steps.rows.values() if step.key == row.key], row.key)

    def move_all(self) -> None:
        """Do whatever can be proposed, after asking."""
        steps = self._stage.model.steps
        self._move(lambda: [step for step in steps.rows.values() if step.state == "proposed"], "")

    def _move(self, meant: Callable[[], list[Step]], proposal: str) -> None:
        def question() -> confirm.Question | None:
            return confirm.move(meant()) if meant() else None

        def told(answer: Rebalanced) -> str:
            return f"{counted(len(answer.moves), 'job')} on the move"

        if question() is None:
            self._stage.say("nothing is proposed", "warn")
        self._ask(question, lambda client: client.run_rebalance(proposal), told)

    # -- inside -------------------------------------------------------------------------

    def _here(self, listing: Listing[str, Thing], what: str) -> Thing | None:
        """What is under the cursor of a list."""
        rows = listing.chosen()
        if not rows:
            self._stage.say(f"no {what} here", "warn")
        return rows[0] if rows else None

    def _ask(
        self,
        question: Callable[[], confirm.Question | None],
        order: Callable[[Client], Thing],
        said: Callable[[Thing], str],
    ) -> None:
        """Do something once it is confirmed."""

        def told(answer: Thing | Failure) -> None:
            if isinstance(answer, (Refused, Unreachable)):
                self._stage.say(sentence(answer), "bad")
            else:
                self._done(said(answer))

        def answered(yes: str | None) -> None:
            if yes is not None:
                self._stage.desk.ask(order, told)

        first = question()
        if first is not None:
            self._stage.push_screen(Ask(question, first), answered)

    def _done(self, said: str) -> None:
        """Say so, and show how things are now."""
        self._stage.say(said, "good")
        self._stage.refresh_view()

    def _quota_set(self, view: QuotaView) -> None:
        self._done(f"quota of {view.scope} {plain(view.name, 60)} set")
