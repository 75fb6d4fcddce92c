"""Requests jobs, nodes and other objects from the controller, as JSON without classes.

Some scripts run these commands many times a second. Without the classes of wire.api the commands start in
half the time.
"""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wire.http.controllers import Controllers
from wire.http.opening import open_transport

Rows = list[dict[str, Any]]
AT_ONCE = 200
"""The greatest number of job ids in one request."""


@contextmanager
def controller() -> Iterator[Controllers]:
    """Context manager that connects to the controller that the environment names."""
    transport = open_transport()
    try:
        yield transport
    finally:
        transport.close()


def ask(transport: Controllers, path: str, query: Iterable[tuple[str, Any]] = ()) -> Any:
    """Return the answer to a GET request as JSON."""
    text = urllib.parse.urlencode(list(query))
    target = f"{path}?{text}" if text else path
    return json.loads(transport.ask("GET", target, None, (0.0,), question=True))


def cluster_name(transport: Controllers) -> str:
    """Return the name of the controller's cluster."""
    name: str = ask(transport, "/v1/cluster")["name"]
    return name


def job_rows(
    transport: Controllers,
    columns: Sequence[str],
    *,
    jobs: Iterable[str] = (),
    users: Iterable[str] = (),
    queues: Iterable[str] = (),
    projects: Iterable[str] = (),
    since: float | None = None,
    until: float | None = None,
) -> Rows:
    """Return jobs as dicts from column name to value. Each dict has these columns, and `now` and `cluster`,
    which are the same for all jobs. The arguments after `columns` select jobs; they are parameters of the
    route /v1/job-table.
    """
    query: list[tuple[str, Any]] = [("column", name) for name in dict.fromkeys(("label", *columns))]
    query += [("user", user) for user in users]
    query += [("queue", queue) for queue in queues]
    query += [("project", project) for project in projects]
    query += [] if since is None else [("since", max(0, int(since)))]
    query += [] if until is None else [("until", max(0, math.ceil(until)))]
    words = list(dict.fromkeys(jobs))
    rows: dict[str, dict[str, Any]] = {}
    # Send several requests, because the line of an HTTP request has a limit of 8 KiB, and some clients ask
    # for thousands of jobs.
    for begin in range(0, max(1, len(words)), AT_ONCE):
        chosen = [("job", word) for word in words[begin : begin + AT_ONCE]]
        table = ask(transport, "/v1/job-table", [*query, *chosen])
        names = (*table["columns"], "now", "cluster")
        same = [table["now"], table["cluster"]]
        for row in table["rows"]:
            found = dict(zip(names, row + same, strict=True))
            rows[found["label"]] = found
    return list(rows.values())
