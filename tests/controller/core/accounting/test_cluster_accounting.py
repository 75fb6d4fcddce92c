"""The accounted figures of the engine: use, demand, entitlement, waits, idle GPUs and lost work."""

from __future__ import annotations

import pytest

from controller.config.load import load_text
from controller.core.accounting.cluster_accounting import NODE_LOSS, PREEMPTION, TIME_LIMIT, ClusterAccounting
from controller.core.accounting.hours import HOUR_S, Period
from controller.core.accounting.idle_causes import IdleCause, IdleSampler
from controller.core.accounting.reports import PROJECT, USER, fairness, waste
from controller.core.engine import Engine
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import (
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Submit
from controller.core.model.rows import NoteRow
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import cluster_of_config
from controller.sim.simulation import REQUEST, Simulation
from controller.sim.virtual_agents import PlannedRun
from wire.cluster.reservation import ReservationSpec
from wire.job.spec import JobSpec
from wire.names import PRIORITIES

NODE = '[nodes.{name}]\ngpus = "simulated:8xH100"\ncpus = 64\nmemory = "1T"\n'
DAY_S = 24 * HOUR_S


class Cluster:
    """A simulated cluster of nodes with 8 GPUs, and its accounted figures."""

    def __init__(self, settings: str = "", nodes: int = 1, step_s: float = 60.0) -> None:
        text = settings + "".join(NODE.format(name=f"n{number}") for number in range(1, nodes + 1))
        config = load_text(text, "test.toml")
        pipeline = build_pipeline(config)
        self.accounting = ClusterAccounting(step_s)
        engine = Engine(pipeline, State(pipeline.order, 0, pipeline.sharing))
        self.simulation = Simulation(engine, accounting=self.accounting)
        for name, facts in cluster_of_config(config).nodes.items():
            self.simulation.add_node(name, facts)

    @property
    def state(self) -> State:
        return self.simulation.engine.state

    def submit(
        self, at_h: float, gpus: float, run_h: float, project: str = "llm", user: str = "ann", **more: object
    ) -> None:
        """Submit a job at an hour; it runs for `run_h` hours."""
        spec = JobSpec(command=("x",), gpus=gpus, project=project, grace_s=0.0, **more)  # type: ignore[arg-type]

        def submit(_now: float) -> None:
            reply = self.simulation.tell(Submit(spec, user)).reply
            assert isinstance(reply, Accepted)
            self.simulation.planned_runs[reply.jobs[0]] = PlannedRun(run_h * HOUR_S)

        self.simulation.schedule(at_h * HOUR_S, REQUEST, submit)

    def tell(self, at_h: float, command: Input) -> None:
        """Pass a command to the engine at an hour."""
        self.simulation.schedule(at_h * HOUR_S, REQUEST, lambda _now: self._tell(command))

    def _tell(self, command: Input) -> None:
        assert isinstance(self.simulation.tell(command).reply, Accepted)

    def run(self, until_h: float) -> Period:
        """Run until an hour, and return the sum of all figures."""
        simulation = self.simulation
        while simulation.next_at <= until_h * HOUR_S:
            simulation.step()
        self.accounting.close_until(simulation.engine, until_h * HOUR_S)
        return self.accounting.periods.since(0.0, until_h * HOUR_S)[1]


def _hours(period: Period) -> dict[str, tuple[float, float, float]]:
    """Return (got, entitled, demanded) by user."""
    return {
        tenant[1]: (round(each.got, 6), round(each.entitled, 6), round(each.demanded, 6))
        for tenant, each in period.tenants.items()
    }


@pytest.mark.parametrize("step_s", [60.0, 1_000.0])
def test_tenants_are_entitled_to_their_part_of_weights_and_demands(step_s: float) -> None:
    cluster = Cluster(step_s=step_s)
    cluster.submit(0, 8, 2, "llm", "ann")
    cluster.submit(0.5, 4, 1, "vision", "bob")
    found = cluster.run(3)
    # Ann is alone for half an hour. Then each project is entitled to 4 GPUs, until ann's job ends after 2 h
    # and bob gets and demands 4 GPUs for the last hour.
    assert _hours(found) == {"ann": (16, 4 + 6, 16), "bob": (4, 6 + 4, 6 + 4)}
    assert found.capacity == 24
    assert dict(found.idle) == {IdleCause.NO_JOB: pytest.approx(4)}
    rows = {
        each.name: each
        for each in fairness(cluster.accounting.periods, cluster.state, PROJECT, 0, 3 * HOUR_S).rows
    }
    assert (rows["llm"].points, rows["vision"].points) == (25.0, -25.0)
    assert rows["vision"].judgement == (
        "project vision: got 6 GPU-hours less than its weight and demand entitle it to, which is 25.0 % of "
        "the cluster"
    )
    assert (rows["vision"].started, rows["vision"].wait_max_s) == (1, 1.5 * HOUR_S)


def test_the_longest_waiting_job_and_jobs_that_may_not_start() -> None:
    cluster = Cluster()
    cluster.submit(0, 8, 100)
    cluster.submit(1, 8, 1, user="bob", hold=True)
    cluster.submit(2, 8, 1, user="eve")
    period = cluster.run(40)
    assert _hours(period)["eve"] == (0, 38 * 4, 38 * 8)
    assert "bob" not in _hours(period)
    rows = {
        each.name: each
        for each in fairness(cluster.accounting.periods, cluster.state, USER, 0, 40 * HOUR_S).rows
    }
    assert (rows["eve"].longest_waiting, rows["eve"].longest_waiting_s) == ("3", 38 * HOUR_S)
    assert rows["eve"].judgement.endswith("job 3 has waited for 1d14h")
    assert rows["eve"].wait_p50_s is None


def test_scavengers_neither_demand_nor_get_anything() -> None:
    cluster = Cluster()
    cluster.submit(0, 8, 1, priority=PRIORITIES["SCAVENGER"])
    found = cluster.run(1)
    [hours] = found.tenants.values()
    assert (hours.got, hours.demanded, hours.scavenged) == (0, 0, 8)
    assert waste(cluster.accounting.periods, 0.0, HOUR_S).used == 8


def test_drained_nodes_are_no_capacity_while_they_are_idle() -> None:
    cluster = Cluster(nodes=2)
    cluster.tell(0, node_inputs.Drain("n2", "root", "broken fan"))
    cluster.submit(0, 16, 1, nodes=2)
    found = cluster.run(2)
    assert found.capacity == 16
    assert dict(found.idle) == {IdleCause.DRAINED: 16, IdleCause.SCATTERED: 16}
    report = waste(cluster.accounting.periods, 0.0, 2 * HOUR_S)
    assert (report.gpu_hours, report.used, [each.percent for each in report.idle]) == (32, 0, [50.0, 50.0])


def test_idle_gpus_by_the_cause_that_keeps_jobs_back() -> None:
    cluster = Cluster("[quota.projects.llm]\ngpus = 4\n[jobs]\ndefault_time_limit_s = 0\n", nodes=2)
    cluster.tell(
        0, policy_inputs.Reserve(ReservationSpec("fan", 4 * HOUR_S, 2 * HOUR_S, nodes=("n2",)), "root")
    )
    cluster.submit(0, 4, 100)  # This job fills the quota of llm.
    cluster.submit(0, 4, 1)  # A job of 4 GPUs waits for the quota.
    found = cluster.run(6)
    # The node n2 is idle for 4 hours before the reservation and under maintenance for 2 hours.
    assert found.idle[IdleCause.QUOTA] == 6 * 4
    assert found.idle[IdleCause.MAINTENANCE] == 16
    assert sum(found.idle.values()) == 6 * 12


def test_idle_gpus_before_a_reservation_and_behind_a_backfill_reservation() -> None:
    cluster = Cluster(nodes=2)
    cluster.tell(
        0, policy_inputs.Reserve(ReservationSpec("fan", 4 * HOUR_S, HOUR_S, nodes=("n1", "n2")), "root")
    )
    cluster.submit(0, 8, 8, time_limit_s=8 * HOUR_S)
    assert dict(cluster.run(4).idle) == {IdleCause.BEFORE_RESERVATION: 32, IdleCause.SCATTERED: 32}
    other = Cluster('[scheduler]\norder = "priority"\n', nodes=2)
    other.submit(0, 8, 10, time_limit_s=10 * HOUR_S)
    other.submit(0, 16, 1, nodes=2, time_limit_s=HOUR_S)
    other.submit(0, 8, 20, user="eve", time_limit_s=20 * HOUR_S)
    assert dict(other.run(5).idle) == {IdleCause.BACKFILL: 40}


def test_gpus_that_no_waiting_job_accepts_and_jobs_that_are_not_due() -> None:
    cluster = Cluster('[nodes.n9]\ngpus = "simulated:8xA100"\ncpus = 64\nmemory = "1T"\n')
    cluster.submit(0, 8, 2, gpu_models=("A100",))
    cluster.submit(0, 8, 1, gpu_models=("A100",))
    cluster.submit(2.5, 8, 1, begin_at=5.0 * HOUR_S)
    found = cluster.run(5)
    assert found.idle[IdleCause.UNSUITABLE] == 16
    assert found.idle[IdleCause.NOT_DUE] == 0.5 * 8 + 2 * 16


def test_work_lost_to_time_limits_preemption_and_node_loss() -> None:
    cluster = Cluster('[preemption]\nstrategies = ["priority"]\n', nodes=1)
    cluster.submit(0, 4, 3, time_limit_s=2 * HOUR_S)
    found = cluster.run(3)
    assert dict(found.lost) == {TIME_LIMIT: 8}
    cluster.submit(4, 8, 10, time_limit_s=20 * HOUR_S)
    cluster.submit(5, 8, 1, priority=PRIORITIES["CRITICAL"], time_limit_s=2 * HOUR_S)
    found = cluster.run(6)
    assert dict(found.lost) == {TIME_LIMIT: 8, PREEMPTION: 8}
    cluster.tell(8, agent_inputs.LinkWentDown("n1", "unplugged"))
    cluster.tell(8, node_inputs.DeclareLost("n1", "root"))
    found = cluster.run(9)
    assert dict(found.lost) == {TIME_LIMIT: 8, PREEMPTION: 8, NODE_LOSS: 16}


def test_figures_survive_a_restart_and_do_not_depend_on_the_number_of_inputs() -> None:
    one, other = Cluster(), Cluster()
    for cluster in (one, other):
        cluster.submit(0, 6, 5)
        cluster.submit(1, 4, 5, "vision", "bob")
    for hour in range(60):
        other.tell(hour / 10, controller_inputs.Tick())
    found = one.run(6)
    assert found.dump() == other.run(6).dump()
    stored: list[NoteRow] = one.accounting.take_changed(6 * HOUR_S)
    assert one.accounting.take_changed(6 * HOUR_S) == []
    again = ClusterAccounting()
    again.load(one.state, stored)
    assert again.periods.since(0.0, 6 * HOUR_S) == one.accounting.periods.since(0.0, 6 * HOUR_S)
    # After the restart, the running job of bob counts from the first input on.
    again.advance(one.simulation.engine, 6 * HOUR_S)
    again.close_until(one.simulation.engine, 6.5 * HOUR_S)
    bob = again.periods.since(6 * HOUR_S, 7 * HOUR_S)[1].tenants["vision", "bob"]
    assert (bob.got, bob.entitled) == (2, 2)


def test_idle_gpus_after_edits_of_jobs_that_wait() -> None:
    """A sample that keeps groups of jobs from earlier samples equals a sample without kept groups."""
    cluster = Cluster("[quota.projects.llm]\ngpus = 4\n", nodes=1)
    cluster.submit(0, 4, 100, time_limit_s=200 * HOUR_S)  # This job fills the quota of llm.
    cluster.submit(0, 2, 1, time_limit_s=3 * HOUR_S)
    cluster.submit(0, 2, 1, time_limit_s=2 * HOUR_S)
    sampler, found = IdleSampler(), list[dict[IdleCause, float]]()
    for hour, command in enumerate(
        (
            job_inputs.Edit(2, "root", {"time_limit_s": HOUR_S}),
            job_inputs.Edit(3, "root", {"priority": 80}),
            job_inputs.Edit(3, "root", {"time_limit_s": 2.5 * HOUR_S}),
            job_inputs.Hold(2, "root"),
            job_inputs.Cancel(3, "root"),
        ),
        start=1,
    ):
        cluster.tell(hour, command)
        cluster.run(hour + 0.5)
        engine, now = cluster.simulation.engine, (hour + 0.5) * HOUR_S
        found.append(sampler.sample(engine, now))
        assert found[-1] == IdleSampler().sample(engine, now)
    assert found[2:] == [
        {IdleCause.QUOTA: 4},
        {IdleCause.QUOTA: 2, IdleCause.SCATTERED: 2},
        {IdleCause.NOT_DUE: 4},
    ]
