"""Rows that an earlier version wrote load, and nothing of them is lost."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from controller.core.cluster.node import JUST_STARTED, Node
from controller.core.model.job import Job
from controller.core.model.rows import JobRow, NodeRow
from controller.core.state.job_and_node_rows import (
    JobFields,
    JobRecord,
    NodeFields,
    PreemptionRecord,
    job_row,
    load_job,
    load_node,
    node_row,
    restore_state,
)
from controller.core.state.state import State
from tests.engine_harness import PIPELINE

FROZEN: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "frozen_rows.json").read_text())
"""Rows of a gang of which one member has ended, a waiting job, a cordoned GPU and a drained node."""


def names(kind: Any) -> set[str]:
    return {each.name for each in fields(kind)}


def test_old_rows_of_jobs_are_written_as_before() -> None:
    for row in FROZEN["jobs"]:
        written = job_row(load_job(JobRow(**row)), with_spec=True)
        assert json.loads(written.body) == json.loads(row["body"])
        spec = json.loads(written.spec or "")
        assert {name: spec[name] for name in json.loads(row["spec"])} == json.loads(row["spec"])


def test_old_rows_of_nodes_are_written_as_before() -> None:
    for row in FROZEN["nodes"]:
        body, frozen = json.loads(node_row(load_node(NodeRow(**row))).body), json.loads(row["body"])
        # The agents of later versions report more facts. An old row has the defaults of these facts.
        body["facts"] = {name: body["facts"][name] for name in frozen["facts"]}
        assert body == frozen


def test_a_state_starts_from_old_rows() -> None:
    state = State(PIPELINE.order)
    jobs, nodes = (
        [kind(**row) for row in FROZEN[name]] for kind, name in ((JobRow, "jobs"), (NodeRow, "nodes"))
    )
    assert restore_state(state, jobs, nodes) == ("a", "b")
    gang = state.jobs[1]
    assert [(member.ended_at is not None) for member in gang.members.values()] == [True, False]
    assert state.nodes.by_name["b"].held.keys() == {1}
    assert [node.why for node in state.nodes] == [JUST_STARTED, "why"]


def test_every_field_of_a_job_is_in_its_row_or_follows_from_the_row() -> None:
    """A new field of Job that no row has would be lost by a restart."""
    columns = {"id", "user", "state", "submitted_at", "ended_at", "key", "array", "spec"}
    body = names(JobFields) | {
        "members",
        "wait",
        "profile",
        "operator_hold",
        "replica",
        "workload",
        "task",
        "healthy",
        "last",
        "warned_end",
        "outlived",
        "limit_raised",
        "short",
        "kept_until",
        "kept_why",
        "spent_run_s",
    }
    preemption = names(PreemptionRecord) - {"history"} | {"preemptions"}
    derived = {"ask", "unstarted", "unended"}
    assert names(Job) == columns | body | preemption | derived
    assert names(JobRecord) == body | {"preemption"}


def test_every_field_of_a_node_is_in_its_row_or_follows_from_the_row() -> None:
    from_jobs = {"held", "claims", "leaving"}
    since_the_start = {"up", "slots", "row", "last_placement"}
    assert names(Node) == names(NodeFields) | {"name", "health", "timed_drain"} | from_jobs | since_the_start
