"""Links between controller and real OpenSSH servers are cut: shorter than the lease, longer, one way, often.

Every job records its times with the clock of the machine, so that overlapping attempts are detected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests import link_cuts
from tests.link_cuts import Cluster
from tests.networks import lacking
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState, NodeState

LACKING = lacking()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")


@pytest.fixture
def lease_s() -> float:
    return 3.0


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[float], Cluster]]:
    """Clusters by the seconds of their lease."""
    with ExitStack() as stack:
        yield functools.cache(lambda lease_s: stack.enter_context(link_cuts.cluster(lease_s)))


@pytest.fixture
def cluster(lease_s: float, clusters: Callable[[float], Cluster]) -> Iterator[Cluster]:
    made = clusters(lease_s)
    yield made
    made.turn_page()


@pytest.mark.parametrize("lease_s", [600.0])
def test_link_cut_shorter_than_the_lease_ends_no_job(cluster: Cluster) -> None:
    job, host = cluster.submit()
    host.cut()
    cluster.await_state(host, NodeState.SUSPECT, NodeState.DOWN)
    assert cluster.running(job).attempt == 1
    host.mend()
    cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 1


@pytest.mark.parametrize("direction", ["both", "to_host", "from_host"])
def test_link_cut_longer_than_the_lease_moves_the_job_without_overlap(
    cluster: Cluster, direction: str
) -> None:
    job, host = cluster.submit()
    host.cut(direction)
    moved = cluster.running(job, attempt=2)
    assert moved.held[0].node != host.name
    host.mend()
    cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 2
    assert sorted(cluster.lives(job)) == [1, 2]
    assert cluster.never_at_once(job)


def test_jobs_with_policy_wait_are_not_affected_by_link_cuts(cluster: Cluster) -> None:
    job, host = cluster.submit(OnNodeLost.WAIT)
    other, elsewhere = cluster.submit(OnNodeLost.REQUEUE)
    assert host is not elsewhere
    for each in (host, elsewhere):
        each.cut()
    cluster.until(other, lambda view: view.state is JobState.QUEUED)
    for each in (host, elsewhere):
        each.mend()
    cluster.running(other, attempt=2)
    assert cluster.finish(job).attempt == 1


@pytest.mark.parametrize("lease_s", [600.0])
def test_repeatedly_cut_link_ends_no_job(cluster: Cluster) -> None:
    job, host = cluster.submit()
    for _ in range(4):
        host.cut()
        cluster.await_state(host, NodeState.SUSPECT, NodeState.DOWN)
        host.mend()
        cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 1


def test_operator_declares_a_node_lost_without_waiting(cluster: Cluster) -> None:
    job, host = cluster.submit(OnNodeLost.MANUAL)
    host.cut()
    cluster.await_state(host, NodeState.DOWN)
    with cluster.system.client() as client:
        assert client.job(job).job.attempt == 1
        assert "corral nodes lost" in client.job(job).why.sentence
        client.declare_lost(host.name)
    assert cluster.running(job, attempt=2).held[0].node != host.name


def test_random_link_cuts_break_no_guarantee(cluster: Cluster) -> None:
    report = link_cuts.cut_at_random(cluster, seed=7, seconds=8.0)
    assert report.jobs
    assert report.broken == []


def test_controller_that_ignores_the_lease_is_detected() -> None:
    """The checks of these tests detect a broken controller."""
    with link_cuts.cluster(600.0, "tests.early_restart") as made:
        job, host = made.submit()
        host.cut()
        made.running(job, attempt=2)
        made.system.until(lambda: not made.never_at_once(job), "both attempts were alive")
