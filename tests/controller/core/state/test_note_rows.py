"""Notes: the rows of everything that is neither a job nor a node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

from controller.core.model.inputs import (
    access_inputs,
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.tokens import USER, TokenRecord
from controller.core.quota.budget_rules import Budget, BudgetRules
from controller.core.quota.hours.timetable import HoursTable, Timetable
from controller.core.quota.hours.week_hours import WeekHours, windows_of
from controller.core.state.note_rows import (
    NOTE_KINDS,
    all_notes,
    changed_notes,
    clear_note_changes,
    load_notes,
)
from controller.core.state.state import State
from tests.controller.core.services.services import pipeline_with, service
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.workload.spec import WorkloadSpec, WorkloadTask


def world_with_every_kind_of_note() -> EngineHarness:
    pipeline = pipeline_with(service(replicas=0))
    budgets = BudgetRules({"default": Budget(gpu_hours=100)})
    always = WeekHours(("mon-sun",), tuple(windows_of("mon-sun")), UTC, "UTC")
    timetable = Timetable((HoursTable("always", always),))
    rules = replace(pipeline.rules, budgets=budgets, timetable=timetable)
    predicted = replace(pipeline.estimating, predicted=True)
    harness = EngineHarness(replace(pipeline, rules=rules, estimating=predicted))
    harness.join("a")
    harness.tell(policy_inputs.ScaleService("web", 0, "root"))
    harness.tell(node_inputs.PinKey("a", "ssh-ed25519 AAAA", "root"))
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=8)), "root"))
    harness.tell(policy_inputs.SetShare("ml", 2.0, "root", soft=0.5, hard=0.9))
    harness.tell(
        policy_inputs.Reserve(
            ReservationSpec("r", starts_at=harness.now + 9e5, duration_s=60, nodes=("a",)), "ann"
        )
    )
    harness.tell(agent_inputs.OffQueueProcessSeen("a", "GPU-0", "eve", 7, "python"))
    harness.tell(agent_inputs.OffQueueProcessSeen("a", "GPU-1", "eve", 8, "python"))
    harness.tell(agent_inputs.OffQueueProcessGone("a", "GPU-1", "eve"))
    harness.tell(controller_inputs.ApplyConfig("digest", "root"))
    token = TokenRecord(
        "abcdefghij", USER, "laptop", "ada", "00" * 32, ("read",), harness.now, "ada", ("ml",)
    )
    harness.tell(access_inputs.CreateToken(token, 10))
    asked = WorkloadSpec((WorkloadTask("one", spec(1, hold=True)),))
    harness.tell(job_inputs.SubmitWorkload(asked, "ada"))
    for _ in range(12):  # because a run time is predicted only after several jobs of the same kind
        job = harness.submit(spec(1, time_limit_s=7_200, datasets=("imagenet",)))
        harness.tell(controller_inputs.NoteStart(job, "likely", harness.now + 60))
        harness.tick()
        harness.start(job)
        harness.now += 3_600
        harness.exit(job, 0)
    return harness


def test_notes_of_every_kind_load_as_they_were_written() -> None:
    harness = world_with_every_kind_of_note()
    written = all_notes(harness.state)
    assert {note.kind for note in written} == {kind.kind for kind in NOTE_KINDS}
    state = State(PIPELINE.order)
    load_notes(state, written)
    assert sorted(all_notes(state), key=repr) == sorted(written, key=repr)


def test_changed_notes_are_returned_until_they_are_cleared() -> None:
    harness = world_with_every_kind_of_note()
    first = changed_notes(harness.state, harness.events)
    assert changed_notes(harness.state, harness.events) == first
    assert {note.kind for note in first} == {kind.kind for kind in NOTE_KINDS}
    clear_note_changes(harness.state)
    assert changed_notes(harness.state, ()) == []
