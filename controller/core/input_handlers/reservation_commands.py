"""Handles the commands of operators on advance reservations. Begins and ends reservations at their times."""

from __future__ import annotations

from controller.core.cluster.node import Node
from controller.core.input_handlers.context import Context
from controller.core.model.decision.decision import DONE, Refusal, Reply
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.inputs import policy_inputs
from controller.core.model.job import NEVER
from controller.core.reservations.reservations import Reservation
from controller.core.state.state import State
from wire.cluster.reservation import ReservationSpec, reservation_problems
from wire.names import NodeState
from wire.text import counted, duration, printable

MAX_OCCURRENCES = 400
"""To find an overlap of two recurring reservations, this many occurrences of the new reservation are compared
with the other one.
"""


class ReservationCommands:
    """Makes, begins, ends and cancels advance reservations of nodes.

    The nodes of a reservation
    1. A reservation that names nodes gets these nodes. It is refused if another reservation has one of these
       nodes at the same time.
    2. A reservation for a number of nodes or GPUs gets the nodes that become free first (`_chosen`). Of
       several nodes that become free at the same time, it gets the nodes with the fewest jobs. If these
       numbers are equal too, it gets the first nodes by name.
    3. A reservation is refused if a job that it does not admit could still run on its nodes when the
       reservation begins. With `anyway`, the reservation is made all the same. Replicas of services do not
       count, because replicas leave the nodes in time.

    Cost: O(nodes log nodes + reservations * nodes) to make a reservation; O(reservations) when one begins or
    ends.
    """

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._record = context.record

    def reserve(self, given: policy_inputs.Reserve, now: float) -> Reply:
        spec, state = given.spec, self._state
        wrong = reservation_problems(spec)
        if wrong:
            return Refusal("invalid", wrong[0][1], wrong[0][0])
        if spec.name in state.reservations.by_name:
            message = f"there is a reservation {printable(spec.name)!r} already"
            return Refusal("conflict", message, "name", "Choose another name, or cancel that reservation.")
        if spec.starts_at + spec.duration_s <= now:
            return Refusal("invalid", "the reservation would end in the past", "starts_at")
        nodes = _named(state, spec) if spec.nodes else _chosen(state, spec)
        if isinstance(nodes, Refusal):
            return nodes
        busy = None if given.anyway else _busy(state, spec, nodes)
        if busy is not None:
            return busy
        self._record(ReservationMade(now, spec, tuple(node.name for node in nodes), given.by))
        self.begin_and_end_due(now)
        return DONE

    def cancel(self, given: policy_inputs.CancelReservation, now: float) -> Reply:
        """Cancel a reservation and all its later occurrences."""
        if given.reservation not in self._state.reservations.by_name:
            message = f"there is no reservation {printable(given.reservation)!r}"
            return Refusal(
                "not_found", message, "reservation", "'corral reserve list' shows the reservations."
            )
        self._record(ReservationCancelled(now, given.reservation, given.by))
        return DONE

    def begin_and_end_due(self, now: float) -> None:
        """Begin and end the reservations that are due. The engine calls this before each scheduling cycle."""
        reservations = self._state.reservations
        while reservations.next_at <= now:
            each = min(reservations.by_name.values(), key=lambda one: (one.next_change, one.spec.name))
            if each.began:
                self._record(ReservationEnded(now, each.spec.name, each.next_start(now)))
            else:
                self._record(ReservationBegan(now, each.spec.name))


def _named(state: State, spec: ReservationSpec) -> list[Node] | Refusal:
    nodes = []
    for name in dict.fromkeys(spec.nodes):
        node = state.nodes.get(name)
        if node is None:
            message = f"there is no node {printable(name)!r}"
            return Refusal("not_found", message, "nodes", "'corral nodes' shows the nodes.")
        other = _overlapping(state, spec, node)
        if other is not None:
            message = f"node {printable(name)} has reservation {printable(other.spec.name)!r} at that time"
            hint = "Choose another time or node, or cancel that reservation."
            return Refusal("conflict", message, "nodes", hint)
        nodes.append(node)
    return nodes


def _chosen(state: State, spec: ReservationSpec) -> list[Node] | Refusal:
    """Return the nodes for a reservation of a number of nodes or GPUs: the connected, undrained nodes that
    become free first. Return a refusal if too few nodes can be reserved.
    """
    labels = state.nodes.columns.labels
    fitting = [
        node
        for node in state.nodes.rows
        if node.state is NodeState.UP
        and all(labels[node.row].get(key) == value for key, value in spec.selector.items())
        and (spec.gpus is None or node.facts.gpus)
        and _overlapping(state, spec, node) is None
    ]
    fitting.sort(
        key=lambda node: (max(_free_at(state, spec, node), spec.starts_at), len(node.held), node.name)
    )
    chosen: list[Node] = []
    gpus = 0
    for node in fitting:
        if len(chosen) >= (spec.count or 0) and gpus >= (spec.gpus or 0):
            break
        chosen.append(node)
        gpus += len(node.facts.gpus)
    if len(chosen) < (spec.count or 0) or gpus < (spec.gpus or 0):
        where = "gpus" if spec.count is None else "count"
        message = f"only {counted(len(fitting), 'node')} with {counted(gpus, 'GPU')} can be reserved then"
        return Refusal("conflict", message, where, "Ask for less, another time, or without a selector.")
    return sorted(chosen, key=lambda node: node.name)


def _overlapping(state: State, spec: ReservationSpec, node: Node) -> Reservation | None:
    """Return another reservation of the node that overlaps in time with the new reservation `spec`. Return
    None if there is none.

    If `spec` is a maintenance reservation, return None, because a maintenance reservation may overlap with
    others.
    """
    if spec.maintenance:
        return None
    mine = Reservation(spec, (), spec.starts_at, "")
    for each in state.reservations.by_name.values():
        if node.name in each.nodes and _meet(mine, each):
            return each
    return None


def _meet(one: Reservation, other: Reservation) -> bool:
    if other.spec.every_s is None:
        return one.overlaps(other.starts_at, other.ends_at)
    turns = range(MAX_OCCURRENCES if one.spec.every_s is not None else 1)
    starts = (one.starts_at + turn * (one.spec.every_s or 0.0) for turn in turns)
    return any(other.overlaps(start, start + one.spec.duration_s) for start in starts)


def _free_at(state: State, spec: ReservationSpec, node: Node) -> float:
    """Return the time at which the node is free for the reservation `spec`: the latest end, by time limit, of
    the node's jobs that the reservation does not admit. Return NEVER if such a job has no time limit, and 0
    if there are no such jobs.
    """
    mine = Reservation(spec, (), spec.starts_at, "")
    jobs = (state.jobs[number] for number in node.held)
    ends = (job.latest_end for job in jobs if not mine.admits(job.user, job.spec.project))
    return max(ends, default=0.0)


def _busy(state: State, spec: ReservationSpec, nodes: list[Node]) -> Refusal | None:
    mine = Reservation(spec, (), spec.starts_at, "")
    for node in nodes:
        for number in sorted(node.held):
            job = state.jobs[number]
            if job.replica is not None:
                # Skip a replica of a service, because it moves to another node before the reservation begins.
                continue
            if not mine.admits(job.user, job.spec.project) and job.latest_end > spec.starts_at:
                over = job.latest_end - spec.starts_at
                how = "has no time limit" if over == NEVER else f"may run {duration(over)} into it"
                return Refusal(
                    "conflict",
                    f"job {job.label} on node {printable(node.name)} {how}",
                    "nodes",
                    "Take a later time or other nodes, or reserve anyway: the job then runs on.",
                )
    return None
