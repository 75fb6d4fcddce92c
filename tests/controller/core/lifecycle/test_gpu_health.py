"""GPU health: which faults take a GPU out, what its jobs are told, and how it returns."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.core.cluster.gpu_health import (
    FORGET_FAULTS_AFTER_S,
    XID_ACTIONS,
    GpuCondition,
    GpuHealthPolicy,
    HealthAction,
    after_check,
    after_driver_loss,
    after_fault,
)
from controller.core.engine import Engine
from controller.core.model import inputs
from controller.core.model.events import GpuHealthRecorded, event_of
from controller.core.state.job_and_node_rows import node_row, restore_state
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.frames import AttemptStatus, CheckGpu, ResetGpu
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import GpuHealth, JobState, Reason, TroubleKind

OK, SUSPECT, CORDONED, PROBING, LOST = (
    GpuHealth.OK,
    GpuHealth.SUSPECT,
    GpuHealth.CORDONED,
    GpuHealth.PROBING,
    GpuHealth.LOST,
)
CARE = GpuHealthPolicy(check_s=10, check_most_s=60, checks=3)


NEVER_AGAIN = Restart(RestartWhen.NEVER)


class Ward(EngineHarness):
    """One node with four GPUs, and what is said of them."""

    def __init__(self) -> None:
        super().__init__(replace(PIPELINE, care=CARE))
        self.join("n", gpus=4)

    def xid(self, gpu: int, code: int) -> None:
        self.tell(inputs.GpuTroubled("n", f"GPU-n-{gpu}", TroubleKind.XID, xid=code))

    def trouble(self, gpu: int, kind: TroubleKind, why: str = "told") -> None:
        self.tell(inputs.GpuTroubled("n", f"GPU-n-{gpu}", kind, why))

    def seen(self, gpu: int, ok: bool = True) -> None:
        """The look that is due is made."""
        self.now = max(self.now, self.condition(gpu).due)
        self.tell(inputs.GpuChecked("n", f"GPU-n-{gpu}", ok, "" if ok else "still"))

    def seen_occupied(self, gpu: int) -> None:
        """The look finds the GPU in use past the queue."""
        self.now = max(self.now, self.condition(gpu).due)
        self.tell(inputs.GpuChecked("n", f"GPU-n-{gpu}", False, "GPU 1 is held by pid 8 (eve: sh)", True))

    def condition(self, gpu: int) -> GpuCondition:
        node = self.state.nodes.by_name["n"]
        return node.condition(node.facts.gpus[gpu])

    def health(self) -> list[GpuHealth]:
        return [self.condition(gpu).health for gpu in range(4)]

    def looks(self) -> list[tuple[str, float]]:
        """(GPU, seconds) of every look ordered since last asked."""
        found = [
            (sent.frame.uuid, sent.frame.after_s) for sent in self.sent if isinstance(sent.frame, CheckGpu)
        ]
        self.sent.clear()
        return found

    def free(self) -> int:
        """GPUs that jobs can get now: as many as they do get."""
        jobs = [self.submit(spec(gpus=1)) for _ in range(4)]
        self.tick()
        placed = [job for job in jobs if self.job(job).state is JobState.SCHEDULED]
        for job in jobs:
            self.tell(inputs.Cancel(job, "ada"))
        for job in placed:
            self.exit(job, None, signal=15)
        return len(placed)


@pytest.mark.parametrize(
    ("code", "health", "needs", "reason"),
    [
        (13, OK, "", Reason.GPU_ERROR),
        (31, OK, "", Reason.GPU_ERROR),
        (94, OK, "", Reason.GPU_ERROR),
        (43, OK, "", Reason.EXIT_NONZERO),
        (63, OK, "", Reason.EXIT_NONZERO),
        (92, OK, "", Reason.EXIT_NONZERO),
        (48, CORDONED, "", Reason.GPU_FAILED),
        (74, CORDONED, "", Reason.GPU_FAILED),
        (95, CORDONED, "", Reason.GPU_FAILED),
        (64, CORDONED, "reset", Reason.GPU_FAILED),
        (119, CORDONED, "reset", Reason.GPU_FAILED),
        (120, CORDONED, "reset", Reason.GPU_FAILED),
        (79, LOST, "reboot", Reason.GPU_FAILED),
        (12_345, SUSPECT, "", Reason.GPU_FAILED),
    ],
)
def test_what_an_xid_leads_to(code: int, health: GpuHealth, needs: str, reason: Reason) -> None:
    harness = Ward()
    hit, other = (harness.submit(spec(gpus=1, restart=NEVER_AGAIN)) for _ in range(2))
    harness.tick()
    for job in (hit, other):
        harness.start(job)
    [gpu] = harness.gpus_of(hit)
    harness.xid(gpu, code)
    assert (harness.condition(gpu).health, harness.condition(gpu).needs) == (health, needs)
    assert [each for each in harness.health() if each is not OK] == ([health] if health is not OK else [])
    assert harness.job(hit).state is JobState.RUNNING, "it may know how to go on"
    harness.exit(hit, 1)
    harness.exit(other, 1)
    assert (harness.job(hit).reason, harness.job(other).reason) == (reason, Reason.EXIT_NONZERO)
    if reason is not Reason.EXIT_NONZERO:
        assert harness.job(hit).detail.startswith(f"GPU {gpu} of n: Xid {code}: ")
        assert harness.job(hit).detail.endswith("(exit code 1)")
    assert harness.free() == (4 if health is OK else 3)


# Xids: what comes of a job with the default restart policy, and of one that never restarts.
BY_HARDWARE = [(79, True), (48, True), (64, True), (119, True), (13, False), (31, False), (94, False)]


@pytest.mark.parametrize(("code", "hardware"), BY_HARDWARE)
def test_a_job_that_the_hardware_ended_is_queued_again_and_gets_another_gpu(
    code: int, hardware: bool
) -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=1, restart=Restart(delay_s=0.0)))
    harness.tick()
    harness.start(job)
    [gpu] = harness.gpus_of(job)
    harness.xid(gpu, code)
    harness.exit(job, None, signal=9)
    if not hardware:
        assert harness.job(job).state is JobState.FAILED
        return
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.GPU_FAILED)
    assert harness.job(job).detail.startswith(f"restart 1 of 3: GPU {gpu} of n: Xid {code}: ")
    harness.tick()
    assert harness.gpus_of(job) != [gpu]
    harness.start(job)
    harness.exit(job, 1)
    assert harness.job(job).state is JobState.FAILED, "by its own doing this time"


def test_a_job_that_the_hardware_ends_again_and_again_fails_at_last() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=1, restart=Restart(delay_s=0.0, limit=2)))
    for attempt in (1, 2, 3):
        harness.tick()
        harness.start(job)
        assert harness.job(job).attempt == attempt
        harness.xid(harness.gpus_of(job)[0], 48)
        harness.exit(job, None, signal=9)
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.FAILED, Reason.GPU_FAILED)


def test_a_job_that_succeeds_all_the_same_is_a_success() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    harness.start(job)
    harness.xid(harness.gpus_of(job)[0], 48)
    harness.exit(job, 0)
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.COMPLETED, Reason.NONE)


def test_a_cordoned_gpu_is_probed_and_returns() -> None:
    harness = Ward()
    harness.xid(2, 48)
    assert harness.looks() == [("GPU-n-2", 10)]
    assert harness.free() == 3
    for health, free in ((PROBING, 3), (PROBING, 3), (OK, 4)):
        harness.seen(2)
        assert (harness.condition(2).health, harness.free()) == (health, free)
    assert harness.health() == [OK] * 4


def test_a_suspect_gpu_returns_or_is_cordoned_after_one_check() -> None:
    harness = Ward()
    harness.trouble(0, TroubleKind.SILENT)
    harness.trouble(1, TroubleKind.SILENT)
    harness.seen(0)
    harness.seen(1, ok=False)
    assert harness.health()[:2] == [OK, CORDONED]


def test_repeated_faults_double_the_wait_up_to_a_limit() -> None:
    harness = Ward()
    harness.xid(0, 48)
    waits = [seconds for _, seconds in harness.looks()]
    for _ in range(4):
        harness.seen(0, ok=False)
        waits += [seconds for _, seconds in harness.looks()]
    assert waits == [10, 20, 40, 60, 60]


def test_a_process_outside_the_queue_is_no_fault_of_the_gpu() -> None:
    ward = Ward()
    for _ in range(3):
        ward.trouble(1, TroubleKind.UNCLEAN, "GPU 1 is held by pid 7 (eve: python)")
        assert ward.condition(1).health is SUSPECT
        ward.seen_occupied(1)
        assert (ward.condition(1).health, ward.condition(1).falls) == (SUSPECT, 0)
        assert ward.condition(1).due - ward.now == CARE.check_s
        ward.seen(1)
        assert ward.condition(1).health is OK


def test_a_gpu_is_checked_when_the_process_outside_the_queue_has_left() -> None:
    ward = Ward()
    ward.tell(inputs.OffQueueProcessSeen("n", "GPU-n-1", "eve", 7, "python"))
    ward.trouble(1, TroubleKind.UNCLEAN, "GPU 1 is held by pid 7 (eve: python)")
    ward.now += 5_000
    ward.looks()
    ward.tell(inputs.OffQueueProcessGone("n", "GPU-n-1", "eve"))
    assert ward.looks() == [("GPU-n-1", 0.0)]
    ward.seen(1)
    assert ward.free() == 4


def test_a_reason_that_lasts_keeps_the_gpu_out_and_the_wait_short() -> None:
    ward = Ward()
    ward.trouble(1, TroubleKind.NVLINK, "17 of 18 NVLinks are up")
    for _ in range(4):
        ward.seen_occupied(1)
        assert (ward.condition(1).health, ward.condition(1).falls) == (CORDONED, 1)
        assert ward.looks()[-1] == ("GPU-n-1", CARE.check_s)
    for _ in range(CARE.checks):
        ward.seen(1)
    assert ward.condition(1).health is OK


@pytest.mark.parametrize(
    ("kind", "health", "needs"),
    [
        (TroubleKind.ECC_UNCORRECTED, CORDONED, ""),
        (TroubleKind.ECC_CORRECTED, SUSPECT, ""),
        (TroubleKind.ROW_REMAP, CORDONED, "reset"),
        (TroubleKind.NVLINK, CORDONED, ""),
        (TroubleKind.SLOWDOWN, SUSPECT, ""),
        (TroubleKind.MEMORY, SUSPECT, ""),
    ],
)
def test_what_readings_lead_to(kind: TroubleKind, health: GpuHealth, needs: str) -> None:
    ward = Ward()
    ward.trouble(2, kind)
    assert (ward.condition(2).health, ward.condition(2).needs) == (health, needs)
    assert ward.free() == 3


def test_faults_are_forgotten_after_a_healthy_time() -> None:
    tired = GpuCondition(OK, falls=5, since=0.0)
    assert after_fault(tired, HealthAction.CORDON, "x", FORGET_FAULTS_AFTER_S + 1, CARE).falls == 1
    assert after_fault(tired, HealthAction.CORDON, "x", FORGET_FAULTS_AFTER_S - 1, CARE).falls == 6


def test_probing_ends_with_the_first_failed_check() -> None:
    harness = Ward()
    harness.xid(0, 48)
    harness.seen(0)
    harness.seen(0, ok=False)
    assert (harness.condition(0).health, harness.condition(0).good) == (CORDONED, 0)


def test_what_needs_a_reboot_returns_after_one() -> None:
    harness = Ward()
    harness.xid(1, 79)
    harness.xid(2, 119)
    harness.seen(1)
    harness.join("n", gpus=4)
    assert harness.health() == [OK, LOST, CORDONED, OK], "an agent that was restarted is no reboot"
    assert not [look for look in harness.looks() if look[0] in ("GPU-n-1", "GPU-n-2") and look[1]]
    harness.join("n", gpus=4, boot="b2")
    assert harness.health() == [OK, PROBING, PROBING, OK]
    assert sorted(harness.looks()) == [("GPU-n-1", 0), ("GPU-n-2", 0)]
    for _ in range(3):
        harness.seen(1)
        harness.seen(2)
    assert harness.free() == 4


def test_a_missing_gpu_is_lost_and_checked_when_it_is_back() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=4))
    harness.tick()
    harness.start(job)
    harness.join("n", gpus=3, attempts=())
    harness.join("n", gpus=3)
    assert harness.free() == 3
    harness.join("n", gpus=4)
    assert harness.condition(3).health is LOST
    assert harness.free() == 3
    for _ in range(3):
        harness.seen(3)
    assert harness.free() == 4


def test_a_job_on_a_lost_gpu_gets_the_reason() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=4, restart=NEVER_AGAIN))
    harness.tick()
    harness.start(job)
    told = harness.job(job).members["n"]
    harness.trouble(3, TroubleKind.LOST, "GPU is lost")
    assert told.fault == "GPU 3 of n: GPU is lost"
    harness.exit(job, None, signal=6)
    assert harness.job(job).detail == "GPU 3 of n: GPU is lost (killed by signal 6)"


def test_a_lesser_fault_does_not_replace_a_worse_one() -> None:
    harness = Ward()
    harness.xid(0, 79)
    before = harness.condition(0)
    for kind in (TroubleKind.SILENT, TroubleKind.LOST, TroubleKind.UNCLEAN):
        harness.trouble(0, kind)
    harness.xid(0, 48)
    assert harness.condition(0) == before
    harness.trouble(1, TroubleKind.SILENT)
    harness.xid(1, 48)
    harness.trouble(1, TroubleKind.LOST, "gone")
    assert harness.condition(1).health is LOST


def test_an_operator_cordons_and_resumes_one_gpu() -> None:
    harness = Ward()
    harness.tell(inputs.CordonGpu("n", 3, "root", "noisy"))
    assert harness.free() == 3
    harness.seen(3)
    harness.join("n", gpus=4, boot="b2")
    assert harness.condition(3).health is CORDONED, "only an operator puts it back"
    harness.looks()
    assert harness.refuse(inputs.Resume("n", "root")).hint == "GPU 3 takes no jobs: corral nodes resume n:3"
    harness.tell(inputs.ResumeGpu("n", 3, "root"))
    assert harness.looks() == [("GPU-n-3", 0)]
    harness.seen(3)
    assert harness.free() == 4
    assert harness.refuse(inputs.ResumeGpu("n", 3, "root")).code == "conflict"
    assert harness.refuse(inputs.CordonGpu("n", 9, "root")).code == "not_found"
    assert harness.refuse(inputs.CordonGpu("m", 0, "root")).code == "not_found"


def test_a_job_whose_gpu_is_held_by_another_process_is_queued_again() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    [gpu] = harness.gpus_of(job)
    why = f"GPU {gpu} is held by pid 99 (mallory: python mine.py)"
    harness.trouble(gpu, TroubleKind.UNCLEAN, why)
    never = AttemptStatus(job, 1, ended_at=harness.now, why=f"gpu_held: {why}")
    harness.tell(inputs.AgentReported("n", never))
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.GPU_HELD)
    assert harness.job(job).detail == f"goes elsewhere: {why}"
    harness.tick()
    assert harness.job(job).attempt == 2
    assert harness.gpus_of(job) != [gpu]
    harness.start(job)
    harness.exit(job)
    assert harness.job(job).state is JobState.COMPLETED


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_its_host_could_not_start_is_queued_again(nodes: int) -> None:
    """Nothing is placed on that host from this very landing on, until its agent is there again."""
    harness = EngineHarness()
    for name in ("a", "b", "c"):
        harness.join(name)
    job = harness.submit(spec(nodes, nodes=nodes))
    harness.tick()
    before = harness.nodes_of(job)
    why = "the order cannot be written to the spool: No space left on device"
    never = AttemptStatus(job, 1, ended_at=harness.now, why=f"node_unfit: {why}")
    harness.tell(inputs.AgentReported(before[0], never))
    if nodes > 1:
        stopped = AttemptStatus(job, 1, ended_at=harness.now, why="member_failed")
        harness.tell(inputs.AgentReported(before[1], stopped))
    unfit = harness.state.nodes.by_name[before[0]]
    assert (unfit.up, unfit.why) == (False, f"it cannot run jobs: {why}")
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.NODE_UNFIT)
    harness.tick()
    assert before[0] not in harness.nodes_of(job)
    harness.start(job)
    harness.exit(job)
    assert harness.job(job).state is JobState.COMPLETED
    harness.join(before[0])
    assert unfit.up


def test_an_agent_that_finds_a_failed_start_of_the_agent_before_keeps_its_node_up() -> None:
    """It has checked its host, and does not leave: the node would stay away for ever."""
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1))
    harness.tick()
    never = AttemptStatus(job, 1, ended_at=harness.now, why="node_unfit: docker cannot run jobs here")
    harness.join("a", attempts=(never,))
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.NODE_UNFIT)
    assert harness.state.nodes.by_name["a"].up
    assert [start.job for start in harness.tick()] == [job]


def test_a_cancelled_job_is_not_queued_again() -> None:
    harness = Ward()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    harness.tell(inputs.Cancel(job, "ada"))
    harness.tell(inputs.AgentReported("n", AttemptStatus(job, 1, ended_at=harness.now, why="gpu_held: x")))
    assert harness.job(job).state is JobState.CANCELLED


def test_check_orders_are_sent_again_after_a_lost_link() -> None:
    harness = Ward()
    harness.xid(0, 48)
    harness.looks()
    harness.now += 4
    harness.tell(inputs.LinkWentDown("n", "cut"))
    harness.join("n", gpus=4)
    assert harness.looks() == [("GPU-n-0", 6)]


def test_a_restart_keeps_gpu_health() -> None:
    harness = Ward()
    harness.xid(0, 79)
    harness.trouble(1, TroubleKind.SILENT)
    fresh = State(PIPELINE.order)
    restore_state(fresh, [], [node_row(node) for node in harness.state.nodes])
    assert fresh.nodes.by_name["n"].health == harness.state.nodes.by_name["n"].health


def test_checks_are_ordered_at_the_first_hello_after_a_restart() -> None:
    harness = Ward()
    harness.xid(0, 48)
    restarted = Ward()
    state = State(PIPELINE.order)
    restore_state(state, [], [node_row(node) for node in harness.state.nodes])
    restarted.engine = Engine(restarted.pipeline, state)
    restarted.looks()
    restarted.join("n", gpus=4)
    assert restarted.looks() == [("GPU-n-0", 10)]


def test_health_rows_from_before_checks_still_load() -> None:
    old = {"node": "n", "at": 5.0, "uuid": "GPU-n-0", "health": "suspect", "why": "silent"}
    event = event_of("GpuHealthRecorded", json.dumps(old))
    assert event == GpuHealthRecorded("n", 5.0, "GPU-n-0", SUSPECT, "silent")


def test_other_actions_can_be_chosen() -> None:
    care = GpuHealthPolicy(xids={79: HealthAction.IGNORE})
    assert care.action(79) == (HealthAction.IGNORE, XID_ACTIONS[79][1])
    assert care.action(48)[0] is HealthAction.CORDON


def test_a_check_never_takes_a_healthy_gpu_out() -> None:
    well = GpuCondition()
    assert after_check(well, False, "late", 5.0, CARE) == well
    lost = after_driver_loss(well, "gone", 5.0, CARE)
    waits = [lost]
    for _ in range(5):
        waits.append(after_check(waits[-1], False, "", waits[-1].due, CARE))
    assert all(later.due - later.since >= earlier.due - earlier.since for earlier, later in pairwise(waits))
    assert all(each.health is LOST and each.why == "gone" for each in waits)


class ResettingWard(Ward):
    """The same where agents may reset GPUs."""

    def __init__(self) -> None:
        EngineHarness.__init__(self, replace(PIPELINE, care=replace(CARE, reset=("reset",))))
        self.join("n", gpus=4)

    def resets(self) -> list[tuple[str, float]]:
        """(GPU, seconds) of every reset ordered since last asked."""
        found = [
            (sent.frame.uuid, sent.frame.after_s) for sent in self.sent if isinstance(sent.frame, ResetGpu)
        ]
        self.sent.clear()
        return found

    def was_reset(self, gpu: int, ok: bool = True, why: str = "") -> None:
        self.tell(inputs.GpuWasReset("n", f"GPU-n-{gpu}", ok, why))


def test_a_free_gpu_is_reset_passes_its_checks_and_returns() -> None:
    ward = ResettingWard()
    ward.xid(2, 119)
    assert ward.resets() == [("GPU-n-2", 10)]
    ward.was_reset(2)
    assert ward.condition(2).health is PROBING
    for _ in range(3):
        ward.seen(2)
    assert ward.health() == [OK] * 4


def test_a_gpu_with_a_job_on_it_is_reset_when_that_has_ended() -> None:
    ward = ResettingWard()
    job = ward.submit(spec(4))
    ward.tick()
    ward.start(job)
    ward.xid(1, 64)
    assert ward.resets() == []
    ward.now += 60.0
    ward.exit(job, 1)
    assert ward.resets() == [("GPU-n-1", 0.0)]


def test_a_shared_gpu_is_reset_after_its_last_job() -> None:
    ward = ResettingWard()
    first, second = (ward.submit(spec(0.5)) for _ in range(2))
    ward.tick()
    assert ward.gpus_of(first) == ward.gpus_of(second)
    [gpu] = ward.gpus_of(first)
    ward.xid(gpu, 120)
    for job in (first, second):
        ward.start(job)
        assert ward.resets() == []
        ward.exit(job, 1)
    assert [uuid for uuid, _ in ward.resets()] == [f"GPU-n-{gpu}"]


def test_a_failed_reset_is_reported_and_tried_again_later() -> None:
    ward = ResettingWard()
    ward.xid(0, 119)
    waits = [wait for _, wait in ward.resets()]
    for _ in range(4):
        ward.was_reset(0, ok=False, why="in use by another client")
        waits += [wait for _, wait in ward.resets()]
    assert waits == [10, 20, 40, 60, 60]
    assert ward.condition(0).why == (
        "Xid 119: its system processor does not answer; the reset failed: in use by another client"
    )
    node = ward.state.nodes.by_name["n"]
    assert ward.restarted().state.nodes.by_name["n"].health == node.health


def test_a_hello_orders_again_what_may_have_been_lost() -> None:
    ward = ResettingWard()
    ward.xid(0, 119)
    ward.resets()
    ward.now += 5.0
    ward.join("n", gpus=4)
    assert ward.resets() == [("GPU-n-0", 5.0)]
    ward.join("n", gpus=4, boot="b2")
    assert ward.resets() == []  # the boot was the reset
    assert ward.condition(0).health is PROBING


def test_an_unexpected_reset_changes_nothing() -> None:
    ward = ResettingWard()
    ward.xid(0, 48)
    before = ward.condition(0)
    ward.was_reset(0)
    ward.was_reset(0, ok=False, why="no")
    ward.was_reset(1)
    assert (ward.condition(0), ward.condition(1).health) == (before, OK)


def test_no_resets_are_ordered_when_they_are_off() -> None:
    ward = Ward()
    ward.xid(0, 119)
    assert not any(isinstance(sent.frame, ResetGpu) for sent in ward.sent)
