"""Finds the notices that a job wants as mail: the options --mail-user and --mail-type of Slurm.

A job gets mail about the events in its `mail_types`. For an array without ARRAY_TASKS there is one mail when its
first element starts, and one when its last element has ended, as in Slurm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.core.model.events.attempts import JobEnded, JobPlaced, JobRequeued
from controller.core.model.events.event import Event
from controller.core.model.events.queued import DependencyDecided
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.names import JobState, Reason

NO_MAIL: Final[frozenset[str]] = frozenset()


def mail_words_of(event: Event, state: State) -> frozenset[str]:
    """Return the words of the notices about this event that its job wants as mail; empty if it wants none."""
    if not isinstance(event, JobPlaced | JobEnded | JobRequeued | DependencyDecided):
        return NO_MAIL
    job = state.jobs.get(event.job)
    if job is None or not job.spec.mail_types:
        return NO_MAIL
    types = job.spec.mail_types
    whole = job.array is not None and "ARRAY_TASKS" not in types
    return frozenset(_words(event, job, types, list(_others(job, state)) if whole else []))


def _words(event: Event, job: Job, types: tuple[str, ...], others: list[Job]) -> Iterator[str]:
    """Yield the words of notices about this event. `others` are the other elements of the job's array, if the
    array has one mail for all of them.
    """
    if isinstance(event, JobPlaced) and "BEGIN" in types:
        if not any(each.attempt for each in others):
            yield "mine.started"
    elif isinstance(event, JobRequeued) and "REQUEUE" in types:
        yield "mine.requeued"
    elif isinstance(event, DependencyDecided) and "INVALID_DEPEND" in types:
        yield "mine.dependency"
    elif isinstance(event, JobEnded) and all(each.state.terminal for each in reversed(others)):
        if "END" in types:
            yield "mine.ended"
        if "FAIL" in types or ("TIME_LIMIT" in types and event.reason is Reason.TIME_LIMIT):
            yield "mine.failed"
            if any(each.state is JobState.FAILED for each in others):
                yield "mine.ended"


def _others(job: Job, state: State) -> Iterator[Job]:
    """Yield the other elements of the job's array that are in memory."""
    for number in state.arrays.get(job.array or 0, {}).values():
        if number != job.id and number in state.jobs:
            yield state.jobs[number]
