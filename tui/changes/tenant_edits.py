"""Actions that change shares, quotas and reservations, or move running jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from tui.actions import PLAN
from tui.app_interface import AppInterface
from tui.changes import confirmations
from tui.changes.confirmed_request import confirm_and_send
from tui.data.lists.listing import Listing
from tui.data.lists.move_lists import MoveRow
from tui.data.request_workers import Failure, failure_text
from tui.dialogs.form_dialog import FormDialog
from tui.dialogs.menu import Menu, MenuEntry
from tui.forms import quota, reservation, share
from wire.api.policy.quotas import QuotaView
from wire.api.policy.rebalance import Rebalanced
from wire.api.policy.reservations import ReservationView
from wire.api.policy.shares import ShareView
from wire.http.client import Client, Refused, Unreachable
from wire.text import counted, printable

Thing = TypeVar("Thing")


class TenantEdits:
    """One method for each action of the user. Most methods change the tenant, quota or reservation under the
    cursor, or carry out the proposed moves under the cursor.
    """

    def __init__(self, app: AppInterface) -> None:
        self._app = app

    def edit_share(self) -> None:
        """Open the form of the share under the cursor. In the view Plan, let the user choose a share."""
        if self._app.view.NAME == PLAN:
            self._choose_share()
            return
        row = self._here(self._app.model.shares, "share")
        if row is not None:
            self._edit_share(row)

    def _edit_share(self, row: ShareView) -> None:
        message = f"share of {printable(row.share, 60)} set"
        self._app.push_screen(FormDialog(share.edit(row), lambda _: self._done(message)))

    def _choose_share(self) -> None:
        self._choose(
            "Change a share",
            lambda client: client.shares().shares,
            lambda row: MenuEntry(row.share, row.share, f"weight {row.weight:g}"),
            self._edit_share,
        )

    def _choose_quota(self) -> None:
        self._choose(
            "Change a quota",
            lambda client: client.quotas().quotas,
            lambda row: MenuEntry(f"{row.scope} {row.name}", f"{row.scope} {row.name}"),
            lambda row: self._app.push_screen(FormDialog(quota.edit(row), self._quota_set)),
        )

    def _choose(
        self,
        title: str,
        ask: Callable[[Client], Sequence[Thing]],
        entry: Callable[[Thing], MenuEntry],
        then: Callable[[Thing], object],
    ) -> None:
        """Request rows, such as quotas, from the controller. Let the user choose one of them in a menu, and
        call `then` with this row.
        """

        by_name: dict[str, Thing] = {}

        def picked(name: str | None) -> None:
            if name:
                then(by_name[name])

        def answered(rows: Sequence[Thing] | Failure) -> None:
            if isinstance(rows, (Refused, Unreachable)):
                self._app.show_message(failure_text(rows), "bad")
                return
            by_name.update((entry(row).name, row) for row in rows)
            if by_name:
                self._app.push_screen(Menu(title, [entry(row) for row in rows], search=True), picked)
            else:
                self._app.show_message(f"{title.lower()}: there is none", "warn")

        self._app.requests.ask(ask, answered)

    def new_quota(self) -> None:
        """Open the form that sets a quota for a user, project or queue without a quota."""
        self._app.push_screen(FormDialog(quota.new(), self._quota_set))

    def edit_quota(self) -> None:
        """Open the form of the quota under the cursor. In the view Plan, let the user choose a quota."""
        if self._app.view.NAME == PLAN:
            self._choose_quota()
            return
        row = self._here(self._app.model.quotas, "quota")
        if row is not None:
            self._app.push_screen(FormDialog(quota.edit(row), self._quota_set))

    def unset_quota(self) -> None:
        """Ask the user to confirm, then remove the limits that were set for the quota under the cursor."""
        row = self._here(self._app.model.quotas, "quota")
        if row is not None and not row.edited:
            self._app.show_message("nothing to unset: these limits are those of scheduler.toml", "warn")
        elif row is not None:
            self._ask(
                lambda: confirmations.unset_quota(row),
                lambda client: client.unset_quota(row.scope, row.name),
                lambda _: f"quota of {row.scope} {printable(row.name, 60)} unset",
            )

    def new_reservation(self, typed: Mapping[str, str] = MappingProxyType({})) -> None:
        """Open the form of a new reservation. `typed` has the initial texts of some fields of the form, by
        field name.
        """

        def made(view: ReservationView) -> None:
            self._app.model.reservations.put((view,))
            self._app.model.reservations.follow(view.spec.name)
            nodes = counted(len(view.nodes), "node")
            self._done(f"reservation {printable(view.spec.name, 60)}: {nodes} reserved")

        form = reservation.new(self._app.model.now)
        fields = tuple(replace(field, default=typed.get(field.name, field.default)) for field in form.fields)
        self._app.push_screen(FormDialog(replace(form, fields=fields), made))

    def cancel_reservation(self) -> None:
        """Ask the user to confirm, then cancel the reservation under the cursor."""
        model = self._app.model
        row = self._here(model.reservations, "reservation")
        if row is None:
            return
        name = row.spec.name

        def question() -> confirmations.Confirmation | None:
            there = model.reservations.rows.get(name)
            return confirmations.cancel_reservation(there, model.now()) if there is not None else None

        message = f"reservation {printable(name, 60)} cancelled"
        self._ask(question, lambda client: client.cancel_reservation(name), lambda _: message)

    def move(self) -> None:
        """Ask the user to confirm, then move jobs as the proposal under the cursor describes."""
        steps = self._app.model.steps
        row = self._here(steps, "proposal")
        if row is not None and row.state != "proposed":
            self._app.show_message(f"nothing to do: this move is {row.state} already", "warn")
        elif row is not None:
            self._move(lambda: [step for step in steps.rows.values() if step.key == row.key], row.key)

    def move_all(self) -> None:
        steps = self._app.model.steps
        self._move(lambda: [step for step in steps.rows.values() if step.state == "proposed"], "")

    def _move(self, steps_to_move: Callable[[], list[MoveRow]], proposal: str) -> None:
        def question() -> confirmations.Confirmation | None:
            return confirmations.move(steps_to_move()) if steps_to_move() else None

        def success(answer: Rebalanced) -> str:
            return f"{counted(len(answer.moves), 'job')} being moved"

        if question() is None:
            self._app.show_message("nothing is proposed", "warn")
        self._ask(question, lambda client: client.run_rebalance(proposal), success)

    def _here(self, listing: Listing[str, Thing], what: str) -> Thing | None:
        """Return the row under the cursor. If the list is empty, show a message and return None. `what` names
        the rows in this message, such as "quota".
        """
        rows = listing.chosen()
        if not rows:
            self._app.show_message(f"no {what} under the cursor", "warn")
        return rows[0] if rows else None

    def _ask(
        self,
        question: Callable[[], confirmations.Confirmation | None],
        send: Callable[[Client], Thing],
        success_text: Callable[[Thing], str],
    ) -> None:
        """Ask the user to confirm a change, then call `send`, which sends the request. `question` returns the
        content of the dialog; None if there is nothing left to change. `success_text` returns the message
        that is shown if the request succeeds.
        """

        def show_result(answer: Thing | Failure) -> None:
            if isinstance(answer, (Refused, Unreachable)):
                self._app.show_message(failure_text(answer), "bad")
            else:
                self._done(success_text(answer))

        confirm_and_send(self._app, question, lambda _: send, show_result)

    def _done(self, message: str) -> None:
        """Show `message` on the status line after a successful change, and update the list."""
        self._app.show_message(message, "good")
        self._app.refresh_view()

    def _quota_set(self, view: QuotaView) -> None:
        self._done(f"quota of {view.scope} {printable(view.name, 60)} set")
