"""A fake API server that answers with the jobs and nodes that a test puts into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.wire.http.peer import CHUNKED, Line, Peer, Request
from wire.api.job_selection import AllJobs, ArrayElements, JobRange, parse_selection
from wire.api.jobs import JobDetail, JobList, JobRefused, JobsAnswer, JobView, QueuePlace, Submitted
from wire.api.nodes import GpuList, NodeList, NodeView
from wire.api.problem import Problem
from wire.api.reasons import Why
from wire.api.service.cluster import EventList, EventView, Health
from wire.api.service.config import ConfigView
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState, Reason

ME = "ada"
T0 = 1_700_000_000.0
"""14 November 2023, 22:13:20 UTC."""


def job(number: int, **changes: Any) -> JobView:
    """Return a queued job of the user who runs the test."""
    made = JobView(
        id=number,
        label=str(number),
        name="train",
        user=ME,
        project="vision",
        queue="default",
        state=JobState.QUEUED,
        reason=Reason.RESOURCES,
        detail="",
        priority=50,
        gpus=1,
        nodes=1,
        cpu_milli=4000,
        memory_mib=16384,
        attempt=0,
        submitted_at=T0,
    )
    return replace(made, **changes)


def array(first: int, count: int, **changes: Any) -> list[JobView]:
    """All elements of an array."""
    return [
        job(first + index, label=f"{first}_{index}", array=first, index=index, **changes)
        for index in range(count)
    ]


class FakeController:
    """Jobs, nodes, events and the requests to refuse; `peer.requests` has every request."""

    def __init__(self, path: Path) -> None:
        self.jobs: dict[int, JobView] = {}
        self.places: tuple[QueuePlace, ...] = ()
        self.nodes: dict[str, NodeView] = {}
        self.events: list[EventView] = []
        self.logs = {"stdout": b"", "stderr": b""}
        self.refusals: dict[str, tuple[int, Problem]] = {}
        self.refused_jobs: dict[str, Problem] = {}
        self.peer = Peer(self._serve, path=path)
        self.url = self.peer.url

    def put(self, *jobs: JobView) -> None:
        """Add jobs, or replace them."""
        self.jobs.update({each.id: each for each in jobs})

    def asked(self, method: str = "POST") -> list[str]:
        """The paths of the requests so far."""
        return [request.target for request in self.peer.requests if request.method == method]

    def _serve(self, line: Line) -> None:
        while True:
            request = line.read()
            parts = urlsplit(request.target)
            refusal = self.refusals.get(f"{request.method} {parts.path}")
            if refusal:
                line.answer(refusal[1], refusal[0])
            elif parts.path.endswith("/logs"):
                query = parse_qs(parts.query)
                line.send(CHUNKED)
                text = self.logs[query["stream"][0]][int(query["offset"][0]) :]
                if text:
                    line.chunk(text)
                line.chunk(b"")
            else:
                body, status = self._answer(request, parts.path.strip("/").split("/")[1:], parts.query)
                line.answer(body, status)

    def _answer(self, request: Request, path: list[str], query: str) -> tuple[Any, int]:
        match path:
            case ["health"]:
                return Health("ok", "0.1.0", 5.0, len(self.events), ME, "user"), 200
            case ["jobs"] if request.method == "POST":
                return Submitted((8,), "8"), 201
            case ["jobs"]:
                return self._page(parse_qs(query)), 200
            case ["jobs", "orders"]:
                return self._carry_out(json.loads(request.body)["jobs"]), 200
            case ["jobs", name, *action]:
                found = next((each for each in self.jobs.values() if each.label == name), None)
                found = found or self.jobs.get(int(name) if name.isdigit() else -1)
                if found is None:
                    return Problem("not_found", f"there is no job {name}", "", "see corral queue --all"), 404
                spec = JobSpec(command=("python", "train.py"), name=found.name, gpus=found.gpus)
                why = Why(found.reason, "needs 1 GPU; 0 of 4 nodes can give that now", position=3)
                return (found if action else JobDetail(found, spec, why)), 200
            case ["config"]:
                return ConfigView("/etc/corral/scheduler.toml", "0123456789ab", T0, "ops"), 200
            case ["gpus"]:
                return GpuList(tuple(gpu for node in self.nodes.values() for gpu in node.gpus), 9), 200
            case ["nodes"]:
                return NodeList(tuple(self.nodes.values()), 9), 200
            case ["nodes", name, *_]:
                if name not in self.nodes:
                    return Problem("not_found", f"there is no node {name}"), 404
                return self.nodes[name], 200
            case ["events"]:
                after = int(parse_qs(query)["after"][0])
                return EventList(tuple(e for e in self.events if e.seq > after), len(self.events)), 200
        return Problem("not_found", f"there is no {request.target}"), 404

    def _carry_out(self, words: list[str]) -> JobsAnswer:
        """Answers an order: done for all named jobs, except for those to refuse."""
        labels: dict[str, None] = {}
        for word in words:
            match parse_selection(word):
                case JobRange(low, high):
                    labels.update((str(number), None) for number in range(low, high + 1))
                case ArrayElements(first, indices):
                    labels.update((f"{first}_{index}", None) for index in indices)
                case AllJobs():
                    labels.update((each.label, None) for each in self.jobs.values())
                case _:
                    labels[word] = None
        known = {each.label: each for each in self.jobs.values()}
        refused = dict(self.refused_jobs)
        for label in labels:
            if label not in known:
                refused.setdefault(label, Problem("not_found", f"there is no job {label}"))
        done = tuple(known[label] for label in labels if label not in refused)
        told = tuple(JobRefused(label, refused[label]) for label in labels if label in refused)
        return JobsAnswer(done, told)

    def _page(self, query: dict[str, list[str]]) -> JobList:
        after, limit = int(query["after"][0]), int(query["limit"][0])
        states, users = query.get("state"), query.get("user")
        fitting = [
            each
            for number, each in sorted(self.jobs.items())
            if (not states or each.state.value in states) and (not users or each.user in users)
        ]
        page = [each for each in fitting if each.id > after][: limit + 1]
        more = page[limit - 1].id if len(page) > limit else None
        places = self.places if "places" in query and not after else ()
        return JobList(tuple(page[:limit]), 9, len(fitting), more, places=places)


def opened(path: Path) -> Iterator[FakeController]:
    """A fake for one test."""
    made = FakeController(path)
    yield made
    made.peer.close()


def node(name: str, **changes: Any) -> NodeView:
    """A node without GPUs that is up."""
    made = NodeView(name, NodeState.UP, 64_000, 32_000, 524_288, 262_144, 2, version="0.1.0")
    return replace(made, **changes)
