"""Names that a form offers to the user: queues, projects, GPU models, nodes, users and reservations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tui.data.lists.cluster_lists import natural_sort_key
from tui.data.model import ClusterModel
from wire.cluster.quota import SCOPES
from wire.http.client import Client, Refused, Unreachable
from wire.names import PRIORITIES


@dataclass(frozen=True)
class ControllerNames:
    """The names of queues, projects and reservations that only the controller knows completely."""

    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()


def names_of_controller(client: Client) -> ControllerNames:
    """Request the names from the controller. A kind of names is empty if its request fails."""
    return ControllerNames(
        _names(lambda: [each.name for each in client.queues().queues]),
        _names(lambda: [each.name for each in client.projects().projects]),
        _names(lambda: [each.spec.name for each in client.reservations().reservations]),
    )


def _names(ask: Callable[[], list[str]]) -> tuple[str, ...]:
    try:
        return tuple(ask())
    except (Refused, Unreachable):
        return ()


def known_names(
    kind: str, model: ClusterModel, asked: ControllerNames, typed: Mapping[str, str]
) -> list[str]:
    """Return the known names of a kind, such as "queue", in alphabetical order; priority classes are in the
    order of priority. `typed` has the texts of the form, because the kind "tenant" means users, projects or
    queues, as another field of the form says.
    """
    kind = typed.get("of", "") if kind == "tenant" else kind
    if kind == "priority":
        return [name.lower() for name in PRIORITIES]
    if kind == "scope":
        return list(SCOPES)
    jobs, nodes = model.jobs.rows.values(), model.nodes.rows.values()
    match kind:
        case "queue":
            found = {*asked.queues, *(job.queue for job in jobs)}
        case "project":
            found = {*asked.projects, *(job.project for job in jobs)}
        case "user":
            found = {job.user for job in jobs}
        case "node":
            found = {node.name for node in nodes}
        case "model":
            found = {gpu.model for node in nodes for gpu in node.gpus}
        case "reservation":
            found = set(asked.reservations)
        case _:
            found = set()
    return sorted(found - {""}, key=natural_sort_key)


def matching(names: Sequence[str], text: str, *, several: bool) -> list[str]:
    """Return the names that begin with the text. If there is none, return the names that contain the text.
    With `several`, compare only the last word of the text, because the field takes several names.
    """
    word = text.rpartition(" ")[2] if several else text.strip()
    begin = [name for name in names if name.casefold().startswith(word.casefold())]
    return begin or [name for name in names if word.casefold() in name.casefold()]


def completed(text: str, name: str, *, several: bool) -> str:
    """Return the text with the name in place of its last word (`several`) or of the whole text."""
    head, space, _ = text.rpartition(" ") if several else ("", "", "")
    return f"{head}{space}{name}"
