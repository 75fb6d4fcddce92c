"""Making and ending reservations: which nodes, whether they can be had, and when their time has come."""

from __future__ import annotations

from collections.abc import Callable

from controller.core import inputs
from controller.core.events import (
    Event,
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.inputs import DONE, Refusal, Reply
from controller.core.jobs import NEVER
from controller.core.nodes import Node
from controller.core.reservations import Reservation
from controller.core.state import State
from wire.reservation import ReservationSpec, problems
from wire.text import counted, duration, plain
from wire.words import NodeState

AHEAD = 400
"""Occurrences looked at when two recurring reservations are held against each other."""

Record = Callable[[Event], None]


def reserve(state: State, given: inputs.Reserve, now: float, record: Record) -> Reply:
    """Make a reservation, if nodes can be had for it."""
    spec = given.spec
    wrong = problems(spec)
    if wrong:
        return Refusal("invalid", wrong[0][1], wrong[0][0])
    if spec.name in state.reservations.by_name:
        message = f"there is a reservation {plain(spec.name)!r} already"
        return Refusal("conflict", message, "name", "Take another name, or cancel it first.")
    if spec.starts_at + spec.duration_s <= now:
        return Refusal("invalid", "is over before it is made", "starts_at")
    nodes = _named(state, spec) if spec.nodes else _chosen(state, spec)
    if isinstance(nodes, Refusal):
        return nodes
    busy = None if given.anyway else _busy(state, spec, nodes)
    if busy is not None:
        return busy
    record(ReservationMade(now, spec, tuple(node.name for node in nodes), given.by))
    turn_due(state, now, record)
    return DONE


def cancel(state: State, given: inputs.CancelReservation, now: float, record: Record) -> Reply:
    """Give the nodes back to everybody."""
    if given.reservation not in state.reservations.by_name:
        message = f"there is no reservation {plain(given.reservation)!r}"
        return Refusal("not_found", message, "reservation", "'corral reserve list' shows what there is.")
    record(ReservationCancelled(now, given.reservation, given.by))
    return DONE


def turn_due(state: State, now: float, record: Record) -> None:
    """Before a cycle: begin and end what is due."""
    reservations = state.reservations
    while reservations.next_at <= now:
        each = min(reservations, key=lambda one: (one.turns_at, one.spec.name))
        if each.began:
            record(ReservationEnded(now, each.spec.name, each.again_at(now)))
        else:
            record(ReservationBegan(now, each.spec.name))


def _named(state: State, spec: ReservationSpec) -> list[Node] | Refusal:
    nodes = []
    for name in dict.fromkeys(spec.nodes):
        node = state.nodes.get(name)
        if node is None:
            message = f"there is no node {plain(name)!r}"
            return Refusal("not_found", message, "nodes", "'corral nodes' shows what there is.")
        other = _in_the_way(state, spec, node)
        if other is not None:
            message = f"node {plain(name)} is kept by reservation {plain(other.spec.name)!r} at that time"
            return Refusal("conflict", message, "nodes", "Take another time or node, or cancel that one.")
        nodes.append(node)
    return nodes


def _chosen(state: State, spec: ReservationSpec) -> list[Node] | Refusal:
    """Nodes that are free soonest, as many as it takes."""
    labels = state.nodes.columns.labels
    fitting = [
        node
        for node in state.nodes.rows
        if node.state is NodeState.UP
        and all(labels[node.row].get(key) == value for key, value in spec.selector.items())
        and (spec.gpus is None or node.facts.gpus)
        and _in_the_way(state, spec, node) is None
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
        message = f"only {counted(len(fitting), 'node')} with {counted(gpus, 'GPU')} can be kept then"
        return Refusal("conflict", message, where, "Ask for less, another time, or without a selector.")
    return sorted(chosen, key=lambda node: node.name)


def _in_the_way(state: State, spec: ReservationSpec, node: Node) -> Reservation | None:
    """Another reservation that keeps the node at the same time; maintenance comes over everything."""
    if spec.maintenance:
        return None
    mine = Reservation(spec, (), spec.starts_at, "")
    for each in state.reservations:
        if node.name in each.nodes and _meet(mine, each):
            return each
    return None


def _meet(one: Reservation, other: Reservation) -> bool:
    if other.spec.every_s is None:
        return one.meets(other.starts_at, other.ends_at)
    turns = range(AHEAD if one.spec.every_s is not None else 1)
    starts = (one.starts_at + turn * (one.spec.every_s or 0.0) for turn in turns)
    return any(other.meets(start, start + one.spec.duration_s) for start in starts)


def _free_at(state: State, spec: ReservationSpec, node: Node) -> float:
    """When the jobs on the node that may not run in the reservation are over at the latest."""
    mine = Reservation(spec, (), spec.starts_at, "")
    jobs = (state.jobs[number] for number in node.held)
    ends = (job.expected_end for job in jobs if not mine.admits(job.user, job.spec.project))
    return max(ends, default=0.0)


def _busy(state: State, spec: ReservationSpec, nodes: list[Node]) -> Refusal | None:
    mine = Reservation(spec, (), spec.starts_at, "")
    for node in nodes:
        for number in sorted(node.held):
            job = state.jobs[number]
            if not mine.admits(job.user, job.spec.project) and job.expected_end > spec.starts_at:
                over = job.expected_end - spec.starts_at
                how = "has no time limit" if over == NEVER else f"may run {duration(over)} into it"
                return Refusal(
                    "conflict",
                    f"job {job.label} on node {plain(node.name)} {how}",
                    "nodes",
                    "Take a later time or other nodes, or reserve anyway: the job then runs on.",
                )
    return None
