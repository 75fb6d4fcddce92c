"""GPUs fall ill and get well: what leaves the pool, what the jobs hear, and what it takes to come back."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.core import inputs
from controller.core.engine import Engine
from controller.core.events import GpuHealthRecorded, event_of
from controller.core.health import FORGIVEN_S, XIDS, Action, Care, Condition, fall, look, lose
from controller.core.records import node_row, restore
from controller.core.state import State
from tests.worlds import PIPELINE, World, spec
from wire.frames import AttemptStatus, CheckGpu, ResetGpu
from wire.words import GpuHealth, JobState, Reason, TroubleKind

OK, SUSPECT, CORDONED, PROBING, LOST = (
    GpuHealth.OK,
    GpuHealth.SUSPECT,
    GpuHealth.CORDONED,
    GpuHealth.PROBING,
    GpuHealth.LOST,
)
CARE = Care(check_s=10, check_most_s=60, checks=3)


class Ward(World):
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
        self.tell(inputs.GpuLooked("n", f"GPU-n-{gpu}", ok, "" if ok else "still"))

    def condition(self, gpu: int) -> Condition:
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
    world = Ward()
    hit, other = world.submit(spec(gpus=1)), world.submit(spec(gpus=1))
    world.tick()
    for job in (hit, other):
        world.start(job)
    [gpu] = world.gpus_of(hit)
    world.xid(gpu, code)
    assert (world.condition(gpu).health, world.condition(gpu).needs) == (health, needs)
    assert [each for each in world.health() if each is not OK] == ([health] if health is not OK else [])
    assert world.job(hit).state is JobState.RUNNING, "it may know how to go on"
    world.exit(hit, 1)
    world.exit(other, 1)
    assert (world.job(hit).reason, world.job(other).reason) == (reason, Reason.EXIT_NONZERO)
    if reason is not Reason.EXIT_NONZERO:
        assert world.job(hit).detail.startswith(f"GPU {gpu} of n: Xid {code}: ")
        assert world.job(hit).detail.endswith("(exit code 1)")
    assert world.free() == (4 if health is OK else 3)


def test_a_job_that_succeeds_all_the_same_is_a_success() -> None:
    world = Ward()
    job = world.submit(spec(gpus=1))
    world.tick()
    world.start(job)
    world.xid(world.gpus_of(job)[0], 48)
    world.exit(job, 0)
    assert (world.job(job).state, world.job(job).reason) == (JobState.COMPLETED, Reason.NONE)


def test_a_cordoned_gpu_is_probed_and_returns() -> None:
    world = Ward()
    world.xid(2, 48)
    assert world.looks() == [("GPU-n-2", 10)]
    assert world.free() == 3
    for health, free in ((PROBING, 3), (PROBING, 3), (OK, 4)):
        world.seen(2)
        assert (world.condition(2).health, world.free()) == (health, free)
    assert world.health() == [OK] * 4


def test_a_suspicion_is_over_with_the_first_good_look_and_grave_with_the_first_bad_one() -> None:
    world = Ward()
    world.trouble(0, TroubleKind.SILENT)
    world.trouble(1, TroubleKind.SILENT)
    world.seen(0)
    world.seen(1, ok=False)
    assert world.health()[:2] == [OK, CORDONED]


def test_whoever_falls_again_waits_twice_as_long_up_to_a_limit() -> None:
    world = Ward()
    world.xid(0, 48)
    waits = [seconds for _, seconds in world.looks()]
    for _ in range(4):
        world.seen(0, ok=False)
        waits += [seconds for _, seconds in world.looks()]
    assert waits == [10, 20, 40, 60, 60]


def test_a_long_time_of_health_is_a_fresh_start() -> None:
    tired = Condition(OK, falls=5, since=0.0)
    assert fall(tired, Action.CORDON, "x", FORGIVEN_S + 1, CARE).falls == 1
    assert fall(tired, Action.CORDON, "x", FORGIVEN_S - 1, CARE).falls == 6


def test_probing_ends_with_the_first_bad_look() -> None:
    world = Ward()
    world.xid(0, 48)
    world.seen(0)
    world.seen(0, ok=False)
    assert (world.condition(0).health, world.condition(0).good) == (CORDONED, 0)


def test_what_needs_a_reboot_returns_after_one() -> None:
    world = Ward()
    world.xid(1, 79)
    world.xid(2, 119)
    world.seen(1)
    world.join("n", gpus=4)
    assert world.health() == [OK, LOST, CORDONED, OK], "an agent that was restarted is no reboot"
    assert not [look for look in world.looks() if look[0] in ("GPU-n-1", "GPU-n-2") and look[1]]
    world.join("n", gpus=4, boot="b2")
    assert world.health() == [OK, PROBING, PROBING, OK]
    assert sorted(world.looks()) == [("GPU-n-1", 0), ("GPU-n-2", 0)]
    for _ in range(3):
        world.seen(1)
        world.seen(2)
    assert world.free() == 4


def test_a_gpu_that_the_host_has_no_more_is_lost_and_looked_at_when_it_is_back() -> None:
    world = Ward()
    job = world.submit(spec(gpus=4))
    world.tick()
    world.start(job)
    world.join("n", gpus=3, attempts=())
    world.join("n", gpus=3)
    assert world.free() == 3
    world.join("n", gpus=4)
    assert world.condition(3).health is LOST
    assert world.free() == 3
    for _ in range(3):
        world.seen(3)
    assert world.free() == 4


def test_a_job_on_a_gpu_that_disappears_hears_it() -> None:
    world = Ward()
    job = world.submit(spec(gpus=4))
    world.tick()
    world.start(job)
    told = world.job(job).members["n"]
    world.trouble(3, TroubleKind.LOST, "GPU is lost")
    assert told.fault == "GPU 3 of n: GPU is lost"
    world.exit(job, None, signal=6)
    assert world.job(job).detail == "GPU 3 of n: GPU is lost (killed by signal 6)"


def test_the_worst_stands() -> None:
    world = Ward()
    world.xid(0, 79)
    before = world.condition(0)
    for kind in (TroubleKind.SILENT, TroubleKind.LOST, TroubleKind.UNCLEAN):
        world.trouble(0, kind)
    world.xid(0, 48)
    assert world.condition(0) == before
    world.trouble(1, TroubleKind.SILENT)
    world.xid(1, 48)
    world.trouble(1, TroubleKind.LOST, "gone")
    assert world.condition(1).health is LOST


def test_an_operator_cordons_and_resumes_one_gpu() -> None:
    world = Ward()
    world.tell(inputs.CordonGpu("n", 3, "root", "noisy"))
    assert world.free() == 3
    world.seen(3)
    world.join("n", gpus=4, boot="b2")
    assert world.condition(3).health is CORDONED, "only an operator puts it back"
    world.looks()
    world.tell(inputs.ResumeGpu("n", 3, "root"))
    assert world.looks() == [("GPU-n-3", 0)]
    world.seen(3)
    assert world.free() == 4
    assert world.refuse(inputs.ResumeGpu("n", 3, "root")).code == "conflict"
    assert world.refuse(inputs.CordonGpu("n", 9, "root")).code == "not_found"
    assert world.refuse(inputs.CordonGpu("m", 0, "root")).code == "not_found"


def test_a_job_whose_gpu_is_held_by_somebody_goes_elsewhere() -> None:
    world = Ward()
    job = world.submit(spec(gpus=1))
    world.tick()
    [gpu] = world.gpus_of(job)
    why = f"GPU {gpu} is held by pid 99 (mallory: python mine.py)"
    world.trouble(gpu, TroubleKind.UNCLEAN, why)
    never = AttemptStatus(job, 1, ended_at=world.now, why=f"gpu_held: {why}")
    world.tell(inputs.AgentReported("n", never))
    assert (world.job(job).state, world.job(job).reason) == (JobState.QUEUED, Reason.GPU_HELD)
    assert world.job(job).detail == f"goes elsewhere: {why}"
    world.tick()
    assert world.job(job).attempt == 2
    assert world.gpus_of(job) != [gpu]
    world.start(job)
    world.exit(job)
    assert world.job(job).state is JobState.COMPLETED


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_its_host_could_not_begin_goes_elsewhere(nodes: int) -> None:
    """Nothing is placed on that host from this very landing on, until its agent is there again."""
    world = World()
    for name in ("a", "b", "c"):
        world.join(name)
    job = world.submit(spec(nodes, nodes=nodes))
    world.tick()
    before = world.nodes_of(job)
    why = "the order cannot be written to the spool: No space left on device"
    never = AttemptStatus(job, 1, ended_at=world.now, why=f"node_unfit: {why}")
    world.tell(inputs.AgentReported(before[0], never))
    if nodes > 1:
        stopped = AttemptStatus(job, 1, ended_at=world.now, why="member_failed")
        world.tell(inputs.AgentReported(before[1], stopped))
    unfit = world.state.nodes.by_name[before[0]]
    assert (unfit.up, unfit.why) == (False, f"it cannot run jobs: {why}")
    assert (world.job(job).state, world.job(job).reason) == (JobState.QUEUED, Reason.NODE_UNFIT)
    world.tick()
    assert before[0] not in world.nodes_of(job)
    world.start(job)
    world.exit(job)
    assert world.job(job).state is JobState.COMPLETED
    world.join(before[0])
    assert unfit.up


def test_a_job_that_was_cancelled_meanwhile_goes_nowhere() -> None:
    world = Ward()
    job = world.submit(spec(gpus=1))
    world.tick()
    world.tell(inputs.Cancel(job, "ada"))
    world.tell(inputs.AgentReported("n", AttemptStatus(job, 1, ended_at=world.now, why="gpu_held: x")))
    assert world.job(job).state is JobState.CANCELLED


def test_looks_that_were_ordered_are_ordered_again_after_a_lost_link() -> None:
    world = Ward()
    world.xid(0, 48)
    world.looks()
    world.now += 4
    world.tell(inputs.LinkWentDown("n", "cut"))
    world.join("n", gpus=4)
    assert world.looks() == [("GPU-n-0", 6)]


def test_a_restart_remembers_who_is_sick() -> None:
    world = Ward()
    world.xid(0, 79)
    world.trouble(1, TroubleKind.SILENT)
    fresh = State(PIPELINE.order)
    restore(fresh, [], [node_row(node) for node in world.state.nodes])
    assert fresh.nodes.by_name["n"].health == world.state.nodes.by_name["n"].health


def test_looks_are_ordered_at_the_first_hello_after_a_restart() -> None:
    world = Ward()
    world.xid(0, 48)
    restarted = Ward()
    state = State(PIPELINE.order)
    restore(state, [], [node_row(node) for node in world.state.nodes])
    restarted.engine = Engine(restarted.pipeline, state)
    restarted.looks()
    restarted.join("n", gpus=4)
    assert restarted.looks() == [("GPU-n-0", 10)]


def test_what_was_recorded_before_there_were_looks_still_loads() -> None:
    old = {"node": "n", "at": 5.0, "uuid": "GPU-n-0", "health": "suspect", "why": "silent"}
    event = event_of("GpuHealthRecorded", json.dumps(old))
    assert event == GpuHealthRecorded("n", 5.0, "GPU-n-0", SUSPECT, "silent")


def test_other_actions_can_be_chosen() -> None:
    care = Care(xids={79: Action.IGNORE})
    assert care.action(79) == (Action.IGNORE, XIDS[79][1])
    assert care.action(48)[0] is Action.CORDON


def test_a_look_never_makes_a_well_gpu_sick() -> None:
    well = Condition()
    assert look(well, False, "late", 5.0, CARE) == well
    lost = lose(well, "gone", 5.0, CARE)
    waits = [lost]
    for _ in range(5):
        waits.append(look(waits[-1], False, "", waits[-1].due, CARE))
    assert all(later.due - later.since >= earlier.due - earlier.since for earlier, later in pairwise(waits))
    assert all(each.health is LOST and each.why == "gone" for each in waits)


class ResettingWard(Ward):
    """The same where agents may reset GPUs."""

    def __init__(self) -> None:
        World.__init__(self, replace(PIPELINE, care=replace(CARE, reset=("reset",))))
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


def test_a_free_gpu_is_reset_passes_its_looks_and_takes_work() -> None:
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


def test_of_a_shared_gpu_the_last_has_to_leave() -> None:
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


def test_a_reset_in_vain_is_told_and_tried_again_later_each_time() -> None:
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


def test_a_reset_nobody_waits_for_changes_nothing() -> None:
    ward = ResettingWard()
    ward.xid(0, 48)
    before = ward.condition(0)
    ward.was_reset(0)
    ward.was_reset(0, ok=False, why="no")
    ward.was_reset(1)
    assert (ward.condition(0), ward.condition(1).health) == (before, OK)


def test_who_wants_resets_by_hand_gets_none() -> None:
    ward = Ward()
    ward.xid(0, 119)
    assert not any(isinstance(sent.frame, ResetGpu) for sent in ward.sent)
