"""Route of the job table, a list of jobs that has only the columns that the client requests."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.api.views.job_table import COLUMNS, Read, Source
from controller.core.model.job import Job
from controller.core.state.job_and_node_rows import RowDecoder, load_job
from wire.api.job_selection import ArrayElements, InvalidSelection, JobLabel, parse_selection
from wire.api.job_table import JobTable

MOST_ROWS = 100_000
"""The most rows of one answer."""
AT_ONCE = 2_000
"""The number of rows that are built without a break. In the break, the event loop serves other requests."""
MOST_WORDS = 10_000


async def table(call: Call) -> JobTable:
    """List jobs in a table that has only the requested columns.

    1. Without `job`, take the jobs that have not ended. With `since`, also take the jobs that have ended
       since that time. Ended jobs that have left the memory come from the store.
    2. With `job`, take these jobs and the elements of these arrays, ended or not. Unknown jobs are left out.
    3. Of these jobs, keep those of the requested users, queues and projects, with the requested labels, that
       were submitted at or before `until`.
    """
    query = call.query
    columns: tuple[str, ...] = query["column"]
    if not columns:
        raise rejected("invalid", "no column is named", "column")
    await call.daemon.settled()
    found = await _named(call, query["job"]) if query["job"] else await _since(call, query["since"])
    users, queues, projects = (frozenset(query[name]) for name in ("user", "queue", "project"))
    labels = [_label(word) for word in query["label"] or ()]
    until = query["until"]
    jobs = [
        job
        for job in found
        if (not users or job.user in users)
        and (not queues or job.spec.queue in queues)
        and (not projects or job.spec.project in projects)
        and all(job.spec.labels.get(key) == value for key, value in labels)
        and (until is None or job.submitted_at <= until)
    ]
    more = len(jobs) > MOST_ROWS
    jobs.sort(key=lambda job: job.id)
    rows = await _rows(call, jobs[-MOST_ROWS:], tuple(COLUMNS[name] for name in columns))
    daemon = call.daemon
    return JobTable(columns, rows, daemon.now(), daemon.config.cluster.name, daemon.seq, more)


def _label(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise rejected("invalid", f"{word!r} is not KEY=VALUE", "label", "Write label=app=db.")
    return key, value


async def _rows(call: Call, jobs: list[Job], reads: tuple[Read, ...]) -> tuple[tuple[Any, ...], ...]:
    agents = call.daemon.agents
    source = Source(call.daemon.engine, agents.running_usage.of, agents.running_steps.of)
    rows: list[tuple[Any, ...]] = []
    # Convert fewer jobs at a time if the steps are requested, because a job may have a hundred steps.
    at_once = AT_ONCE // 50 if COLUMNS["steps"] in reads else AT_ONCE
    for begin in range(0, len(jobs), at_once):
        if begin:
            await asyncio.sleep(0)
        rows += [tuple([read(source, job) for read in reads]) for job in jobs[begin : begin + at_once]]
    return tuple(rows)


async def _since(call: Call, since: int | None) -> list[Job]:
    daemon = call.daemon
    known = daemon.state.jobs
    if since is None:
        return [job for job in known.values() if not job.state.terminal]
    found = [job for job in known.values() if job.ended_at is None or job.ended_at >= since]
    if daemon.state.forgot:
        store, decoder = daemon.store, RowDecoder()
        rows = await daemon.read(lambda: store.jobs_ended_since(since, MOST_ROWS))
        found += [load_job(row, decoder) for row in rows if row.id not in known]
    return found


async def _named(call: Call, words: tuple[str, ...]) -> list[Job]:
    if len(words) > MOST_WORDS:
        raise rejected("invalid", f"may be given at most {MOST_WORDS:,} times", "job")
    found: dict[int, Job] = {}
    for word in words:
        try:
            selection = parse_selection(word)
        except InvalidSelection as unreadable:
            raise rejected("invalid", str(unreadable), "job", unreadable.hint) from None
        if isinstance(selection, ArrayElements):
            wanted = set(selection.indices)
            elements = await _elements(call, selection.array)
            found.update((job.id, job) for job in elements if job.index in wanted)
        elif isinstance(selection, JobLabel):
            for job in await _labelled(call, selection):
                found[job.id] = job
        else:
            raise rejected("invalid", f"{word!r} is not a job; write 7, 7_3 or 7_[0-9]", "job")
    return list(found.values())


async def _labelled(call: Call, label: JobLabel) -> list[Job]:
    """Return a list with the job of this display id (17 or 12_3), or with all elements if it is the id of an
    array. The list is empty if there is no such job.
    """
    if label.is_id and (elements := await _elements(call, int(label.text))):
        return elements
    try:
        return [await call.find(label.text)]
    except Rejected:
        return []


async def _elements(call: Call, array: int) -> list[Job]:
    state = call.daemon.state
    known = [state.jobs[job] for job in state.arrays.get(array, {}).values()]
    if known or state.forgot:
        present = {job.id for job in known}
        known += [job for job in await call.ended_of_array(array) if job.id not in present]
    return known
