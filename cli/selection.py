"""Which jobs a command is about: 7, 7_3, 7_[0-9], 1-3, last, all, --mine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from cli.complete import jobs as known_jobs
from cli.exits import NOT_FOUND, Mistake
from wire.api.jobs import JobView
from wire.client import Client
from wire.selection import Elements, Every, Label, Newest, Span, Unreadable, meaning
from wire.words import JobState

ACTIVE = tuple(state for state in JobState if not state.terminal)
PAGE = 1000

Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB",
        help="7, 7_3, 7_[0-9], 1-3, last or all.",
        autocompletion=known_jobs,
        show_default=False,
    ),
]
Job = Annotated[
    str, typer.Argument(metavar="JOB", help="7, 7_3 or last.", autocompletion=known_jobs, show_default=False)
]
Mine = Annotated[bool, typer.Option("--mine", help="Only jobs of my own; alone: all of them.")]


def select(client: Client, words: Iterable[str], mine: bool, *, ended: bool = False) -> list[JobView]:
    """The jobs that are meant, each once; ranges mean ended ones too if `ended`."""
    chosen = list(words) or (["all"] if mine else [])
    if not chosen:
        raise Mistake("no job is named", "Name jobs (7, 7_3, 1-3, last, all), or use --mine.")
    me = client.health().user if mine else ""
    found = [job for word in chosen for job in _meant(client, word, me, () if ended else ACTIVE)]
    return list({job.id: job for job in found if not me or job.user == me}.values())


def one(client: Client, word: str) -> JobView:
    """The one job that is meant."""
    meant = _understood(word)
    if isinstance(meant, Newest):
        return _last(client)
    if isinstance(meant, Label):
        return client.job(word).job
    raise Mistake(f"{word!r} is not one job", "Write an id (7), an element of an array (7_3), or last.")


def pages(
    client: Client, states: Iterable[JobState] = (), user: str = "", after: int = 0, profile: str = ""
) -> Iterator[JobView]:
    """All jobs by id, page by page."""
    place: int | None = after
    while place is not None:
        page = client.jobs(states=states, user=user, profile=profile, after=place, limit=PAGE)
        yield from page.jobs
        place = page.next


def _meant(client: Client, word: str, user: str, states: tuple[JobState, ...]) -> Iterable[JobView]:
    match _understood(word):
        case Every():
            return pages(client, ACTIVE, user)
        case Span(low, high):
            return _range(client, low, high, user, states)
        case Elements(array, indices):
            return _elements(client, array, indices)
        case Label() as label if label.is_id:
            job = client.job(word).job
            # An array is called by the id of its first element, whose own name is 7_0.
            return _array(client, job.id) if job.array == job.id else [job]
    return [one(client, word)]


def _understood(word: str) -> Label | Elements | Span | Every | Newest:
    try:
        return meaning(word)
    except Unreadable as unreadable:
        raise Mistake(str(unreadable), unreadable.hint) from None


def _range(client: Client, low: int, high: int, user: str, states: tuple[JobState, ...]) -> Iterator[JobView]:
    for job in pages(client, states, user, after=max(low - 1, 0)):
        if job.id > high:
            return
        yield job


def _elements(client: Client, array: int, indices: tuple[int, ...]) -> list[JobView]:
    known = {job.index: job for job in _array(client, array)}
    missing = [index for index in indices if index not in known]
    if missing:
        raise Mistake(f"there is no job {array}_{missing[0]}", "'corral queue --all' lists jobs.", NOT_FOUND)
    return [known[index] for index in indices]


def _array(client: Client, array: int) -> Iterator[JobView]:
    for job in pages(client, after=max(array - 1, 0)):
        if job.array != array:
            return
        yield job


def _last(client: Client) -> JobView:
    """The newest job of this user, found by halving: the API lists upwards only."""
    me = client.health().user

    def first_after(place: int) -> JobView | None:
        return next(iter(client.jobs(user=me, after=place, limit=1).jobs), None)

    newest = first_after(0)
    if newest is None:
        raise Mistake("you have no job yet", "Submit one: corral submit -- hostname", NOT_FOUND)
    step = 1
    while (job := first_after(newest.id + step - 1)) is not None:
        newest, step = job, step * 2
    while step > 1:
        step //= 2
        newest = first_after(newest.id + step - 1) or newest
    return newest
