"""Thousands of random steps through the engine: the whole state is checked after each of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from controller.core.cluster.dataset_reads import DatasetPolicy
from controller.core.cluster.gpus.gpu_health import GpuHealthPolicy
from controller.core.cluster.network_tree import NetworkTopology
from controller.core.engine import Engine
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.explain.never_fits import never_fits
from controller.core.fairshare.usage import FairshareConfig
from controller.core.forecast.forecast import fork
from controller.core.forecast.smallest_change import suggestions
from controller.core.framework.interfaces import DeadlinePolicy
from controller.core.invariants import find_violations
from controller.core.lifecycle.attempt_reports import merge_member_reports
from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import JobEnded, JobPlaced
from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.kinds import body_of, event_of, kind_of
from controller.core.model.events.nodes import Overcommit
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs, node_inputs
from controller.core.model.job import NEVER
from controller.core.model.start_estimates import LATEST, LIKELY
from controller.core.model.wait_state import WaitRules
from controller.core.pipeline.pipeline import Pipeline
from controller.core.pipeline.reconfigure import state_under
from controller.core.quota.hours.timetable import HoursTable, Timetable
from controller.core.quota.hours.week_hours import WeekHours, windows_of
from controller.core.quota.quota_config import QuotaConfig
from controller.core.state.apply import apply
from controller.core.state.job_and_node_rows import job_row, node_row, restore_state
from controller.core.state.note_rows import all_notes
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.orders.aging import AgingOrder
from controller.plugins.orders.fair import FairShareOrder
from tests.engine_harness import PIPELINE as PLAIN
from tests.engine_harness import carry_out, spec
from tests.examples import examples
from tests.property.machines.node_rules import NODES, NodeRules
from tests.property.machines.random_jobs import MOMENTS, RESTARTS, SPECS
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.cluster.quota import Limits, Quota
from wire.job.arrays import array_concurrency_limit
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Restart, Until
from wire.names import JobState
from wire.workload.spec import OnFailure, TaskDependency, WorkloadSpec, WorkloadTask

PIPELINE = replace(
    PLAIN,
    waiting=WaitRules(data_roots=("/data",), promote_after_s=90.0, promote_by=20),
    deadlines=DeadlinePolicy.LIFT,
    estimating=PredictionConfig(predicted=True, quantile=0.5, least=1),
    idling=IdlePolicy(0.0, IdleAction.REQUEUE, 5.0),
    health_policy=GpuHealthPolicy(reset=("reset",)),
    sharing=FairshareConfig(off_queue="strays"),
)

ALWAYS = WeekHours(("mon-sun",), tuple(windows_of("mon-sun")), UTC, "UTC")

HOURS = HoursTable("always", ALWAYS, {("user", "*"): Quota(Limits(running=2))}, {"default": 3.0})

CONFIGURED: tuple[dict[str, Any], ...] = (
    {},
    {"order": FairShareOrder(), "sharing": FairshareConfig(half_life_s=60.0)},
    {"order": AgingOrder(), "overcommit": Overcommit(cpu=2.0)},
    {
        "network": NetworkTopology(paths={"a": ("rack1",), "b": ("rack1",), "c": ("rack2",)}),
        "datasets": DatasetPolicy(retention_s=100.0, least_run_s=1.0, nodes=2),
        "rules": QuotaConfig(timetable=Timetable((HOURS,))),
    },
)
"""The settings that a run of the machine applies, each to the pipeline of its class."""

STARTS_NOW = "fits now: considered in the next pass"


class EngineMachine(NodeRules):
    """Adds users: submits, edits, dependencies, advice and the reports about their processes."""

    pipeline = PIPELINE

    @rule(asked=SPECS, user=st.sampled_from(["ada", "bo"]))
    def explain_foresees_the_next_cycle(self, asked: JobSpec, user: str) -> None:
        """A new job starts in the next cycle if explain says so, and does not start if explain says
        otherwise.
        """
        harness = self.harness
        harness.tick()
        reply = harness.tell(job_inputs.Submit(replace(asked, hold=False), user)).reply
        if isinstance(reply, Accepted):
            job = reply.jobs[0]
            told = harness.why(job)
            harness.tick()
            starts, started = told.sentence.startswith(STARTS_NOW), bool(harness.job(job).attempt)
            conservative = (
                harness.engine.pipeline.backfill == Conservative()
            )  # gets a reservation in that cycle
            assert started or conservative or not starts, told
            assert starts or not started or asked.gang.min_nodes is not None, told
        self.agents.obey(harness)

    @rule(asked=SPECS, user=st.sampled_from(["ada", "bo"]), key=st.sampled_from(["", "", "k1", "k2"]))
    def submit(self, asked: JobSpec, user: str, key: str) -> None:
        self.harness.tell(job_inputs.Submit(asked, user, key))

    @rule(array=st.sampled_from(["0-3%1", "0-4%2"]), hold=st.booleans(), restart=RESTARTS)
    def submit_by_and_by(self, array: str, hold: bool, restart: Restart) -> None:
        self.harness.tell(job_inputs.Submit(spec(1, array=array, hold=hold, restart=restart), "ada"))

    @rule(asked=SPECS, size=st.integers(1, 4), most=st.sampled_from([None, 1, 2]), stop=st.booleans())
    def submit_workload(self, asked: JobSpec, size: int, most: int | None, stop: bool) -> None:
        plain = replace(asked, array=None, after=(), after_count=None, after_within_s=None)
        elements = tuple({"command": ["true", str(index)]} for index in range(size))
        pairs = tuple((index,) for index in range(size))
        tasks = (
            WorkloadTask("one", plain, elements, max_parallel=most),
            WorkloadTask("two", spec(1), elements, (TaskDependency("one", elements=pairs),)),
            WorkloadTask("three", spec(1), (), (TaskDependency("two"), TaskDependency("one", Until.ENDED))),
        )
        on_failure = OnFailure.STOP if stop else OnFailure.CONTINUE
        self.harness.tell(job_inputs.SubmitWorkload(WorkloadSpec(tasks, "w", most, on_failure), "ada"))

    @precondition(lambda self: self.harness.state.workloads.by_id)
    @rule(data=st.data(), order=st.sampled_from(["cancel", "retry", "retry"]), cancelled=st.booleans())
    def order_about_a_workload(self, data: st.DataObject, order: str, cancelled: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.harness.state.workloads.by_id)))
        self.harness.tell(
            job_inputs.CancelWorkload(number, "ada")
            if order == "cancel"
            else job_inputs.RetryWorkload(number, "ada", cancelled)
        )

    @rule(
        begin=MOMENTS,
        deadline=MOMENTS,
        limit=st.sampled_from([None, 50]),
        within=st.sampled_from([None, 60]),
        restart=RESTARTS,
        hold=st.booleans(),
        relax=st.booleans(),
    )
    def submit_for_later(
        self,
        begin: float | None,
        deadline: float | None,
        limit: float | None,
        within: float | None,
        restart: Restart,
        hold: bool,
        relax: bool,
    ) -> None:
        now = self.harness.now
        asked = spec(
            2,
            begin_at=None if begin is None else now + begin,
            deadline_at=None if deadline is None else now + deadline,
            time_limit_s=limit,
            start_within_s=within,
            restart=restart,
            hold=hold,
            selector={"disk": "tape"} if relax else {},
            relax=("selector", "gpu_models") if relax else (),
            relax_after_s=40,
        )
        self.harness.tell(job_inputs.Submit(asked, "ada"))

    @precondition(lambda self: self.harness.state.jobs)
    @rule(
        data=st.data(),
        until=st.lists(st.sampled_from([each for each in Until if each is not Until.DATA]), max_size=3),
        path=st.booleans(),
        count=st.none() | st.just(1),
        within=st.sampled_from([None, 150]),
        array=st.sampled_from([None, "0-2", "0-3%2"]),
        restart=RESTARTS,
        priority=st.sampled_from([20, 50, 60, 80]),
    )
    def submit_after_others(
        self,
        data: st.DataObject,
        until: list[Until],
        path: bool,
        count: int | None,
        within: float | None,
        array: str | None,
        restart: Restart,
        priority: int,
    ) -> None:
        """A submit depends on other jobs. If the dependency can never be met, the engine must notice this."""
        labels = sorted(self.harness.state.jobs)
        after = [Dependency(each, str(data.draw(st.sampled_from(labels)))) for each in until]
        if path:
            after.append(Dependency(Until.DATA, path="/data/ready"))
        if after:
            asked = spec(
                1,
                after=tuple(dict.fromkeys(after)),
                after_count=count,
                after_within_s=within,
                array=array,
                restart=restart,
                priority=priority,
            )
            self.harness.tell(job_inputs.Submit(asked, "ada"))

    @rule()
    def data_comes(self) -> None:
        self.harness.tell(controller_inputs.DataFound("/data/ready"))

    @rule(step=st.floats(0, 100))
    def tick(self, step: float) -> None:
        self.harness.now += step
        self.harness.tick()
        self.agents.obey(self.harness)

    @precondition(lambda self: self.agents.alive)
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1, None]), reported=st.booleans())
    def process_moves(self, data: st.DataObject, code: int | None, reported: bool) -> None:
        """A process starts or exits; the agent reports it unless the link is down."""
        key = data.draw(st.sampled_from(sorted(self.agents.alive)))
        self._move(key, code, ready=data.draw(st.booleans()))
        if key[0] in self.agents.up and reported:
            self.harness.tell(agent_inputs.AgentReported(key[0], self.agents.alive[key]))
            self.agents.obey(self.harness)

    @precondition(lambda self: self.agents.alive)
    @rule(data=st.data(), codes=st.lists(st.sampled_from([0, 0, 1, None]), min_size=3, max_size=3))
    def gang_moves(self, data: st.DataObject, codes: list[int | None]) -> None:
        """Several members of an attempt start or exit, and their agents report this at the same time."""
        _, *attempt = data.draw(st.sampled_from(sorted(self.agents.alive)))
        members = [key for key in sorted(self.agents.alive) if [*key[1:]] == attempt]
        for key, code in zip(members, codes, strict=False):
            self._move(key, code, ready=data.draw(st.booleans()))
        told = [
            agent_inputs.AgentReported(key[0], self.agents.alive[key])
            for key in members
            if key[0] in self.agents.up
        ]
        for given, _ in merge_member_reports((each, None) for each in told):
            self.harness.tell(given)
            self.agents.obey(self.harness)

    def _move(self, key: tuple[str, int, int], code: int | None, *, ready: bool) -> None:
        old = self.agents.alive[key]
        if old.ended_at is not None:
            return
        if old.started_at is None and not old.ready and ready:
            new = AttemptStatus(old.job, old.attempt, ready=True)
        elif old.started_at is None:
            new = AttemptStatus(old.job, old.attempt, 1, self.harness.now)
        else:
            number = None if code is not None else 9
            saved = Checkpoint("/saved", 1, self.harness.now) if code else None
            new = AttemptStatus(
                old.job, old.attempt, 1, old.started_at, self.harness.now, code, number, checkpoint=saved
            )
        self.agents.alive[key] = new

    @precondition(lambda self: self.harness.state.jobs)
    @rule(data=st.data(), what=st.sampled_from([job_inputs.Cancel, job_inputs.Hold, job_inputs.Release]))
    def ask(self, data: st.DataObject, what: type[job_inputs.Cancel]) -> None:
        job = data.draw(st.sampled_from(sorted(self.harness.state.jobs)))
        self.harness.tell(what(job, "ada"))
        self.agents.obey(self.harness)

    @precondition(lambda self: self.harness.state.jobs)
    @rule(
        data=st.data(),
        priority=st.sampled_from([None, 10, 90]),
        limit=st.sampled_from([None, 30]),
        gpus=st.sampled_from([None, 1, 4]),
        begin=MOMENTS,
        until=st.none() | st.sampled_from([Until.OK, Until.ENDED]),
        clear=st.lists(st.sampled_from(["deadline_at", "start_within_s", "after", "restart"]), max_size=2),
    )
    def edit(
        self,
        data: st.DataObject,
        priority: int | None,
        limit: float | None,
        gpus: int | None,
        begin: float | None,
        until: Until | None,
        clear: list[str],
    ) -> None:
        """A user edits a job. An edit that comes too late or makes a circle of dependencies is refused and
        changes nothing.
        """
        jobs = sorted(self.harness.state.jobs)
        job = data.draw(st.sampled_from(jobs))
        wanted = {"priority": priority, "time_limit_s": limit, "gpus": gpus}
        changes: dict[str, object] = {name: value for name, value in wanted.items() if value is not None}
        if begin is not None:
            changes["begin_at"] = self.harness.now + begin
        if until is not None:
            other = data.draw(st.sampled_from(jobs))
            changes |= {"after": [{"until": until.value, "job": str(other)}], "after_count": None}
        self.harness.tell(job_inputs.Edit(job, "ada", {**changes, **dict.fromkeys(clear)}))
        self.agents.obey(self.harness)

    @precondition(lambda self: self.harness.state.jobs)
    @rule(data=st.data(), kind=st.sampled_from([LATEST, LIKELY]), start=st.floats(0, 100))
    def somebody_is_told_a_start(self, data: st.DataObject, kind: str, start: float) -> None:
        job = data.draw(st.sampled_from(sorted(self.harness.state.jobs)))
        self.harness.tell(controller_inputs.NoteStart(job, kind, self.harness.now + start))

    @rule(data=st.data())
    def take_the_advice(self, data: st.DataObject) -> None:
        """A suggestion of explain that needs no preemption starts the job when it is carried out."""
        harness = self.harness
        waiting = sorted(each.id for each in harness.state.jobs.values() if each.state is JobState.QUEUED)
        if not waiting:
            return
        job = data.draw(st.sampled_from(waiting))
        found = suggestions(fork(harness.engine), job, harness.now)
        found = [each for each in found if not each.preempt]
        if found:
            advice = data.draw(st.sampled_from(found))
            carry_out(harness, job, advice)
            assert harness.job(job).state is not JobState.QUEUED, advice
            self.agents.obey(harness)

    @rule(changed=st.sampled_from(CONFIGURED))
    def apply_configuration(self, changed: dict[str, Any]) -> None:
        if self.pipeline.rules != PLAIN.rules:
            changed = {key: value for key, value in changed.items() if key != "rules"}
        pipeline = replace(self.pipeline, **changed)
        self.harness.tell(controller_inputs.ApplyConfig("digest", "root", pipeline, tuple(changed)))
        self.agents.obey(self.harness)

    @rule(data=st.data(), at=st.floats(0, 2_000), size=st.integers(0, 3))
    def saves(self, data: st.DataObject, at: float, size: int) -> None:
        """A running job has saved a checkpoint, now or long ago."""
        running = [
            (key, each) for key, each in self.agents.alive.items() if each.started_at and not each.ended_at
        ]
        if running:
            key, status = data.draw(st.sampled_from(running))
            found = replace(status, checkpoint=Checkpoint(f"/saved/{size}", size, at))
            self.harness.tell(agent_inputs.AgentReported(key[0], found))
            self.agents.obey(self.harness)

    @invariant()
    def no_success_is_run_again(self) -> None:
        ended = set()
        for event in self.harness.events:
            if isinstance(event, JobEnded):
                assert event.job not in ended
                ended.add(event.job)
            elif isinstance(event, JobPlaced):
                assert event.job not in ended

    @invariant()
    def gangs_are_whole(self) -> None:
        """A job that starts has all requested nodes, or at least the fewest that it accepts, and each node
        only once.
        """
        for event in self.harness.events[self.seen :]:
            if isinstance(event, JobPlaced):
                asked = self.harness.job(event.job).spec
                nodes, most = len({each.node for each in event.allocations}), asked.nodes or NEVER
                assert nodes == len(event.allocations)
                assert (asked.gang.min_nodes or asked.nodes or 1) <= nodes <= most
                given = sum(hold.milli for each in event.allocations for hold in each.gpus)
                if asked.gpu is None or not asked.gpu.memory_mib:
                    assert given == round(asked.gpus * 1000 * nodes / (asked.nodes or nodes))

    @invariant()
    def nobody_starts_out_of_time(self) -> None:
        for event in self.harness.events[self.seen :]:
            if isinstance(event, JobPlaced):
                asked = self.harness.job(event.job).spec
                assert asked.begin_at is None or event.at >= asked.begin_at
                assert asked.deadline_at is None or (
                    event.at + (asked.time_limit_s or 0) <= asked.deadline_at + 1e-6
                )
                if asked.after_count is None:
                    assert all(self.has_happened(each) for each in asked.after)
        self.seen = len(self.harness.events)

    @invariant()
    def of_an_array_no_more_run_than_may(self) -> None:
        for array, elements in self.harness.state.arrays.items():
            jobs = [self.harness.job(each) for each in elements.values()]
            most = array_concurrency_limit(jobs[0].spec.array or "")
            running = sum(bool(job.running) for job in jobs)
            assert most is None or running <= most, array

    def has_happened(self, dependency: Dependency) -> bool:
        """Return whether a condition has been met, found from the states of the jobs alone."""
        if dependency.until is Until.DATA:
            return True  # it is there once and for all, or has been
        array = {} if "_" in dependency.job else self.harness.state.arrays.get(int(dependency.job), {})
        jobs = [self.harness.job(each) for each in array.values()] or [
            self.harness.state.find(dependency.job)
        ]
        over = [job.state for job in jobs if job and job.state.terminal]
        if dependency.until is Until.NOT_OK:
            return any(state is not JobState.COMPLETED for state in over)
        if dependency.until is Until.OK:
            return over == [JobState.COMPLETED] * len(jobs)
        return dependency.until is not Until.ENDED or len(over) == len(jobs)

    def teardown(self) -> None:
        """The journal alone, the rows alone and the same inputs again lead to the same state."""
        state = self.harness.state
        expected = _rows(state)
        folded = State(self.pipeline.order, sharing=self.pipeline.sharing)
        _configure(folded, self.pipeline)
        applied = (
            given.pipeline for given, _ in self.given if isinstance(given, controller_inputs.ApplyConfig)
        )
        for event in self.harness.events:
            apply(folded, event_of(kind_of(event), body_of(event)))
            if isinstance(event, ConfigApplied):
                under = next(applied)
                folded = state_under(folded, under, folded.jobs.values(), folded.estimates)
                _configure(folded, under)
        assert _rows(folded) == expected
        pipeline = self.harness.engine.pipeline
        restored = State(pipeline.order, sharing=pipeline.sharing)
        jobs, nodes = (
            [job_row(job, with_spec=True) for job in state.jobs.values()],
            [node_row(node) for node in state.nodes],
        )
        restore_state(restored, jobs, nodes, all_notes(state))
        assert _rows(restored)[0] == expected[0]
        assert find_violations(folded) == find_violations(restored) == []
        assert sorted(all_notes(folded), key=repr) == sorted(all_notes(state), key=repr)
        assert sorted(all_notes(restored), key=repr) == sorted(all_notes(state), key=repr)
        again = Engine(self.pipeline, State(self.pipeline.order, sharing=self.pipeline.sharing))
        events = [event for given, now in self.given for event in again.handle(given, now).events]
        assert [body_of(event) for event in events] == [body_of(event) for event in self.harness.events]
        self.finish()

    def finish(self) -> None:
        """Let all jobs run to their end: no job may be left on healthy, open nodes.

        A job that was submitted while no node was known may request what no node has; it may be left. After
        a round in which nothing has happened, and if no timer runs, all further rounds would be the same.
        """
        for name in NODES:
            self.hello(name)
            self.harness.tell(node_inputs.Resume(name, "root"))
            node = self.harness.state.nodes.by_name[name]
            none = dict.fromkeys(node.marks.taints)
            self.harness.tell(node_inputs.MarkNode(name, "root", {"disk": "nvme", "zone": "z"}, none))
            for gpu in [gpu for gpu in node.facts.gpus if not node.condition(gpu).ok]:
                self.harness.tell(node_inputs.ResumeGpu(name, gpu.index, "root"))
                self.harness.tell(agent_inputs.GpuChecked(name, gpu.uuid, True))
            assert all(node.condition(gpu).ok for gpu in node.facts.gpus)
        self.data_comes()
        for _ in range(8 * len(self.harness.state.jobs) + 8):
            before = len(self.harness.events)
            if (due := self.harness.engine.next_at) != NEVER:
                self.harness.now = max(self.harness.now, due)
            for job in list(self.harness.state.jobs.values()):
                if job.held and job.state is JobState.QUEUED:
                    self.harness.tell(job_inputs.Release(job.id, "ada"))
            self.harness.tick()
            self.agents.obey(self.harness)
            for (node, job_id, attempt), old in list(self.agents.alive.items()):
                over = AttemptStatus(
                    job_id,
                    attempt,
                    1,
                    old.started_at or self.harness.now,
                    old.ended_at or self.harness.now,
                    old.code if old.ended_at else 0,
                    old.signal,
                    old.why,
                )
                self.agents.alive[node, job_id, attempt] = over
                self.harness.tell(agent_inputs.AgentReported(node, over))
                self.agents.obey(self.harness)
            if len(self.harness.events) == before and self.harness.engine.next_at == NEVER:
                break
        engine = self.harness.engine
        left = [
            job.id
            for job in self.harness.state.jobs.values()
            if not job.state.terminal and never_fits(engine.profile_cycles.placer_of(job), job.ask) is None
        ]
        assert left == []


def _configure(state: State, pipeline: Pipeline) -> None:
    """Set what the engine sets in its state for a configuration."""
    state.set_quota_config(pipeline.rules)
    state.estimates.use_guard(pipeline.estimating, shortest_first=not pipeline.backfill.in_queue_order)
    state.nodes.datasets.policy = pipeline.datasets


def _rows(state: State) -> tuple[list[object], list[object]]:
    jobs = [job_row(job, with_spec=True) for job in sorted(state.jobs.values(), key=lambda job: job.id)]
    return list(jobs), [node_row(node) for node in state.nodes]


EngineMachine.TestCase.settings = settings(max_examples=examples(90), stateful_step_count=60)
TestEngineMachine = EngineMachine.TestCase
