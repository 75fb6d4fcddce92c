"""The traps that execution engines set, played by the fake engine. docs/engines.md has the numbers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engines.contract import PREEMPTED_THERE, AskRefused, ForeignNode, ForeignState, Outcome
from controller.engines.driver.foreign_attempts import PROOF_S, Presence
from tests.controller.engines.fake_engine import INTERVAL, LOST_AFTER, PREFIX, Rig, World
from wire.agent.orders import Go, Stop, TimeLimit
from wire.agent.reports import NodeFacts


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path / "fake")
    await made.round()
    made.connect()
    return made


async def running(rig: Rig, job: int = 1) -> str:
    """Start a job, wait until it was seen, and return the name of its foreign job."""
    tag = rig.start(job)
    await rig.settle()
    await rig.round()
    [found] = rig.world.of(tag)
    return found.ref


async def test_ordinary_life(rig: Rig) -> None:
    ref = await running(rig)
    started = rig.last(1)
    assert started is not None
    assert (started.started_at, started.ended_at) == (rig.now, None)
    rig.world.finish(ref, Outcome(code=3))
    await rig.round()
    ended = rig.ended(1)
    assert ended is not None
    assert (ended.code, ended.why) == (3, "")
    assert rig.world.forgotten == []
    rig.settled(1)
    await rig.settle()
    assert rig.world.forgotten == [ref]
    assert rig.world.asks == [(f"{PREFIX}1-1-0", False)]


async def test_1_failing_looks_change_nothing_and_open_the_breaker(rig: Rig) -> None:
    await running(rig)
    rig.world.look_fails = "squeue: error: Unable to contact slurm controller"
    for _ in range(40):
        await rig.round()
    assert rig.ended(1) is None
    assert rig.driver.breaker.is_open
    assert "Unable to contact" in rig.driver.frames.problem("fake-n1")
    assert rig.world.looks < 20  # because the pause between two looks grows
    rig.world.look_fails = ""
    rig.now += 300
    await rig.round()
    assert rig.driver.frames.problem("fake-n1") == ""
    assert rig.ended(1) is None


async def test_2_one_empty_answer_is_no_end(rig: Rig) -> None:
    await running(rig)
    rig.world.lies_empty = 2
    await rig.rounds(4)
    assert rig.ended(1) is None
    [attempt] = rig.driver.attempts
    assert attempt.presence is Presence.SEEN


async def test_3_an_incomplete_answer_is_no_absence(rig: Rig) -> None:
    await running(rig)
    rig.world.complete, rig.world.lies_empty = False, 100
    await rig.rounds(60)
    assert rig.ended(1) is None


async def test_4_id_purged_before_the_look_but_proof_exists(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, Outcome(code=0), purged=True)
    await rig.rounds(3)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 0


async def test_4_id_purged_without_proof_is_lost_and_never_succeeded(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, None, purged=True)
    await rig.rounds(int(LOST_AFTER / INTERVAL) - 1)
    assert rig.ended(1) is None
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code is None
    assert ended.why.startswith("node_lost: ")


async def test_5_an_ask_that_timed_out_but_was_accepted_is_not_repeated(rig: Rig) -> None:
    rig.world.answer_lost = "timeout"
    tag = rig.start(1)
    await rig.settle()
    assert len(rig.world.of(tag)) == 1
    await rig.rounds(3)
    assert len(rig.world.of(tag)) == 1
    assert rig.world.asks == [(tag, False)]
    assert rig.last(1) is not None


async def test_5_an_ask_that_failed_is_repeated_with_again(rig: Rig) -> None:
    rig.world.ask_fails = "connection refused"
    tag = rig.start(1)
    await rig.settle()
    assert rig.driver.attempts.waiting_reason(1, 1) == "fake: connection refused"
    rig.world.ask_fails = ""
    await rig.rounds(2)
    assert rig.world.asks == [(tag, False), (tag, True)]
    assert len(rig.world.of(tag)) == 1


async def test_5_and_12_a_waiting_job_is_asked_for_again_after_a_kill_of_the_controller(rig: Rig) -> None:
    """The engine has created a container and was killed before it started the container. A look shows the
    container, and then the controller is killed.
    """
    rig.world.answer_lost, rig.world.initial = "killed", ForeignState.WAITING
    tag = rig.start(1)
    await rig.settle()
    await rig.round()
    rig.world.answer_lost = ""
    asked = len(rig.world.asks)
    await rig.restart()
    await rig.rounds(2)
    assert rig.world.asks[asked:] == [(tag, True)]
    assert len(rig.world.of(tag)) == 1
    await rig.restart()
    await rig.rounds(2)
    assert len(rig.world.asks) == asked + 1


async def test_6_accepted_twice_leaves_one(rig: Rig) -> None:
    ref = await running(rig)
    double = rig.world.add(f"{PREFIX}1-1-0")
    await rig.round()
    assert rig.world.ends == [double]
    rig.world.finish(ref, Outcome(code=0))
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 0


async def test_7_an_end_without_effect_is_repeated(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.ignores_end = True
    rig.stop(1)
    await rig.settle()
    await rig.rounds(3)
    assert rig.ended(1) is None
    assert len(rig.world.ends) >= 3
    rig.world.ignores_end = False
    await rig.rounds(3)
    ended = rig.ended(1)
    assert ended is not None
    assert (ended.why, ended.signal) == ("cancelled", 15)
    assert set(rig.world.ends) == {ref}


async def test_a_restart_does_not_begin_the_grace_time_of_a_stopped_job_anew(rig: Rig) -> None:
    await running(rig)
    rig.world.ignores_end = True
    rig.send(Stop(1, 1, 10 * INTERVAL, "cancelled"))
    await rig.settle()
    for left in (6, 0):
        rig.now += 4 * INTERVAL if left else 6 * INTERVAL
        await rig.restart()
        await rig.driver.run_round()
        await rig.settle()
        assert rig.world.graces[-1] == left * INTERVAL
    assert rig.world.graces == [10 * INTERVAL, 6 * INTERVAL, 0.0]


async def test_8_requeued_there_under_the_same_name(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.change(ref, ForeignState.WAITING, "BeginTime", "gpu")
    await rig.round()
    assert rig.ended(1) is None
    assert rig.driver.attempts.waiting_reason(1, 1) == "fake:gpu: BeginTime"
    rig.world.change(ref, ForeignState.RUNNING)
    await rig.round()
    assert rig.driver.attempts.waiting_reason(1, 1) == ""


async def test_8_requeued_there_under_a_new_name(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, None, purged=True)
    new = rig.world.add(f"{PREFIX}1-1-0")
    await rig.rounds(2)
    rig.world.finish(new, Outcome(code=0))
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 0
    assert rig.world.ends == []


async def test_9_preempted_there_is_no_failure_of_the_program(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, Outcome(signal=15, why=PREEMPTED_THERE))
    await rig.round()
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == PREEMPTED_THERE


async def test_10_the_reason_of_a_held_job_is_shown(rig: Rig) -> None:
    rig.world.initial = ForeignState.WAITING
    tag = rig.start(1)
    await rig.settle()
    rig.world.change(rig.world.of(tag)[0].ref, ForeignState.WAITING, "JobHeldAdmin", "gpu")
    await rig.round()
    assert rig.driver.attempts.waiting_reason(1, 1) == "fake:gpu: JobHeldAdmin"
    assert rig.last(1) is None  # because it has not started


async def test_11_an_old_answer_does_not_count_as_absence(rig: Rig) -> None:
    """An answer from a cache that is older than the ask shows nothing about the ask."""
    tag = rig.start(1)
    await rig.settle()
    [attempt] = rig.driver.attempts
    attempt.absent(attempt.seen_at - 3_600)
    attempt.absent(attempt.seen_at - 1)
    assert attempt.presence is Presence.ASKED
    assert attempt.record.tag == tag


STEPS = ["before the ask", "ask without answer", "asked", "seen", "ended", "settled"]


@pytest.mark.parametrize("step", STEPS)
async def test_12_a_kill_at_every_step_leaks_and_doubles_nothing(rig: Rig, step: str) -> None:
    tag = rig.start(1)
    if step != "before the ask":
        rig.world.answer_lost = "killed" if step == "ask without answer" else ""
        await rig.settle()
        rig.world.answer_lost = ""
    if step in ("seen", "ended", "settled"):
        await rig.round()
    if step in ("ended", "settled"):
        rig.world.finish(rig.world.of(tag)[0].ref, Outcome(code=7))
        await rig.round()
    if step == "settled":
        rig.settled(1)
    rig.reports.clear()
    await rig.restart()
    await rig.round()
    told = {(each.job, each.attempt): each for each in rig.connect().attempts}
    if step == "before the ask":
        # The hello does not name the attempt, so the controller sends its order again.
        assert told == {}
        rig.start(1)
        await rig.settle()
    else:
        assert list(told) == [(1, 1)]
    if step not in ("ended", "settled"):
        await rig.rounds(2)
        [found] = rig.world.of(tag)
        rig.world.finish(found.ref, Outcome(code=7))
        await rig.rounds(2)
    status = rig.ended(1) or told[1, 1]
    assert status.code == 7
    rig.settled(1)
    await rig.rounds(3)
    assert rig.world.jobs == []
    assert rig.world.number == 1
    assert rig.world.ends == []


async def test_12_a_foreign_job_that_waits_after_a_lost_answer_is_asked_for_once_more(rig: Rig) -> None:
    """A controller that is killed between the creation of a container and its start leaves such a job."""
    rig.world.initial, rig.world.answer_lost = ForeignState.WAITING, "killed"
    tag = rig.start(1)
    await rig.settle()
    rig.world.answer_lost = ""
    await rig.restart()
    await rig.rounds(4)
    assert rig.world.asks == [(tag, False), (tag, True)]
    assert rig.world.number == 1
    [attempt] = rig.driver.attempts
    assert attempt.presence is Presence.SEEN


async def test_5_a_waiting_job_whose_request_may_be_lost_is_asked_for_again(rig: Rig) -> None:
    """The engine has accepted an event, and no function has begun to run the job."""
    rig.world.initial = ForeignState.WAITING
    tag = rig.start(1)
    await rig.rounds(2)
    assert rig.world.asks == [(tag, False)]
    [job] = rig.world.jobs
    rig.world.jobs = [replace(job, ask_again=True)]
    await rig.rounds(1)
    rig.world.jobs = [job]
    await rig.rounds(2)
    assert rig.world.asks == [(tag, False), (tag, True)]
    rig.world.jobs = [replace(job, state=ForeignState.RUNNING, ask_again=True)]
    await rig.rounds(2)
    assert len(rig.world.asks) == 2
    rig.world.jobs = [replace(job, ask_again=True)]
    rig.stop(1)
    await rig.rounds(1)
    assert len(rig.world.asks) == 2


async def test_12_a_lost_record_is_found_again_by_its_tag(rig: Rig) -> None:
    ref = await running(rig)
    rig.driver.files.delete(f"{PREFIX}1-1-0")
    await rig.restart()
    await rig.round()
    [told] = rig.connect().attempts
    assert told.started_at is not None
    rig.world.finish(ref, Outcome(code=0))
    await rig.round()
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 0


async def test_13_the_time_limit_ends_the_job(rig: Rig) -> None:
    rig.start(1, time_limit_s=25.0)
    await rig.settle()
    await rig.round()
    rig.send(TimeLimit(1, 1, 45.0))
    await rig.rounds(3)
    assert rig.world.ends == []
    await rig.rounds(3)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "time_limit"


async def test_14_a_foreign_job_that_appears_after_it_was_given_up_is_ended(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, None, purged=True)
    await rig.rounds(int(LOST_AFTER / INTERVAL) + 2)
    assert rig.ended(1) is not None
    rig.settled(1)
    late = rig.world.add(f"{PREFIX}1-1-0")
    await rig.round()
    assert rig.world.ends == []
    await rig.rounds(2)
    assert rig.world.ends == [late]


async def test_15_a_refusal_for_now_is_repeated_and_shown(rig: Rig) -> None:
    rig.world.refuses = AskRefused("limit of 8 running jobs reached")
    tag = rig.start(1)
    await rig.rounds(3)
    assert rig.driver.attempts.waiting_reason(1, 1) == "fake: limit of 8 running jobs reached"
    rig.world.refuses = None
    await rig.rounds(6)
    assert len(rig.world.of(tag)) == 1
    assert rig.last(1) is not None


async def test_15_a_lasting_refusal_fails_the_attempt(rig: Rig) -> None:
    rig.world.refuses = AskRefused("invalid account", lasting=True)
    rig.start(1)
    await rig.settle()
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "launch_failed: invalid account"


async def test_15_after_the_patience_the_job_goes_elsewhere(rig: Rig) -> None:
    rig.world.refuses = AskRefused("queue full")
    rig.start(1)
    await rig.rounds(80)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "node_unfit: queue full"
    assert rig.world.number == 0


async def test_19_every_round_asks_anew_so_a_dead_watch_cannot_hide_an_end(rig: Rig) -> None:
    ref = await running(rig)
    looks = rig.world.looks
    rig.world.finish(ref, Outcome(code=0))
    await rig.round()
    assert rig.world.looks == looks + 1
    assert rig.ended(1) is not None


async def test_20_jobs_of_another_cluster_are_never_touched(rig: Rig) -> None:
    other = rig.world.add("corral-ffffffffffff-1-1-0")
    none = rig.world.add("somebodys-own-job")
    await running(rig)
    await rig.rounds(5)
    assert rig.world.ends == []
    assert rig.world.forgotten == []
    assert {other, none} < {each.ref for each in rig.world.jobs}


async def test_22_a_drain_there_is_followed_and_an_operators_drain_stays(rig: Rig) -> None:
    node, other = rig.node_states["fake-n1"], rig.node_states["fake-n2"]
    other.drained, other.why = True, "new fans"
    facts = NodeFacts(64_000, 256_000)
    rig.world.nodes[0] = ForeignNode("n1", facts, available=False, why="kernel update")
    await rig.round()
    assert node.why == "engine fake: kernel update"
    rig.world.nodes[0] = ForeignNode("n1", facts)
    await rig.rounds(2)
    assert not node.drained
    assert (other.drained, other.why) == (True, "new fans")
    assert rig.resumed == ["fake-n1"]


async def test_23_many_jobs_cost_one_look_each_round(rig: Rig) -> None:
    for job in range(1, 501):
        rig.start(job)
    await rig.settle()
    looks = rig.world.looks
    await rig.round()
    assert rig.world.looks == looks + 1
    assert {each.job for each in rig.reports} == set(range(1, 501))


async def test_24_a_late_exit_record_is_awaited(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, None)
    await rig.round()
    assert rig.ended(1) is None
    rig.world.outcomes[ref] = Outcome(code=5)
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 5


async def test_24_an_exit_record_that_never_comes_is_no_success(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, None)
    await rig.rounds(int(PROOF_S / INTERVAL) + 2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code is None
    assert ended.why.startswith("supervisor_lost: ")


async def test_no_log_is_read_while_the_breaker_is_open(tmp_path: Path) -> None:
    """The end of a job is decided when the engine answers again: it may then prove the end."""
    rig = Rig(tmp_path / "fake", breaker_failures=1)
    await rig.round()
    rig.connect()
    ref = await running(rig)
    rig.world.finish(ref, None)
    await rig.round()
    [attempt] = rig.driver.attempts
    attempt.retry_at = rig.now + 2 * PROOF_S  # as after a request for the proof that has failed
    rig.world.look_fails = "unable to contact the controller"
    await rig.rounds(int(PROOF_S / INTERVAL) + 2)
    assert rig.driver.breaker.is_open
    assert rig.world.logs_read == []
    rig.world.look_fails = ""
    rig.world.outcomes[ref] = Outcome(code=5)
    rig.now += 300
    await rig.round()
    rig.connect()
    ended = rig.ended(1)
    assert ended is not None
    assert (ended.code, ended.why) == (5, "")
    assert rig.world.logs_read == [ref, ref]


async def test_25_orphans_are_ended_after_two_looks(rig: Rig) -> None:
    orphan = rig.world.add(f"{PREFIX}99-1-0")
    await rig.round()
    assert rig.world.ends == []
    await rig.rounds(2)
    assert rig.world.ends == [orphan]
    await rig.round()
    assert rig.world.forgotten == [orphan]
    assert rig.driver.sweep.ended == 1


async def test_a_job_that_was_stopped_before_its_ask_never_starts(rig: Rig) -> None:
    rig.world.ask_fails = "connection refused"
    rig.start(1)
    rig.stop(1)
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "cancelled"
    assert rig.world.asks == []


async def test_a_stopped_job_whose_ask_may_have_had_an_effect_is_looked_for(rig: Rig) -> None:
    rig.world.answer_lost = "timeout"
    rig.start(1)
    await rig.settle()
    rig.stop(1)
    await rig.rounds(3)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "cancelled"
    assert rig.world.ends == ["f1"]


async def test_a_stop_of_an_unknown_attempt_is_answered(rig: Rig) -> None:
    rig.send(Stop(8, 1, 5.0, "cancelled"))
    ended = rig.ended(8)
    assert ended is not None
    assert ended.why == "cancelled"


async def test_an_older_attempt_is_refused(rig: Rig) -> None:
    rig.start(1, attempt=2)
    rig.start(1, attempt=1)
    await rig.settle()
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why.startswith("refused: ")
    assert len(rig.world.asks) == 1


async def test_a_request_that_the_engine_does_not_support_is_refused(rig: Rig) -> None:
    rig.start(1, image="python:3.12", output="out.txt")
    await rig.settle()
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "launch_failed: engine fake does not support --image, --output"
    assert rig.world.asks == []


async def test_a_gang_is_asked_for_after_go(rig: Rig) -> None:
    tag = rig.start(1, barrier=True, nodes=2)
    await rig.settle()
    last = rig.last(1)
    assert last is not None
    assert last.ready
    assert rig.world.asks == []
    rig.send(Go(1, 1))
    await rig.settle()
    assert rig.world.asks == [(tag, False)]


async def test_logs_are_kept_after_the_foreign_job_is_forgotten(rig: Rig) -> None:
    ref = await running(rig)
    rig.world.finish(ref, Outcome(code=0))
    await rig.round()
    rig.settled(1)
    await rig.settle()
    assert rig.world.jobs == []
    assert rig.driver.files.log_path(f"{PREFIX}1-1-0", "stdout").read_bytes() == f"{ref} stdout\n".encode()


async def test_a_temporary_node_that_is_gone_is_removed(tmp_path: Path) -> None:
    world = World(nodes=[ForeignNode("vm1", NodeFacts(1_000, 1_000), temporary=True)])
    rig = Rig(tmp_path / "fake", world)
    await rig.round()
    world.nodes.clear()
    await rig.round()
    assert rig.removed == []
    await rig.round()
    assert rig.removed == ["fake-vm1"]


async def test_before_the_first_complete_look_no_node_says_hello(tmp_path: Path) -> None:
    """A hello that does not name a running attempt would count the attempt as lost."""
    world = World(complete=False)
    rig = Rig(tmp_path / "fake", world)
    await rig.round()
    assert "complete answer" in rig.driver.frames.problem("fake-n1")
    world.complete = True
    await rig.round()
    assert rig.driver.frames.problem("fake-n1") == ""


async def test_a_controller_that_refuses_inputs_does_not_end_the_driver(tmp_path: Path) -> None:
    """As while the store of the controller cannot be written."""
    rig = Rig(tmp_path / "fake", interval_s=0.01)
    tries = []

    async def refuse(name: str, _: ForeignNode) -> bool:
        tries.append(name)
        raise RuntimeError("the store cannot be written")

    works = rig.driver.nodes.actions
    rig.driver.nodes.actions = replace(works, add=refuse)
    rig.driver.open()
    async with asyncio.timeout(30):
        while len(tries) < 3:
            rig.now += 1
            await asyncio.sleep(0.01)
        rig.driver.nodes.actions = works
        while rig.added != ["fake-n1", "fake-n2"]:
            rig.now += 1
            await asyncio.sleep(0.01)
    await rig.driver.close()


async def test_a_changed_node_says_hello_again_with_its_new_resources(rig: Rig) -> None:
    renewed: list[str] = []
    rig.driver.nodes.actions = replace(rig.driver.nodes.actions, renew=renewed.append)
    rig.world.nodes[0] = ForeignNode("n1", NodeFacts(32_000, 256_000))
    await rig.round()
    assert renewed == ["fake-n1"]
    hello = rig.driver.frames.hello("fake-n1")
    assert hello.facts.cpu_milli == 32_000
    assert dict(hello.facts.labels) == {"engine": "fake"}
    assert not hello.facts.leases


async def test_one_empty_answer_does_not_end_a_stopped_job(rig: Rig) -> None:
    """The job may still run, and its GPUs must not be given to another job."""
    await running(rig)
    rig.world.ignores_end = True
    rig.stop(1)
    rig.world.lies_empty = 1
    await rig.rounds(2)
    assert rig.ended(1) is None
    rig.world.lies_empty = 100
    await rig.rounds(4)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.why == "cancelled"


async def test_an_ask_is_on_disk_before_it_is_sent(rig: Rig) -> None:
    """A look right after a kill may not show the foreign job yet. The record alone prevents a second one."""
    rig.world.answer_lost = "killed"
    tag = rig.start(1)
    await rig.settle()
    rig.world.answer_lost = ""
    await rig.restart()
    rig.world.lies_empty = 1
    await rig.round()
    assert [(each.job, each.attempt) for each in rig.connect().attempts] == [(1, 1)]
    await rig.rounds(2)
    assert [again for _, again in rig.world.asks[1:]] in ([], [True])
    assert len(rig.world.of(tag)) == 1


async def test_a_former_leader_leaves_the_jobs_of_the_next_one_alone(rig: Rig) -> None:
    rig.acts = False
    tag = rig.start(1)
    ref = rig.world.add(f"{PREFIX}2-1-0")
    await rig.rounds(5)
    assert (rig.world.asks, rig.world.ends, rig.world.forgotten) == ([], [], [])
    rig.acts = True
    rig.wanted[2, 1, 0] = "fake-n1"
    await rig.rounds(2)
    assert (rig.world.asks, rig.world.ends) == ([(tag, False)], [])
    assert ref in {each.record.ref for each in rig.driver.attempts}


async def test_a_record_that_the_journal_does_not_want_is_not_asked_for(rig: Rig) -> None:
    rig.world.ask_fails = "connection refused"
    tag = rig.start(1)
    await rig.settle()
    await rig.driver.close()
    rig.world.ask_fails = ""
    rig.wanted.clear()  # because another controller has led, and has run the job to its end
    await rig.restart()
    await rig.rounds(3)
    assert rig.world.asks == [(tag, False)]
    [attempt] = rig.driver.attempts
    assert attempt.record.why.startswith("refused: ")


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_end_on_a_node_that_is_no_longer_listed_is_reported(rig: Rig, restarted: bool) -> None:
    """An administrator has removed the node from the engine while a job ran there."""
    ref = await running(rig)
    there = rig.node_states["fake-n1"]
    rig.world.nodes = [each for each in rig.world.nodes if each.name != "n1"]
    if restarted:
        await rig.restart()
    await rig.rounds(4)
    assert rig.driver.frames.problem("fake-n1") == ""
    assert (there.drained, there.why) == (True, "engine fake: the engine no longer lists it")
    if restarted:
        rig.connect()
    rig.world.finish(ref, Outcome(code=3))
    await rig.rounds(2)
    ended = rig.ended(1)
    assert ended is not None
    assert ended.code == 3
    rig.settled(1)
    await rig.rounds(2)
    assert "no longer lists" in rig.driver.frames.problem("fake-n1")


async def test_a_node_that_one_look_does_not_list_is_not_drained(rig: Rig) -> None:
    await running(rig)
    nodes, rig.world.nodes = rig.world.nodes, []
    await rig.round()
    rig.world.nodes = nodes
    await rig.round()
    assert not rig.node_states["fake-n1"].drained
    assert rig.resumed == []
