"""GPU health: which faults take a GPU out, the reason that its jobs get, and how the GPU returns."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.core.cluster.gpus.gpu_health import (
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
from controller.core.model.events.kinds import event_of
from controller.core.model.events.nodes import GpuHealthRecorded
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.state.job_and_node_rows import node_row, restore_state
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import CheckGpu, ResetGpu
from wire.agent.reports import AttemptStatus
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


class OneNodeHarness(EngineHarness):
    """One node with four GPUs, and the reports about them."""

    def __init__(self) -> None:
        super().__init__(replace(PIPELINE, health_policy=CARE))
        self.join("n", gpus=4)

    def xid(self, gpu: int, code: int) -> None:
        self.tell(agent_inputs.GpuTroubled("n", f"GPU-n-{gpu}", TroubleKind.XID, xid=code))

    def trouble(self, gpu: int, kind: TroubleKind, why: str = "reported") -> None:
        self.tell(agent_inputs.GpuTroubled("n", f"GPU-n-{gpu}", kind, why))

    def checked(self, gpu: int, ok: bool = True) -> None:
        """The agent reports the check that is due."""
        self.now = max(self.now, self.condition(gpu).due)
        self.tell(agent_inputs.GpuChecked("n", f"GPU-n-{gpu}", ok, "" if ok else "still"))

    def checked_occupied(self, gpu: int) -> None:
        """The check finds a process outside the queue on the GPU."""
        self.now = max(self.now, self.condition(gpu).due)
        self.tell(
            agent_inputs.GpuChecked("n", f"GPU-n-{gpu}", False, "GPU 1 is held by pid 8 (eve: sh)", True)
        )

    def condition(self, gpu: int) -> GpuCondition:
        node = self.state.nodes.by_name["n"]
        return node.condition(node.facts.gpus[gpu])

    def health(self) -> list[GpuHealth]:
        return [self.condition(gpu).health for gpu in range(4)]

    def checks_ordered(self) -> list[tuple[str, float]]:
        """(GPU, seconds) of every check ordered since the last call."""
        found = [
            (sent.frame.uuid, sent.frame.after_s) for sent in self.sent if isinstance(sent.frame, CheckGpu)
        ]
        self.sent.clear()
        return found

    def free(self) -> int:
        """Return the number of GPUs that jobs can get now, found by submitting four jobs."""
        jobs = [self.submit(spec(gpus=1)) for _ in range(4)]
        self.tick()
        placed = [job for job in jobs if self.job(job).state is JobState.SCHEDULED]
        for job in jobs:
            self.tell(job_inputs.Cancel(job, "ada"))
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
def test_gpu_health_after_each_xid(code: int, health: GpuHealth, needs: str, reason: Reason) -> None:
    harness = OneNodeHarness()
    hit, other = (harness.submit(spec(gpus=1, restart=NEVER_AGAIN)) for _ in range(2))
    harness.tick()
    for job in (hit, other):
        harness.start(job)
    [gpu] = harness.gpus_of(hit)
    harness.xid(gpu, code)
    assert (harness.condition(gpu).health, harness.condition(gpu).needs) == (health, needs)
    assert [each for each in harness.health() if each is not OK] == ([health] if health is not OK else [])
    assert harness.job(hit).state is JobState.RUNNING, "the job may handle the fault"
    harness.exit(hit, 1)
    harness.exit(other, 1)
    assert (harness.job(hit).reason, harness.job(other).reason) == (reason, Reason.EXIT_NONZERO)
    if reason is not Reason.EXIT_NONZERO:
        assert harness.job(hit).detail.startswith(f"GPU {gpu} of n: Xid {code}: ")
        assert harness.job(hit).detail.endswith("(exit code 1)")
    assert harness.free() == (4 if health is OK else 3)


# (Xid, whether a job that it ends is requeued as ended by hardware)
BY_HARDWARE = [(79, True), (48, True), (64, True), (119, True), (13, False), (31, False), (94, False)]


@pytest.mark.parametrize(("code", "hardware"), BY_HARDWARE)
def test_a_job_ended_by_hardware_is_requeued_on_another_gpu(code: int, hardware: bool) -> None:
    harness = OneNodeHarness()
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


def test_a_job_ended_by_hardware_repeatedly_fails_after_its_limit() -> None:
    harness = OneNodeHarness()
    job = harness.submit(spec(gpus=1, restart=Restart(delay_s=0.0, limit=2)))
    for attempt in (1, 2, 3):
        harness.tick()
        harness.start(job)
        assert harness.job(job).attempt == attempt
        harness.xid(harness.gpus_of(job)[0], 48)
        harness.exit(job, None, signal=9)
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.FAILED, Reason.GPU_FAILED)


def test_a_job_that_succeeds_despite_an_xid_completes() -> None:
    harness = OneNodeHarness()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    harness.start(job)
    harness.xid(harness.gpus_of(job)[0], 48)
    harness.exit(job, 0)
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.COMPLETED, Reason.NONE)


def test_a_cordoned_gpu_is_probed_and_returns() -> None:
    harness = OneNodeHarness()
    harness.xid(2, 48)
    assert harness.checks_ordered() == [("GPU-n-2", 10)]
    assert harness.free() == 3
    for health, free in ((PROBING, 3), (PROBING, 3), (OK, 4)):
        harness.checked(2)
        assert (harness.condition(2).health, harness.free()) == (health, free)
    assert harness.health() == [OK] * 4


def test_a_suspect_gpu_returns_or_is_cordoned_after_one_check() -> None:
    harness = OneNodeHarness()
    harness.trouble(0, TroubleKind.SILENT)
    harness.trouble(1, TroubleKind.SILENT)
    harness.checked(0)
    harness.checked(1, ok=False)
    assert harness.health()[:2] == [OK, CORDONED]


def test_repeated_faults_double_the_wait_up_to_a_limit() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 48)
    waits = [seconds for _, seconds in harness.checks_ordered()]
    for _ in range(4):
        harness.checked(0, ok=False)
        waits += [seconds for _, seconds in harness.checks_ordered()]
    assert waits == [10, 20, 40, 60, 60]


def test_a_process_outside_the_queue_is_no_fault_of_the_gpu() -> None:
    harness = OneNodeHarness()
    for _ in range(3):
        harness.trouble(1, TroubleKind.UNCLEAN, "GPU 1 is held by pid 7 (eve: python)")
        assert harness.condition(1).health is SUSPECT
        harness.checked_occupied(1)
        assert (harness.condition(1).health, harness.condition(1).falls) == (SUSPECT, 0)
        assert harness.condition(1).due - harness.now == CARE.check_s
        harness.checked(1)
        assert harness.condition(1).health is OK


def test_a_gpu_is_checked_when_the_process_outside_the_queue_has_left() -> None:
    harness = OneNodeHarness()
    harness.tell(agent_inputs.OffQueueProcessSeen("n", "GPU-n-1", "eve", 7, "python"))
    harness.trouble(1, TroubleKind.UNCLEAN, "GPU 1 is held by pid 7 (eve: python)")
    harness.now += 5_000
    harness.checks_ordered()
    harness.tell(agent_inputs.OffQueueProcessGone("n", "GPU-n-1", "eve"))
    assert harness.checks_ordered() == [("GPU-n-1", 0.0)]
    harness.checked(1)
    assert harness.free() == 4


def test_a_lasting_fault_keeps_the_gpu_out_with_a_short_wait() -> None:
    harness = OneNodeHarness()
    harness.trouble(1, TroubleKind.NVLINK, "17 of 18 NVLinks are up")
    for _ in range(4):
        harness.checked_occupied(1)
        assert (harness.condition(1).health, harness.condition(1).falls) == (CORDONED, 1)
        assert harness.checks_ordered()[-1] == ("GPU-n-1", CARE.check_s)
    for _ in range(CARE.checks):
        harness.checked(1)
    assert harness.condition(1).health is OK


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
def test_gpu_health_after_each_kind_of_trouble(kind: TroubleKind, health: GpuHealth, needs: str) -> None:
    harness = OneNodeHarness()
    harness.trouble(2, kind)
    assert (harness.condition(2).health, harness.condition(2).needs) == (health, needs)
    assert harness.free() == 3


def test_faults_are_forgotten_after_a_healthy_time() -> None:
    tired = GpuCondition(OK, falls=5, since=0.0)
    assert after_fault(tired, HealthAction.CORDON, "x", FORGET_FAULTS_AFTER_S + 1, CARE).falls == 1
    assert after_fault(tired, HealthAction.CORDON, "x", FORGET_FAULTS_AFTER_S - 1, CARE).falls == 6


def test_probing_ends_with_the_first_failed_check() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 48)
    harness.checked(0)
    harness.checked(0, ok=False)
    assert (harness.condition(0).health, harness.condition(0).good) == (CORDONED, 0)


def test_gpu_that_needs_a_reboot_returns_after_one() -> None:
    harness = OneNodeHarness()
    harness.xid(1, 79)
    harness.xid(2, 119)
    harness.checked(1)
    harness.join("n", gpus=4)
    assert harness.health() == [OK, LOST, CORDONED, OK], "an agent that was restarted is no reboot"
    assert not [
        check for check in harness.checks_ordered() if check[0] in ("GPU-n-1", "GPU-n-2") and check[1]
    ]
    harness.join("n", gpus=4, boot="b2")
    assert harness.health() == [OK, PROBING, PROBING, OK]
    assert sorted(harness.checks_ordered()) == [("GPU-n-1", 0), ("GPU-n-2", 0)]
    for _ in range(3):
        harness.checked(1)
        harness.checked(2)
    assert harness.free() == 4


def test_a_missing_gpu_is_lost_and_checked_when_it_is_back() -> None:
    harness = OneNodeHarness()
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
        harness.checked(3)
    assert harness.free() == 4


def test_a_job_on_a_lost_gpu_gets_the_reason() -> None:
    harness = OneNodeHarness()
    job = harness.submit(spec(gpus=4, restart=NEVER_AGAIN))
    harness.tick()
    harness.start(job)
    member = harness.job(job).members["n"]
    harness.trouble(3, TroubleKind.LOST, "GPU is lost")
    assert member.fault == "GPU 3 of n: GPU is lost"
    harness.exit(job, None, signal=6)
    assert harness.job(job).detail == "GPU 3 of n: GPU is lost (killed by signal 6)"


def test_a_lesser_fault_does_not_replace_a_worse_one() -> None:
    harness = OneNodeHarness()
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
    harness = OneNodeHarness()
    harness.tell(node_inputs.CordonGpu("n", 3, "root", "noisy"))
    assert harness.free() == 3
    harness.checked(3)
    harness.join("n", gpus=4, boot="b2")
    assert harness.condition(3).health is CORDONED, "only an operator puts it back"
    harness.checks_ordered()
    assert (
        harness.refuse(node_inputs.Resume("n", "root")).hint == "GPU 3 takes no jobs: corral nodes resume n:3"
    )
    harness.tell(node_inputs.ResumeGpu("n", 3, "root"))
    assert harness.checks_ordered() == [("GPU-n-3", 0)]
    harness.checked(3)
    assert harness.free() == 4
    assert harness.refuse(node_inputs.ResumeGpu("n", 3, "root")).code == "conflict"
    assert harness.refuse(node_inputs.CordonGpu("n", 9, "root")).code == "not_found"
    assert harness.refuse(node_inputs.CordonGpu("m", 0, "root")).code == "not_found"


def test_a_job_whose_gpu_is_held_by_another_process_is_queued_again() -> None:
    harness = OneNodeHarness()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    [gpu] = harness.gpus_of(job)
    why = f"GPU {gpu} is held by pid 99 (mallory: python mine.py)"
    harness.trouble(gpu, TroubleKind.UNCLEAN, why)
    never = AttemptStatus(job, 1, ended_at=harness.now, why=f"gpu_held: {why}")
    harness.tell(agent_inputs.AgentReported("n", never))
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.GPU_HELD)
    assert harness.job(job).detail == f"queued again: {why}"
    harness.tick()
    assert harness.job(job).attempt == 2
    assert harness.gpus_of(job) != [gpu]
    harness.start(job)
    harness.exit(job)
    assert harness.job(job).state is JobState.COMPLETED


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_its_host_could_not_start_is_queued_again(nodes: int) -> None:
    """No job is placed on that host from this report on until its agent reports again."""
    harness = EngineHarness()
    for name in ("a", "b", "c"):
        harness.join(name)
    job = harness.submit(spec(nodes, nodes=nodes))
    harness.tick()
    before = harness.nodes_of(job)
    why = "the order cannot be written to the spool: No space left on device"
    never = AttemptStatus(job, 1, ended_at=harness.now, why=f"node_unfit: {why}")
    harness.tell(agent_inputs.AgentReported(before[0], never))
    if nodes > 1:
        stopped = AttemptStatus(job, 1, ended_at=harness.now, why="member_failed")
        harness.tell(agent_inputs.AgentReported(before[1], stopped))
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
    """The new agent has checked its host and stays connected, so the node must not stay out of service."""
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
    harness = OneNodeHarness()
    job = harness.submit(spec(gpus=1))
    harness.tick()
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.tell(
        agent_inputs.AgentReported("n", AttemptStatus(job, 1, ended_at=harness.now, why="gpu_held: x"))
    )
    assert harness.job(job).state is JobState.CANCELLED


def test_check_orders_are_sent_again_after_a_lost_link() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 48)
    harness.checks_ordered()
    harness.now += 4
    harness.tell(agent_inputs.LinkWentDown("n", "cut"))
    harness.join("n", gpus=4)
    assert harness.checks_ordered() == [("GPU-n-0", 6)]


def test_a_restart_keeps_gpu_health() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 79)
    harness.trouble(1, TroubleKind.SILENT)
    fresh = State(PIPELINE.order)
    restore_state(fresh, [], [node_row(node) for node in harness.state.nodes])
    assert fresh.nodes.by_name["n"].health == harness.state.nodes.by_name["n"].health


def test_checks_are_ordered_at_the_first_hello_after_a_restart() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 48)
    restarted = OneNodeHarness()
    state = State(PIPELINE.order)
    restore_state(state, [], [node_row(node) for node in harness.state.nodes])
    restarted.engine = Engine(restarted.pipeline, state)
    restarted.checks_ordered()
    restarted.join("n", gpus=4)
    assert restarted.checks_ordered() == [("GPU-n-0", 10)]


def test_health_rows_from_before_checks_still_load() -> None:
    old = {"node": "n", "at": 5.0, "uuid": "GPU-n-0", "health": "suspect", "why": "silent"}
    event = event_of("GpuHealthRecorded", json.dumps(old))
    assert event == GpuHealthRecorded("n", 5.0, "GPU-n-0", SUSPECT, "silent")


def test_configuration_overrides_the_action_for_an_xid() -> None:
    health_policy = GpuHealthPolicy(xids={79: HealthAction.IGNORE})
    assert health_policy.action(79) == (HealthAction.IGNORE, XID_ACTIONS[79][1])
    assert health_policy.action(48)[0] is HealthAction.CORDON


def test_a_check_never_takes_a_healthy_gpu_out() -> None:
    well = GpuCondition()
    assert after_check(well, False, "late", 5.0, CARE) == well
    lost = after_driver_loss(well, "gone", 5.0, CARE)
    waits = [lost]
    for _ in range(5):
        waits.append(after_check(waits[-1], False, "", waits[-1].due, CARE))
    assert all(later.due - later.since >= earlier.due - earlier.since for earlier, later in pairwise(waits))
    assert all(each.health is LOST and each.why == "gone" for each in waits)


class ResettingHarness(OneNodeHarness):
    """The same harness, with agents that may reset GPUs."""

    def __init__(self) -> None:
        EngineHarness.__init__(self, replace(PIPELINE, health_policy=replace(CARE, reset=("reset",))))
        self.join("n", gpus=4)

    def resets(self) -> list[tuple[str, float]]:
        """(GPU, seconds) of every reset ordered since last asked."""
        found = [
            (sent.frame.uuid, sent.frame.after_s) for sent in self.sent if isinstance(sent.frame, ResetGpu)
        ]
        self.sent.clear()
        return found

    def was_reset(self, gpu: int, ok: bool = True, why: str = "") -> None:
        self.tell(agent_inputs.GpuWasReset("n", f"GPU-n-{gpu}", ok, why))


def test_a_free_gpu_is_reset_passes_its_checks_and_returns() -> None:
    harness = ResettingHarness()
    harness.xid(2, 119)
    assert harness.resets() == [("GPU-n-2", 10)]
    harness.was_reset(2)
    assert harness.condition(2).health is PROBING
    for _ in range(3):
        harness.checked(2)
    assert harness.health() == [OK] * 4


def test_a_gpu_in_use_is_reset_when_its_job_has_ended() -> None:
    harness = ResettingHarness()
    job = harness.submit(spec(4))
    harness.tick()
    harness.start(job)
    harness.xid(1, 64)
    assert harness.resets() == []
    harness.now += 60.0
    harness.exit(job, 1)
    assert harness.resets() == [("GPU-n-1", 0.0)]


def test_a_shared_gpu_is_reset_after_its_last_job() -> None:
    harness = ResettingHarness()
    first, second = (harness.submit(spec(0.5)) for _ in range(2))
    harness.tick()
    assert harness.gpus_of(first) == harness.gpus_of(second)
    [gpu] = harness.gpus_of(first)
    harness.xid(gpu, 120)
    for job in (first, second):
        harness.start(job)
        assert harness.resets() == []
        harness.exit(job, 1)
    assert [uuid for uuid, _ in harness.resets()] == [f"GPU-n-{gpu}"]


def test_a_failed_reset_is_reported_and_tried_again_later() -> None:
    harness = ResettingHarness()
    harness.xid(0, 119)
    waits = [wait for _, wait in harness.resets()]
    for _ in range(4):
        harness.was_reset(0, ok=False, why="in use by another client")
        waits += [wait for _, wait in harness.resets()]
    assert waits == [10, 20, 40, 60, 60]
    assert harness.condition(0).why == (
        "Xid 119: its system processor does not answer; the reset failed: in use by another client"
    )
    node = harness.state.nodes.by_name["n"]
    assert harness.restarted().state.nodes.by_name["n"].health == node.health


def test_hello_repeats_reset_orders_that_may_be_lost() -> None:
    harness = ResettingHarness()
    harness.xid(0, 119)
    harness.resets()
    harness.now += 5.0
    harness.join("n", gpus=4)
    assert harness.resets() == [("GPU-n-0", 5.0)]
    harness.join("n", gpus=4, boot="b2")
    assert harness.resets() == []  # the boot was the reset
    assert harness.condition(0).health is PROBING


def test_an_unexpected_reset_changes_nothing() -> None:
    harness = ResettingHarness()
    harness.xid(0, 48)
    before = harness.condition(0)
    harness.was_reset(0)
    harness.was_reset(0, ok=False, why="no")
    harness.was_reset(1)
    assert (harness.condition(0), harness.condition(1).health) == (before, OK)


def test_no_resets_are_ordered_when_they_are_off() -> None:
    harness = OneNodeHarness()
    harness.xid(0, 119)
    assert not any(isinstance(sent.frame, ResetGpu) for sent in harness.sent)


def test_faults_take_a_quarter_of_the_gpus_of_a_model_out_of_service_at_most() -> None:
    harness = EngineHarness(replace(PIPELINE, health_policy=replace(CARE, most_out=0.25)))
    for name in ("n", "m"):
        harness.join(name, gpus=4)

    def report(number: int, code: int = 48) -> GpuCondition:
        node = harness.state.nodes.by_name["nm"[number // 4]]
        gpu = node.facts.gpus[number % 4]
        harness.tell(agent_inputs.GpuTroubled(node.name, gpu.uuid, TroubleKind.XID, xid=code))
        return node.condition(gpu)

    harness.tell(node_inputs.CordonGpu("m", 3, "ann", "repair"))
    assert [report(number).health for number in range(2)] == [CORDONED, CORDONED]
    kept = report(2)
    assert (kept.health, kept.needs) == (OK, "")
    assert kept.why.endswith(
        "it stays in service, because 2 of 8 GPUs of this model are out of service ([gpus] most_out)"
    )
    before = len(harness.events)
    assert report(2) == kept
    assert len(harness.events) == before, "the same fault is recorded once"
    assert report(3, code=79).health is LOST
    for _ in range(3):
        harness.now += 100
        for uuid in ("GPU-n-0", "GPU-n-1"):
            harness.tell(agent_inputs.GpuChecked("n", uuid, True, ""))
    assert report(2).health is CORDONED, "one of eight is out, besides the one that an operator cordoned"
