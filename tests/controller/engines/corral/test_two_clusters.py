"""Two real controllers with real agents: one forwards jobs to the other, and either is killed."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.engines.corral.forwarded_jobs import CLUSTER_LABEL, TAG_LABEL
from tests.systems import System, system
from wire.api.jobs import JobsOrder, JobView
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState, NodeState

INTERVAL_S = 0.3


class TwoClusters:
    """The cluster `here` has no node of its own and forwards all jobs to the cluster `there`."""

    def __init__(self, here: System, there: System) -> None:
        self.here, self.there = here, there
        here.sections["engines"] = {
            "other": {
                "type": "corral",
                "url": f"unix://{there.socket}",
                "interval_s": INTERVAL_S,
                "timeout_s": 20.0,
                "lost_after_s": 1.0,
            }
        }

    def start(self) -> TwoClusters:
        self.there.start()
        self.here.start()
        self.here.await_nodes("other-gpu01")
        return self

    def submit(self, *command: str, **more: object) -> int:
        spec = JobSpec(command, workdir=str(self.here.place), selector={"engine": "other"}, **more)  # type: ignore[arg-type]
        with self.here.client() as client:
            return client.submit(spec).ids[0]

    def forwarded(self, job: int) -> list[tuple[int, JobState]]:
        """The ids and states of all jobs in the other cluster that stand for this job."""
        with self.there.client() as client:
            table = client.job_table(("id", "state", "labels"), since=0)
        return [
            (number, JobState(state))
            for number, state, labels in table.rows
            if labels.get(TAG_LABEL, "").split("-")[2:3] == [str(job)]
        ]

    def job(self, number: int) -> JobView:
        with self.here.client() as client:
            return client.job(number).job

    def ended_once(self, number: int, witness: Path) -> None:
        """Check that the job completed in its first attempt, as one job and one process there."""
        self.here.await_jobs([number], JobState.COMPLETED)
        assert self.job(number).attempt == 1
        assert [state for _, state in self.forwarded(number)] == [JobState.COMPLETED]
        assert len(witness.read_text().splitlines()) == 1


@pytest.fixture
def clusters() -> Iterator[TwoClusters]:
    with ExitStack() as stack:
        here, there = (stack.enter_context(system(*names)) for names in ((), ("gpu01",)))
        here.sections["nodes"] = {}
        yield TwoClusters(here, there)


def test_a_hundred_jobs_run_there_once_each(clusters: TwoClusters) -> None:
    clusters.start()
    with clusters.here.client() as client:
        spec = JobSpec(
            ("sh", "-c", "echo out $CORRAL_ARRAY_INDEX; echo err >&2; test $CORRAL_ARRAY_INDEX != 7"),
            array="0-99",
            workdir="/",
            gpus=1,
            selector={"engine": "other"},
        )
        ids = client.submit(spec).ids
    done = clusters.here.await_jobs(ids)
    states = [done[each].state for each in ids]
    assert [at for at, state in enumerate(states) if state is not JobState.COMPLETED] == [7]
    assert (done[ids[7]].state, done[ids[7]].exit_code) == (JobState.FAILED, 1)
    assert all(len(clusters.forwarded(each)) == 1 for each in ids)
    assert len(clusters.there.jobs()) == 100
    with clusters.here.client() as client:
        assert b"".join(client.logs(ids[42])) == b"out 42\n"
        assert b"".join(client.logs(ids[42], stream="stderr")) == b"err\n"
        [there] = [
            each for each in clusters.there.jobs().values() if each.id == clusters.forwarded(ids[0])[0][0]
        ]
        assert (there.user, there.gpus, there.nodes) == (getpass.getuser(), 1, 1)


def test_logs_are_followed_and_a_cancel_is_forwarded(clusters: TwoClusters) -> None:
    clusters.start()
    go = clusters.here.place / "go"
    number = clusters.submit("sh", "-c", f"echo one; until test -e {go}; do sleep 0.1; done; echo two")
    clusters.here.await_jobs([number], JobState.RUNNING)
    with clusters.here.client() as client:
        pieces = client.logs(number, follow=True)
        assert next(pieces) == b"one\n"
        go.touch()
        assert b"".join(pieces) == b"two\n"
    clusters.here.await_jobs([number], JobState.COMPLETED)

    number = clusters.submit("sleep", "1000")
    clusters.here.await_jobs([number], JobState.RUNNING)
    with clusters.here.client() as client:
        client.cancel(number)
    clusters.here.await_jobs([number], JobState.CANCELLED)
    [(_, state)] = clusters.forwarded(number)
    assert state is JobState.CANCELLED
    clusters.there.await_nothing("job")


def test_the_reason_of_a_wait_there_is_shown_here(clusters: TwoClusters) -> None:
    clusters.start()
    with clusters.there.client() as client:
        blocker = client.submit(JobSpec(("sleep", "1000"), gpus=8, workdir="/")).ids[0]
    clusters.there.await_jobs([blocker], JobState.RUNNING)
    number = clusters.submit("true", gpus=8)

    def reason() -> str:
        with clusters.here.client() as client:
            return client.explain(number).why.sentence

    clusters.here.until(
        lambda: "other:default: " in reason(), "explain shows the reason of the other cluster"
    )
    with clusters.there.client() as client:
        client.cancel(blocker)
    clusters.here.await_jobs([number], JobState.COMPLETED)


def test_a_job_that_is_preempted_there_comes_back(clusters: TwoClusters) -> None:
    clusters.start()
    go = clusters.here.place / "go"
    command = f"until test -e {go}; do sleep 0.1; done"
    number = clusters.submit("sh", "-c", command, on_node_lost=OnNodeLost.REQUEUE)
    clusters.here.await_jobs([number], JobState.RUNNING)
    [(first, _)] = clusters.forwarded(number)
    with clusters.there.client() as client:
        client.order(JobsOrder("preempt", (str(first),)))
    clusters.here.until(lambda: len(clusters.forwarded(number)) == 2, "the job is forwarded again")
    go.touch()
    clusters.here.await_jobs([number], JobState.COMPLETED)
    assert clusters.job(number).attempt == 2
    assert dict(clusters.forwarded(number))[first] is JobState.CANCELLED


def test_jobs_are_kept_while_the_other_cluster_is_away(clusters: TwoClusters) -> None:
    """The other controller is away for longer than lost_after_s, its nodes count as down, and the job ends
    there meanwhile.
    """
    clusters.start()
    witness, go = clusters.here.place / "witness", clusters.here.place / "go"
    command = f"echo $$ >> {witness}; until test -e {go}; do sleep 0.1; done"
    number = clusters.submit("sh", "-c", command)
    clusters.here.await_jobs([number], JobState.RUNNING)
    clusters.there.kill()

    def away() -> bool:
        with clusters.here.client() as client:
            [engine] = client.engines().engines
            return engine.open and client.node("other-gpu01").state is not NodeState.UP

    clusters.here.until(away, "the engine counts as down")
    go.touch()
    clusters.there.await_nothing("job")
    assert clusters.job(number).state is JobState.RUNNING
    clusters.there.start()
    clusters.ended_once(number, witness)


def test_nodes_of_engines_there_are_not_shown_here(clusters: TwoClusters) -> None:
    """Otherwise two clusters that forward to each other would pass a job around."""
    clusters.there.sections["engines"] = {
        "back": {"type": "corral", "url": f"unix://{clusters.here.socket}", "interval_s": INTERVAL_S}
    }
    clusters.here.sections["nodes"] = {
        "gpu02": {"gpus": "none", "cpus": 4, "memory": "8G", "run_as_self": True}
    }
    clusters.start()
    clusters.there.await_nodes("back-gpu02")
    with clusters.here.client() as client:
        client.test_engine("other")
        assert {node.name for node in client.nodes().nodes} == {"gpu02", "other-gpu01"}


def test_a_drain_there_is_followed(clusters: TwoClusters) -> None:
    clusters.start()
    with clusters.there.client() as client:
        client.drain("gpu01", "new disk")

    def state() -> tuple[NodeState, str]:
        with clusters.here.client() as client:
            node = client.node("other-gpu01")
            return node.state, node.why

    clusters.here.until(lambda: state()[0] is NodeState.DRAINED, "the node is drained here")
    assert "new disk" in state()[1]
    with clusters.there.client() as client:
        client.resume("gpu01")
    clusters.here.until(lambda: state()[0] is NodeState.UP, "the node is up here")


STEPS: dict[str, Callable[[TwoClusters, int], bool]] = {
    "submitted": lambda clusters, number: True,
    "recorded": lambda clusters, number: any(
        path.name.split("-")[2] == str(number)
        for path in clusters.here.state.glob("engines/other/attempts/*.json")
    ),
    "forwarded": lambda clusters, number: bool(clusters.forwarded(number)),
    "running there": lambda clusters, number: any(
        state is JobState.RUNNING for _, state in clusters.forwarded(number)
    ),
    "running here": lambda clusters, number: clusters.job(number).state is JobState.RUNNING,
    "ended there": lambda clusters, number: any(state.terminal for _, state in clusters.forwarded(number)),
    "ended here": lambda clusters, number: clusters.job(number).state.terminal,
}


@pytest.mark.parametrize("victim", ["here", "there"])
def test_a_kill_at_each_step_leaks_and_doubles_nothing(clusters: TwoClusters, victim: str) -> None:
    clusters.start()
    killed: System = getattr(clusters, victim)
    for at, (step, reached) in enumerate(STEPS.items()):
        witness = clusters.here.place / f"witness-{at}"
        number = clusters.submit("sh", "-c", f"echo $$ >> {witness}; sleep 1")
        clusters.here.until(lambda: reached(clusters, number), step)  # noqa: B023 - used at once
        killed.kill()
        killed.start()
        clusters.ended_once(number, witness)
    clusters.there.await_nothing("job")
    with clusters.here.client() as client:
        [engine] = client.engines().engines
    assert (engine.live, engine.orphans_ended) == (0, 0)
    with clusters.there.client() as client:
        table = client.job_table(("labels",), since=0)
    assert len(table.rows) == len(STEPS)
    assert len({labels[CLUSTER_LABEL] for (labels,) in table.rows}) == 1
