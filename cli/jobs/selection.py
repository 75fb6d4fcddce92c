"""Selects the jobs that a command's arguments name: 7, 7_3, 7_[0-9], 1-3, user:ada, last, all, --mine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Protocol, TypeVar

from cli.completion import jobs as known_jobs
from cli.exit_codes import NOT_FOUND, CommandError
from cli.flags import argument, switch
from wire.api.job_selection import (
    AllJobs,
    ArrayElements,
    InvalidSelection,
    JobLabel,
    JobRange,
    JobsOf,
    NewestJob,
    Selection,
    parse_selection,
)
from wire.api.jobs import JobView
from wire.http.client import Client
from wire.names import SHOWN_STATES, JobState

ACTIVE = tuple(state for state in SHOWN_STATES if not state.terminal)
PAGE = 1000

Jobs = Annotated[
    list[str],
    argument(
        "JOB",
        "Jobs, for example 7 (an id), 7_3 or 7_[0-9] (elements of an array), 1-3 (a range of ids), user:ada"
        " or project:vision (all jobs of a user or project), name:'sweep-*' (all jobs whose names match the"
        " pattern), last (your newest job), or all.",
        autocompletion=known_jobs,
    ),
]
Job = Annotated[
    str,
    argument(
        "JOB",
        "Job, for example 7 (an id), 7_3 (an element of an array), or last (your newest job).",
        autocompletion=known_jobs,
    ),
]
Mine = Annotated[bool, switch("--mine", "Select only your jobs. Without job ids: all your active jobs.")]
Yes = Annotated[
    bool,
    switch("--yes -y", "Do not ask for confirmation if 'all' or a range of ids selects jobs of other users."),
]


def select(client: Client, words: Iterable[str], mine: bool, *, ended: bool = False) -> list[JobView]:
    """Return the jobs that `words`, such as 7 or user:ada, select, each once. With `mine`, return only jobs
    of the user that runs the command; with `mine` and no words, all active jobs of this user. With `ended`, a
    range such as 1-9 includes ended jobs.
    """
    chosen = list(words) or (["all"] if mine else [])
    if not chosen:
        raise CommandError("no job is named", "Name jobs (7, 7_3, 1-3, last, all), or use --mine.")
    me = client.health().user if mine else ""
    found = [job for word in chosen for job in _jobs_of(client, word, me, () if ended else ACTIVE)]
    return list({job.id: job for job in found if not me or job.user == me}.values())


def select_one(client: Client, word: str) -> JobView:
    """Return the job that `word` (7, 7_3 or last) selects. Raise CommandError for any other word."""
    selection = _parsed(word)
    if isinstance(selection, NewestJob):
        return _last(client)
    if isinstance(selection, JobLabel):
        return client.job(word).job
    raise CommandError(f"{word!r} is not one job", "Write an id (7), an element of an array (7_3), or last.")


def pages(
    client: Client,
    states: Iterable[JobState] = (),
    user: str = "",
    after: int = 0,
    profile: str = "",
    *,
    folded: bool = False,
) -> Iterator[JobView]:
    """Yield the jobs with one of these states, this user and this scheduler profile, in the order of their
    ids, starting after the id `after`. An empty `states`, `user` or `profile` selects all jobs. With
    `folded`, leave out the jobs of workloads and arrays. The job list is requested page by page.
    """
    place: int | None = after
    while place is not None:
        page = client.jobs(states=states, user=user, profile=profile, after=place, limit=PAGE, folded=folded)
        yield from page.jobs
        place = page.next


def _jobs_of(client: Client, word: str, user: str, states: tuple[JobState, ...]) -> Iterable[JobView]:
    match _parsed(word):
        case AllJobs():
            return pages(client, ACTIVE, user)
        case JobsOf() as of:
            return (job for job in pages(client, ACTIVE, user) if of.matches(job.user, job.project, job.name))
        case JobRange(low, high):
            return _range(client, low, high, user, states)
        case ArrayElements(array, indices):
            return _elements(client, array, indices)
        case JobLabel() as label if label.is_id:
            job = client.job(word).job
            # The id of an array is also the id of its first element. In a selection, 7 means the whole array,
            # and 7_0 the first element.
            return _array(client, job.id) if job.array == job.id else [job]
    return [select_one(client, word)]


def _parsed(word: str) -> Selection:
    try:
        return parse_selection(word)
    except InvalidSelection as unreadable:
        raise CommandError(str(unreadable), unreadable.hint) from None


def _range(client: Client, low: int, high: int, user: str, states: tuple[JobState, ...]) -> Iterator[JobView]:
    for job in pages(client, states, user, after=max(low - 1, 0)):
        if job.id > high:
            return
        yield job


def _elements(client: Client, array: int, indices: tuple[int, ...]) -> list[JobView]:
    known = {job.index: job for job in _array(client, array)}
    missing = [index for index in indices if index not in known]
    if missing:
        raise CommandError(
            f"there is no job {array}_{missing[0]}", "'corral queue --all' lists jobs.", NOT_FOUND
        )
    return [known[index] for index in indices]


def _array(client: Client, array: int) -> Iterator[JobView]:
    for job in pages(client, after=max(array - 1, 0)):
        if job.array != array:
            return
        yield job


def _last(client: Client) -> JobView:
    """Return the newest job of the user that runs the command."""
    me = client.health().user
    found = newest(lambda place: next(iter(client.jobs(user=me, after=place, limit=1).jobs), None))
    if found is None:
        raise CommandError("you have no job yet", "Submit one: corral submit -- hostname", NOT_FOUND)
    return found


class _Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


def newest(first_after: Callable[[int], N | None]) -> N | None:
    """Return the object with the highest id; None if there is none. `first_after` returns the first object
    with an id above its argument. The API lists objects only by ascending id, so search with steps that first
    double and then halve.
    """
    found = first_after(0)
    if found is None:
        return None
    step = 1
    while (later := first_after(found.id + step - 1)) is not None:
        found, step = later, step * 2
    while step > 1:
        step //= 2
        found = first_after(found.id + step - 1) or found
    return found
