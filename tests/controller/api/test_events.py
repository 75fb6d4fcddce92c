"""The journal through the API, and the sentences it is told in."""

from __future__ import annotations

import json

import pytest

from controller.api.sentences import SENTENCES, sentence
from controller.core import events
from controller.core.events import Allocation, Event, Exit, body_of
from tests.controller.api.house import House
from tests.worlds import facts, spec
from wire.frames import Checkpoint, GpuHold
from wire.hosts import HostSpec
from wire.quota import Quota
from wire.reservation import ReservationSpec
from wire.words import GpuHealth, JobState, Reason

TOLD: list[tuple[Event, str]] = [
    (events.JobQueued(7, 1.0, spec(name="train"), "ada"), "ada submitted job 7 (train)"),
    (events.JobQueued(7, 1.0, spec(), "ada", "k", 5, 2), "ada submitted job 5_2 (true)"),
    (events.JobHeld(7, 1.0, "bob"), "bob held job 7"),
    (events.JobReleased(7, 1.0, "bob"), "bob released job 7"),
    (events.DependencyDecided(7, 1.0, 0, True), "one thing less for job 7 to wait for"),
    (
        events.DependencyDecided(7, 1.0, 0, False, "job 3 can no longer succeed: job 3 is FAILED"),
        "job 7 waited for what never will be: job 3 can no longer succeed: job 3 is FAILED",
    ),
    (events.GateOpened(7, 1.0, Reason.DEPENDENCY), "job 7 has all that it waited for"),
    (
        events.JobEdited(7, 1.0, spec(priority=75), "bob", ("priority", "name")),
        "bob changed priority, name of job 7",
    ),
    (
        events.JobRelaxed(7, 1.0, ("selector", "nodes")),
        "job 7 waited long enough to do without selector, nodes",
    ),
    (events.JobPromoted(7, 1.0, 60), "job 7 waited long enough for a priority of 60"),
    (
        events.PredictionOutlived(7, 1.0, 7_200.0),
        "job 7 runs longer than predicted: plans count on 2h00m",
    ),
    (events.PredictionOutlived(7, 1.0, None), "job 7 runs longer than predicted: plans count on its limit"),
    (
        events.PriorityInherited(7, 1.0, 90, "17_2"),
        "job 7 inherited priority 90 from job 17_2",
    ),
    (
        events.DeadlineDoubted(7, 1.0, True),
        "job 7 can no longer keep its deadline as things stand: its room comes free too late",
    ),
    (events.StartEstimated(7, 1.0, "likely", 61.0), "job 7 is to start in 1m00s (likely)"),
    (events.DeadlineDoubted(7, 1.0, False), "job 7 can keep its deadline after all"),
    (events.PriorityInherited(7, 1.0, 0, ""), "job 7 inherits no priority any more"),
    (events.GateClosed(7, 1.0, Reason.ARRAY), "job 7 has no slot of its array any more"),
    (events.GateOpened(7, 1.0, Reason.ARRAY), "job 7 has a slot of its array"),
    (events.GateOpened(7, 1.0, Reason.BEGIN), "job 7 may begin now"),
    (events.GateOpened(7, 1.0, Reason.BACKOFF), "job 7 waited long enough to start again"),
    (
        events.JobPlaced(7, 1.0, 2, (Allocation("a", 1, 1, (GpuHold("u", 1000), GpuHold("v", 1000))),), 150),
        "job 7 got 2 GPUs on a (attempt 2)",
    ),
    (
        events.JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1, (GpuHold("u", 250),)),), 150),
        "job 7 got 0.25 GPU on a (attempt 1)",
    ),
    (
        events.JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1), Allocation("b", 1, 1)), 50),
        "job 7 got room on a, b (attempt 1)",
    ),
    (
        events.JobPlaced(7, 1.0, 1, (Allocation("a", 1, 1),), 50, profile="inference"),
        "job 7 got room on a (attempt 1, profile inference)",
    ),
    (events.MemberReady(7, 1.0, 1, "a"), "job 7 is ready on a and waits for the others"),
    (events.AttemptStarted(7, 1.0, 1, "a", 99), "job 7 runs on a (attempt 1)"),
    (
        events.CheckpointSaved(7, 1.0, 1, "a", Checkpoint("/shared/7/step-1", 10, 0.5)),
        "job 7 saved /shared/7/step-1",
    ),
    (events.IdleNoted(7, 3_601.0, 1, 1.0), "the GPUs of job 7 have done nothing for 1h00m"),
    (
        events.HostKeyPinned(1.0, "a", "ssh-ed25519 AAAA", "ada"),
        "ada pinned the host key SHA256:cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw of node a",
    ),
    (
        events.StrangerCame(1.0, "a", "GPU-1", "eve", 99, "python x.py"),
        "eve uses GPU GPU-1 of node a past the queue: python x.py",
    ),
    (
        events.StrangerLeft(61.0, "a", "GPU-1", "eve", 1.0),
        "eve has left GPU GPU-1 of node a after 1m00s past the queue",
    ),
    (events.IdleEnded(7, 1.0, 1), "the GPUs of job 7 work again"),
    (events.AttemptExited(7, 1.0, 1, "a", 3), "job 7 ended on a: exit code 3"),
    (events.AttemptExited(7, 1.0, 1, "a", None, 9), "job 7 ended on a: signal 9"),
    (events.AttemptExited(7, 1.0, 1, "a", None, 15, "time_limit"), "job 7 ended on a: time limit"),
    (events.MembersStarted(7, 1.0, 1, {"a": 98, "b": 99}), "job 7 runs on a, b (attempt 1)"),
    (
        events.MembersExited(7, 1.0, 1, {"a": Exit(0), "b": Exit(3), "c": Exit(0)}),
        "job 7 ended on b: exit code 3; on a, c: exit code 0",
    ),
    (events.StopRequested(7, 1.0, Reason.USER, "bob"), "bob cancelled job 7"),
    (
        events.StopRequested(7, 1.0, Reason.PREEMPTED, "job 9", 61.0),
        "job 7 makes room: preempted by job 9",
    ),
    (
        events.PreemptionPlanned(
            9,
            1.0,
            (Allocation("a", 1, 1), Allocation("b", 1, 1)),
            50,
            (events.Victim(7, 2.5), events.Victim(8, 0.75)),
            "priority",
            61.0,
        ),
        "job 9 gets a, b from job 7, 8: 3.2 GPU-hours lost",
    ),
    (
        events.PreemptionDropped(9, 1.0, "node a is away"),
        "no room is kept for job 9 any more: node a is away",
    ),
    (
        events.JobShrunk(7, 1.0, 2, ("b", "c"), "job 9", 2.5),
        "job 7 gives up b, c for job 9: 2.5 GPU-hours lost",
    ),
    (events.JobGrew(7, 1.0, 2, (Allocation("c", 1, 1),)), "job 7 got c as well"),
    (events.JobPreempted(7, 1.0, 2, "job 9", 2.5), "job 7 was preempted by job 9: 2.5 GPU-hours lost"),
    (events.StopRequested(7, 1.0, Reason.MEMBER_FAILED, "b"), "job 7 is being stopped: member failed (b)"),
    (
        events.StopRequested(7, 1.0, Reason.EVICTED, "taint x:NoExecute of a"),
        "job 7 has to leave: taint x:NoExecute of a",
    ),
    (events.JobRequeued(7, 1.0, 1, Reason.NODE_LOST), "job 7 is queued again: node lost"),
    (events.JobEnded(7, 1.0, JobState.COMPLETED, Reason.NONE, code=0), "job 7 is COMPLETED"),
    (
        events.JobEnded(7, 1.0, JobState.FAILED, Reason.EXIT_NONZERO, "exit code 3"),
        "job 7 is FAILED: exit code 3",
    ),
    (events.NodeAdded("a", 1.0), "node a was added by the configuration"),
    (
        events.NodeAdded("a", 1.0, host=HostSpec("ada@gpu01:22"), by="bob"),
        "node a at ada@gpu01:22 was added by bob",
    ),
    (events.NodeRemoved("a", 1.0, "bob"), "bob removed node a"),
    (events.NodeJoined("a", 1.0, facts("a", gpus=8), "boot"), "node a joined with 8 × H100"),
    (events.NodeJoined("a", 1.0, facts("a", gpus=0), "boot"), "node a joined"),
    (
        events.NodeMarked("a", 1.0, "bob", {"rack": "r1", "disk": None}, {"gpu:NoSchedule": "big"}),
        "bob set the label rack=r1, took away the label disk, set the taint gpu=big:NoSchedule on node a",
    ),
    (events.NodeWentAway("a", 1.0, "cable"), "node a is away: cable"),
    (events.NodeWentDown("a", 1.0), "node a is down: it has not been heard of for long"),
    (events.NodeDeclaredLost("a", 1.0, "bob"), "bob declared node a lost"),
    (events.NodeDrained("a", 1.0, "", "bob"), "bob drained node a"),
    (events.NodeResumed("a", 1.0, "bob"), "bob resumed node a"),
    (
        events.GpuHealthRecorded("a", 1.0, "GPU-1", GpuHealth.CORDONED, "Xid 79"),
        "GPU GPU-1 of node a is cordoned: Xid 79",
    ),
    (
        events.GpuFaultNoted(7, 1.0, 1, "a", "GPU 3 of a: Xid 13: graphics engine exception", own=True),
        "job 7 met trouble by its own doing: GPU 3 of a: Xid 13: graphics engine exception",
    ),
    (events.QuotaSet(1.0, "user", "ada", Quota(), "root"), "root set the quota of user ada"),
    (events.QuotaUnset(1.0, "user", "ada", "root"), "root took back the quota set for user ada"),
    (
        events.ReservationMade(1.0, ReservationSpec("fans", 2.0, 3.0, ("a", "b")), ("a", "b"), "root"),
        "root made reservation fans on a, b",
    ),
    (events.ReservationBegan(1.0, "fans"), "reservation fans began"),
    (events.ReservationEnded(1.0, "fans"), "reservation fans is over"),
    (events.ReservationCancelled(1.0, "fans", "root"), "root cancelled reservation fans"),
    (
        events.PluginFailed(1.0, "scorer", "mine", "KeyError: 'zone'", False),
        "the scorer mine failed: KeyError: 'zone'",
    ),
    (
        events.PluginFailed(1.0, "scorer", "mine", "boom", True),
        "the scorer mine failed: boom - it is asked no more until the controller starts anew",
    ),
    (
        events.RebalancePlanned(1.0, "3f9a2c41", "defragment", "root", (7, 8), 2.25, 40.0, 9),
        "root moves job 7, 8 to let job 9 start (rebalancing 3f9a2c41): 2.2 GPU-hours lost",
    ),
    (
        events.RebalancePlanned(1.0, "3f9a2c41", "drain", "corral", (7,), 0.5, 4.0, node="a"),
        "corral moves job 7 to empty node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        events.RebalancePlanned(1.0, "3f9a2c41", "load", "corral", (7,), 0.5, 0.0, node="a"),
        "corral moves job 7 to lighten node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        events.RebalancePlanned(1.0, "3f9a2c41", "defragment", "corral", (7,), 0.5, 8.0, node="a"),
        "corral moves job 7 to gather what is free on node a (rebalancing 3f9a2c41): 0.5 GPU-hours lost",
    ),
    (
        events.MovePlanned(7, 1.0, 1, (Allocation("b", 1, 1),), 100, "3f9a2c41", "drain", 0.5, 61.0),
        "job 7 is to move to b, which is kept for it (rebalancing 3f9a2c41)",
    ),
    (
        events.MoveUndone(7, 1.0, 1, "node b is down", (Allocation("a", 1, 1),)),
        "job 7 is not moved: node b is down; it goes back to a",
    ),
    (
        events.MoveUndone(7, 1.0, 1, "node b is down"),
        "job 7 is not moved: node b is down; it waits in its old place in the queue",
    ),
    (events.ShareSet(1.0, "vision/ada", 2.5, "root"), "root gave vision/ada the weight 2.5"),
]


@pytest.mark.parametrize(("event", "told"), TOLD, ids=lambda value: type(value).__name__)
def test_what_happened_in_a_sentence(event: Event, told: str) -> None:
    assert sentence(type(event).__name__, json.loads(body_of(event))) == told


def test_every_kind_of_event_has_its_sentence() -> None:
    assert set(SENTENCES) == set(events.KINDS)
    assert {type(event).__name__ for event, _ in TOLD} == set(events.KINDS)


def test_a_kind_of_the_future_is_told_by_its_name() -> None:
    assert sentence("JobBumped", {"job": 7}) == "job 7: job bumped"
    assert sentence("RackCaughtFire", {}) == "cluster: rack caught fire"


async def test_the_journal_page_by_page(house: House) -> None:
    await house.join("gpu01")
    first, second = await house.submit(hold=True), await house.submit(hold=True)
    await house.post(f"/v1/jobs/{first}/release")
    seen, after = [], 0
    while True:
        _, page = await house.get("/v1/events", after=after, limit=2)
        if not page["events"]:
            break
        seen += [event["seq"] for event in page["events"]]
        after = page["seq"]
    assert seen == list(range(1, after + 1))
    _, page = await house.get("/v1/events", job=second)
    assert [(event["kind"], event["job"]) for event in page["events"]] == [("JobQueued", second)]


async def test_events_tell_everybody_and_so_no_secrets(house: House) -> None:
    await house.submit("curl", "--token", "hush", env={"PASSWORD": "hush"}, key="hush")
    _, page = await house.get("/v1/events")
    assert "hush" not in json.dumps(page)
    (event,) = page["events"]
    assert event["data"]["spec"]["command"] == ["curl"]
