"""The journal through the API, and the sentence of each event."""

from __future__ import annotations

import json

import pytest

from controller.api.views.event_sentences import SENTENCES, jobs_of, labelled, sentence
from controller.core.lifecycle.replica_room import KEPT_ROOM, SUCCESSOR
from controller.core.model.allocation import Allocation
from controller.core.model.events.access import TokenCreated, TokenRevoked
from controller.core.model.events.attempts import (
    BATCH_ENDED,
    AttemptExited,
    AttemptStarted,
    CheckpointSaved,
    EndWarned,
    Exit,
    GpuFaultNoted,
    HealthChanged,
    IdleEnded,
    IdleKept,
    IdleNoted,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    JobShrunk,
    MemberReady,
    MembersExited,
    MembersStarted,
    PredictionOutlived,
    StepsRecorded,
    StopRequested,
)
from controller.core.model.events.controller import ConfigApplied, JournalSealed, PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.events.kinds import KINDS, body_of, kind_of
from controller.core.model.events.nodes import (
    DrainBegan,
    GpuHealthRecorded,
    HostKeyPinned,
    NodeAdded,
    NodeDeclaredLost,
    NodeDrained,
    NodeJoined,
    NodeMarked,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    NodeWentDown,
)
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
    RebalancePlanned,
    Victim,
)
from controller.core.model.events.queued import (
    DeadlineAtRisk,
    DependencyDecided,
    GateClosed,
    GateOpened,
    JobEdited,
    JobHeld,
    JobPromoted,
    JobQueued,
    JobRelaxed,
    JobReleased,
    PriorityInherited,
    StartEstimated,
    WaitAlarmed,
)
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.events.tenants import (
    BudgetReached,
    HoursChanged,
    OffQueueProcessEnded,
    OffQueueProcessStarted,
    QuotaSet,
    QuotaUnset,
    ShareSet,
)
from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.model.services import Replica
from controller.core.model.tokens import TokenRecord
from tests.controller.api.running_controller import RunningController, start_controller
from tests.engine_harness import facts, spec
from wire.agent.orders import GpuHold
from wire.agent.reports import Checkpoint
from wire.cluster.hosts import HostSpec
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.steps import Step
from wire.names import GpuHealth, JobState, Reason
from wire.workload.spec import WorkloadSpec, WorkloadTask

TOLD: list[tuple[Event, str]] = [
    (JobQueued(7, 1.0, spec(name="train"), "ada"), "ada submitted job 7 (train)"),
    (JobQueued(7, 1.0, spec(), "ada", "k", 5, 2), "ada submitted job 5_2 (true)"),
    (
        JobQueued(7, 1.0, spec(), "ada", replica=Replica("web", 2, "ab12")),
        "job 7 was queued for replica 2 of service web",
    ),
    (
        WorkloadSubmitted(1.0, 3, WorkloadSpec((WorkloadTask("train", spec()),), "sweep"), "ada"),
        "ada submitted workload 3 (sweep): train",
    ),
    (WorkloadRetried(1.0, 3, "ada", (7, 8)), "ada retried 2 jobs of workload 3"),
    (HealthChanged(7, 1.0, 1, True), "job 7 is healthy"),
    (HealthChanged(7, 1.0, 1, False, "HTTP status 503"), "job 7 is unhealthy: HTTP status 503"),
    (ServiceRestarted(1.0, "web", "root"), "root restarted service web"),
    (ServiceScaled(1.0, "web", 5, 3, "root"), "root set service web to 5 replicas"),
    (
        ServiceScaled(1.0, "web", None, 3, "root"),
        "root let scheduler.toml decide the replicas of service web",
    ),
    (
        StopRequested(7, 1.0, Reason.SERVICE, "job 9 has replaced it"),
        "job 7 is being stopped: job 9 has replaced it",
    ),
    (
        PreemptionPlanned(7, 1.0, (Allocation("a", 1, 1),), 0, (), KEPT_ROOM, 2.0),
        "a: resources are kept for the restart of job 7",
    ),
    (
        PreemptionPlanned(*(9, 1.0, (Allocation("a", 1, 1),), 0, (Victim(7, 0.0, 1),), SUCCESSOR, 2.0)),
        "job 9 gets the resources of job 7 on a",
    ),
    (JobHeld(7, 1.0, "bob"), "bob held job 7"),
    (JobHeld(7, 1.0, "bob", operator=True), "operator bob held job 7"),
    (
        ConfigApplied(1.0, "ab12", "bob", ("scheduler.order", "queues.short")),
        "bob applied a configuration: scheduler.order, queues.short",
    ),
    (ConfigApplied(1.0, "ab12", ""), "the controller started with the configuration ab12"),
    (JobReleased(7, 1.0, "bob"), "bob released job 7"),
    (DependencyDecided(7, 1.0, 0, True), "a dependency of job 7 is met"),
    (
        DependencyDecided(7, 1.0, 0, False, "job 3 can no longer succeed: job 3 is FAILED"),
        "a dependency of job 7 can never be met: job 3 can no longer succeed: job 3 is FAILED",
    ),
    (GateOpened(7, 1.0, Reason.DEPENDENCY), "job 7 has no unmet dependencies now"),
    (
        JobEdited(7, 1.0, spec(priority=75), "bob", ("priority", "name")),
        "bob changed priority, name of job 7",
    ),
    (
        JobRelaxed(7, 1.0, ("selector", "nodes")),
        "job 7 has waited long enough: it no longer requires selector, nodes",
    ),
    (
        WaitAlarmed(7, 9_000.0, 7_200.0, 600.0),
        "job 7 has waited for 2h00m; half of the jobs of its queue with a similar number of GPUs started "
        "within 10m00s",
    ),
    (JobPromoted(7, 1.0, 60), "job 7 has waited long enough: its priority is 60 now"),
    (
        PredictionOutlived(7, 1.0, 7_200.0),
        "job 7 runs longer than predicted; the scheduler now expects that it runs for 2h00m",
    ),
    (
        PredictionOutlived(7, 1.0, None),
        "job 7 runs longer than predicted; the scheduler now expects that it runs until its time limit",
    ),
    (
        PriorityInherited(7, 1.0, 90, "17_2"),
        "job 7 inherits priority 90 of job 17_2, which waits for it",
    ),
    (
        DeadlineAtRisk(7, 1.0, True),
        "job 7 will miss its deadline: the resources it needs become free too late",
    ),
    (StartEstimated(7, 1.0, "likely", 61.0), "job 7 should start in 1m00s (likely)"),
    (DeadlineAtRisk(7, 1.0, False), "job 7 can meet its deadline again"),
    (PriorityInherited(7, 1.0, 0, ""), "job 7 no longer inherits a priority"),
    (GateClosed(7, 1.0, Reason.ARRAY), "job 7 waits again: its array runs as many jobs as allowed"),
    (GateOpened(7, 1.0, Reason.ARRAY), "job 7 is now within the limit of running jobs of its array"),
    (GateOpened(7, 1.0, Reason.BEGIN), "job 7 has reached its begin time"),
    (GateOpened(7, 1.0, Reason.BACKOFF), "job 7 has waited long enough after its last attempt"),
    (
        JobPlaced(7, 1.0, 2, (Allocation("a", 1, 1, (GpuHold("u", 1000), GpuHold("v", 1000))),), 150),
        "job 7 was placed on a with 2 GPUs (attempt 2)",
    ),
    (
        JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1, (GpuHold("u", 250),)),), 150),
        "job 7 was placed on a with 0.25 GPU (attempt 1)",
    ),
    (
        JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1), Allocation("b", 1, 1)), 50),
        "job 7 was placed on a, b (attempt 1)",
    ),
    (
        JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1),), 50, profile="inference"),
        "job 7 was placed on a (attempt 1, profile inference)",
    ),
    (MemberReady(7, 1.0, 1, "a"), "job 7 is ready on a and waits for its other nodes"),
    (AttemptStarted(7, 1.0, 1, "a", 99), "job 7 runs on a (attempt 1)"),
    (
        CheckpointSaved(7, 1.0, 1, "a", Checkpoint("/shared/7/step-1", 10, 0.5)),
        "job 7 saved the checkpoint /shared/7/step-1",
    ),
    (StepsRecorded(7, 1.0, 1, "a", (Step(0), Step(1))), "job 7 has run 2 steps"),
    (IdleNoted(7, 3_601.0, 1, 1.0), "the GPUs of job 7 have been idle for 1h00m"),
    (
        HostKeyPinned(1.0, "a", "ssh-ed25519 AAAA", "ada"),
        "ada pinned the host key SHA256:cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw of node a",
    ),
    (
        OffQueueProcessStarted(1.0, "a", "GPU-1", "eve", 99, "python x.py"),
        "eve uses GPU GPU-1 of node a without a job: python x.py",
    ),
    (
        OffQueueProcessEnded(61.0, "a", "GPU-1", "eve", 1.0),
        "eve has used GPU GPU-1 of node a without a job for 1m00s; the process has ended",
    ),
    (
        IdleKept(7, 1.0, 1, "ada", 3_601.0, "reads plots"),
        "ada keeps job 7 for 1h00m although its GPUs are idle: reads plots",
    ),
    (IdleEnded(7, 1.0, 1), "the GPUs of job 7 are busy again"),
    (AttemptExited(7, 1.0, 1, "a", 3), "job 7 ended on a: exit code 3"),
    (AttemptExited(7, 1.0, 1, "a", None, 9), "job 7 ended on a: signal 9"),
    (AttemptExited(7, 1.0, 1, "a", None, 15, "time_limit"), "job 7 ended on a: time limit"),
    (MembersStarted(7, 1.0, 1, {"a": 98, "b": 99}), "job 7 runs on a, b (attempt 1)"),
    (
        MembersExited(7, 1.0, 1, {"a": Exit(0), "b": Exit(3), "c": Exit(0)}),
        "job 7 ended on b: exit code 3; on a, c: exit code 0",
    ),
    (StopRequested(7, 1.0, Reason.USER, "bob"), "bob cancelled job 7"),
    (
        StopRequested(7, 1.0, Reason.PREEMPTED, "job 9", 61.0),
        "job 7 is being stopped: preempted by job 9",
    ),
    (
        PreemptionPlanned(
            9,
            1.0,
            (Allocation("a", 1, 1), Allocation("b", 1, 1)),
            50,
            (Victim(7, 2.5), Victim(8, 0.75)),
            "priority",
            61.0,
        ),
        "job 9 preempts jobs 7, 8 on a, b: 3.2 GPU-hours lost",
    ),
    (
        PreemptionDropped(9, 1.0, "node a is away"),
        "the preemption for job 9 is cancelled: node a is away",
    ),
    (
        JobShrunk(7, 1.0, 2, ("b", "c"), "job 9", 2.5),
        "job 7 gives up b, c for job 9: 2.5 GPU-hours lost",
    ),
    (
        JobShrunk(7, 1.0, 2, ("b", "c"), BATCH_ENDED, 0.0),
        "job 7 releases b, c: its batch command has ended",
    ),
    (
        HoursChanged(1.0, ("night",)),
        "quotas and weights of [hours.night] are in force",
    ),
    (
        HoursChanged(1.0, ()),
        "quotas and weights of [quota] and [fair_share] are in force",
    ),
    (
        BudgetReached(1.0, "vision", "2026-11", 80, "80 of 100 GPU-hours"),
        "project vision has used 80 % of its budget for 2026-11: 80 of 100 GPU-hours",
    ),
    (JobGrew(7, 1.0, 2, (Allocation("c", 1, 1),)), "job 7 grows by c"),
    (JobPreempted(7, 1.0, 2, "job 9", 2.5), "job 7 was preempted by job 9: 2.5 GPU-hours lost"),
    (StopRequested(7, 1.0, Reason.MEMBER_FAILED, "b"), "job 7 is being stopped: member failed (b)"),
    (
        StopRequested(7, 1.0, Reason.EVICTED, "taint x:NoExecute of a"),
        "job 7 is being evicted: taint x:NoExecute of a",
    ),
    (JobRequeued(7, 1.0, 1, Reason.NODE_LOST), "job 7 is queued again: node lost"),
    (JobEnded(7, 1.0, JobState.COMPLETED, Reason.NONE, code=0), "job 7 is COMPLETED"),
    (
        JobEnded(7, 1.0, JobState.FAILED, Reason.EXIT_NONZERO, "exit code 3"),
        "job 7 is FAILED: exit code 3",
    ),
    (NodeAdded("a", 1.0), "node a was added by the configuration"),
    (
        NodeAdded("a", 1.0, host=HostSpec("ada@gpu01:22"), by="bob"),
        "node a at ada@gpu01:22 was added by bob",
    ),
    (NodeRemoved("a", 1.0, "bob"), "bob removed node a"),
    (NodeJoined("a", 1.0, facts("a", gpus=8), "boot"), "node a joined with 8 × H100"),
    (NodeJoined("a", 1.0, facts("a", gpus=0), "boot"), "node a joined"),
    (
        NodeMarked("a", 1.0, "bob", {"rack": "r1", "disk": None}, {"gpu:NoSchedule": "big"}),
        "bob set the label rack=r1, removed the label disk, set the taint gpu=big:NoSchedule on node a",
    ),
    (NodeWentAway("a", 1.0, "cable"), "node a is away: cable"),
    (NodeWentDown("a", 1.0), "node a is down: its agent has been silent for too long"),
    (NodeDeclaredLost("a", 1.0, "bob"), "bob declared node a lost"),
    (NodeDrained("a", 1.0, "", "bob"), "bob drained node a"),
    (
        NodeDrained("a", 1.0, "fan", "bob", 7_201.0),
        "bob drained node a, which is to be empty in 2h00m: fan",
    ),
    (DrainBegan("a", 1.0), "node a is drained now: the time by which it was to be empty has come"),
    (
        EndWarned(7, 1.0, 1, 61.0, Reason.DRAINED, "the drain of node a"),
        "job 7 is told to stop in 1m00s: the drain of node a",
    ),
    (NodeResumed("a", 1.0, "bob"), "bob resumed node a"),
    (
        GpuHealthRecorded("a", 1.0, "GPU-1", GpuHealth.CORDONED, "Xid 79"),
        "GPU GPU-1 of node a is cordoned: Xid 79",
    ),
    (
        GpuFaultNoted(7, 1.0, 1, "a", "GPU 3 of a: Xid 13: graphics engine exception", own=True),
        "job 7 had a GPU fault (caused by the job): GPU 3 of a: Xid 13: graphics engine exception",
    ),
    (QuotaSet(1.0, "user", "ada", Quota(), "root"), "root set the quota of user ada"),
    (
        TokenCreated(1.0, TokenRecord("k7", "user", "ci", "ada", "00", ("read",), 1.0, "root")),
        "root created token k7 (ci) of ada",
    ),
    (TokenRevoked(1.0, "k7", "ada", "ci", "root"), "root revoked token k7 (ci) of ada"),
    (TokenRevoked(1.0, "k7", "ada", "ci", ""), "token k7 (ci) of ada expired and was removed"),
    (QuotaUnset(1.0, "user", "ada", "root"), "root removed the quota that was set for user ada"),
    (
        ReservationMade(1.0, ReservationSpec("fans", 2.0, 3.0, ("a", "b")), ("a", "b"), "root"),
        "root made reservation fans on a, b",
    ),
    (ReservationBegan(1.0, "fans"), "reservation fans began"),
    (ReservationEnded(1.0, "fans"), "reservation fans ended"),
    (ReservationCancelled(1.0, "fans", "root"), "root cancelled reservation fans"),
    (
        JournalSealed(1.0, 90_000, "ab" * 32),
        "the journal entries up to 90000 are deleted; the hash of the last one is abababababababab…",
    ),
    (
        PluginFailed(1.0, "scorer", "mine", "KeyError: 'zone'", False),
        "the scorer mine failed: KeyError: 'zone'",
    ),
    (
        PluginFailed(1.0, "scorer", "mine", "boom", True),
        "the scorer mine failed: boom; it is not used again until a restart or another configuration",
    ),
    (
        RebalancePlanned(1.0, "3f9a2c41", "defragment", "root", (7, 8), 2.25, 40.0, 9),
        "root moves jobs 7, 8 to let job 9 start (rebalancing 3f9a2c41): 2.2 GPU-hours lost",
    ),
    (
        RebalancePlanned(1.0, "3f9a2c41", "drain", "corral", (7,), 0.5, 4.0, node="a"),
        "corral moves job 7 to drain node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        RebalancePlanned(1.0, "3f9a2c41", "load", "corral", (7,), 0.5, 0.0, node="a"),
        "corral moves job 7 to reduce the load of node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        RebalancePlanned(1.0, "3f9a2c41", "defragment", "corral", (7,), 0.5, 8.0, node="a"),
        "corral moves job 7 to free whole GPUs on node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        MovePlanned(7, 1.0, 1, (Allocation("b", 1, 1),), 100, "3f9a2c41", "drain", 0.5, 61.0),
        "job 7 moves to b, which is reserved for it (rebalancing 3f9a2c41)",
    ),
    (
        MoveUndone(7, 1.0, 1, "node b is down", (Allocation("a", 1, 1),)),
        "job 7 is not moved: node b is down; it is restarted on a",
    ),
    (
        MoveUndone(7, 1.0, 1, "node b is down"),
        "job 7 is not moved: node b is down; it waits at its old position in the queue",
    ),
    (ShareSet(1.0, "vision/ada", 2.5, "root"), "root gave vision/ada the weight 2.5"),
]


@pytest.mark.parametrize(("event", "expected"), TOLD, ids=lambda value: type(value).__name__)
def test_sentence_of_each_event(event: Event, expected: str) -> None:
    assert sentence(kind_of(event), json.loads(body_of(event))) == expected


def test_every_kind_of_event_has_a_sentence() -> None:
    assert set(SENTENCES) == set(KINDS)
    assert {kind_of(event) for event, _ in TOLD} == set(KINDS)


def test_unknown_kind_of_event_is_shown_by_its_name() -> None:
    assert sentence("JobBumped", {"job": 7}) == "job 7: job bumped"
    assert sentence("RackCaughtFire", {}) == "cluster: rack caught fire"


async def test_journal_is_listed_page_by_page(api: RunningController) -> None:
    await api.join("gpu01")
    first, second = await api.submit(hold=True), await api.submit(hold=True)
    await api.post(f"/v1/jobs/{first}/release")
    seen, after = [], 0
    while True:
        _, page = await api.get("/v1/events", after=after, limit=2)
        if not page["events"]:
            break
        seen += [event["seq"] for event in page["events"]]
        after = page["seq"]
    assert seen == list(range(1, after + 1))
    _, page = await api.get("/v1/events", job=second)
    assert [(event["kind"], event["job"]) for event in page["events"]] == [("JobQueued", second)]


@pytest.mark.parametrize("keep_ended", [10, 0], ids=["in memory", "in the store alone"])
async def test_array_element_has_one_label_everywhere(keep_ended: int) -> None:
    async with start_controller(controller={"keep_ended": keep_ended}) as api:
        await api.join("gpu01")
        first = await api.submit(array="3-5")
        for job in (first, first + 1, first + 2):
            await api.ended(job)
        _, page = await api.get("/v1/events")
        expected = [event for event in page["events"] if event["job"] == first + 1]
        assert {event["label"] for event in expected} == {f"{first}_4"}
        assert [event["text"] for event in expected] == [
            f"root submitted job {first}_4 (true)",
            f"job {first}_4 was placed on gpu01 (attempt 1)",
            f"job {first}_4 runs on gpu01 (attempt 1)",
            f"job {first}_4 ended on gpu01: exit code 0",
            f"job {first}_4 is COMPLETED",
        ]
        async with api.session.get("http://corral/v1/stream?after=0") as stream:
            async for line in stream.content:
                if line.startswith(b"data: "):
                    batch = json.loads(line[len("data: ") :])
                    break
        assert [event["text"] for event in batch["events"] if event["job"] == first + 1] == [
            event["text"] for event in expected
        ]


def test_all_jobs_of_an_event_have_labels() -> None:
    victims = (Victim(8, 1.5), Victim(9, 0.5))
    facts = json.loads(
        body_of(PreemptionPlanned(7, 1.0, (Allocation("gpu01", 0, 0),), 0, victims, "priority", 2.0))
    )
    assert {*jobs_of(facts)} == {7, 8, 9}
    expected = sentence("PreemptionPlanned", labelled(facts, {7: "5_2", 8: "6_0", 9: "9"}))
    assert expected == "job 5_2 preempts jobs 6_0, 9 on gpu01: 2.0 GPU-hours lost"


async def test_events_contain_no_secrets(api: RunningController) -> None:
    await api.submit("curl", "--token", "hush", env={"PASSWORD": "hush"}, key="hush")
    _, page = await api.get("/v1/events")
    assert "hush" not in json.dumps(page)
    (event,) = page["events"]
    assert event["data"]["spec"]["command"] == ["curl"]
