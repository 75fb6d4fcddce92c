"""Finds the notices that a job requests as mail: Slurm's options --mail-user and --mail-type.

`mail_types` of a job names the events about which the job requests mail. An array without ARRAY_TASKS causes
one mail when its first element starts, and one mail when its last element has ended, as in Slurm.
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
    """Return the kinds of notices (such as mine.failed) about this event that the job requests as mail; empty
    if it requests none.
    """
    if not isinstance(event, JobPlaced | JobEnded | JobRequeued | DependencyDecided):
        return NO_MAIL
    job = state.jobs.get(event.job)
    if job is None or not job.spec.mail_types:
        return NO_MAIL
    return frozenset(_words(event, job, state))


def _words(event: Event, job: Job, state: State) -> Iterator[str]:
    types = job.spec.mail_types
    if isinstance(event, JobRequeued) and "REQUEUE" in types:
        yield "mine.requeued"
    elif isinstance(event, DependencyDecided) and "INVALID_DEPEND" in types:
        yield "mine.dependency"
    elif isinstance(event, JobPlaced) and "BEGIN" in types and _is_first(event, job, state):
        yield "mine.started"
    elif isinstance(event, JobEnded) and _is_last(event, job, state):
        if "END" in types:
            yield "mine.ended"
        if "FAIL" in types or ("TIME_LIMIT" in types and event.reason is Reason.TIME_LIMIT):
            yield "mine.failed"
            if any(each.state is JobState.FAILED for each in _others(job, state)):
                # Another element of the array has failed, but this last element may have completed. So also
                # yield the kind for an end without failure.
                yield "mine.ended"


def _is_first(event: JobPlaced, job: Job, state: State) -> bool:
    """Return whether the job is the first started element of its array. If several elements start in one
    commit, the element with the lowest id is the first.
    """
    return not any(
        each.attempt > 1 or (each.attempt == 1 and (each.placed_at or 0.0, each.id) < (event.at, job.id))
        for each in _others(job, state)
    )


def _is_last(event: JobEnded, job: Job, state: State) -> bool:
    """Return whether the job is the last ended element of its array: all other elements have already
    ended.
    """
    return all(
        each.state.terminal and (each.ended_at or 0.0, each.id) < (event.at, job.id)
        for each in _others(job, state)
    )


def _others(job: Job, state: State) -> Iterator[Job]:
    """Yield the other elements of the job's array that are in memory, the last element first. Yield nothing
    if each element gets mail of its own (ARRAY_TASKS).
    """
    if job.array is not None and "ARRAY_TASKS" not in job.spec.mail_types:
        for number in reversed(state.arrays.get(job.array, {}).values()):
            if number != job.id and number in state.jobs:
                yield state.jobs[number]
