"""Cables between controller and real OpenSSH servers are cut: shorter than the lease, longer, one way, often.

Every job writes a beat with the machine's own clock, so that attempts that ran at once would show.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.networks import PYTHON, FarHost, Network, lacking, network
from tests.systems import System, system
from wire.api import JobView, NodeRequest
from wire.conditions import OnNodeLost
from wire.hosts import HostSpec
from wire.spec import JobSpec
from wire.words import JobState, NodeState

LACKING = lacking()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")

BEATS = """
trap 'exit 143' TERM
while [ ! -e {gate} ]; do
    read -r now _ < /proc/uptime
    echo "$CORRAL_ATTEMPT $now" >> {beats}
    sleep 0.05
done
exit 7
"""


class Cluster:
    """A controller in a namespace, and two hosts that its operator added."""

    def __init__(self, made: Network, controller: System, lease_s: float) -> None:
        self.network = made
        self.system = controller
        self.system.program = ("tests.inside", made.head, "controller")
        self.system.sections["nodes"] = {}
        self.system.sections["scheduler"] = {
            "lease_s": lease_s,
            "lease_margin_s": 1.0,
            "down_after_s": 2.0,
            "heartbeat_s": 0.4,
        }
        self.system.start()
        self.beats, self.gate = made.place / "beats", made.place / "gate"
        self.beats.touch()
        self.beats.chmod(0o666)
        self.hosts = {host.name: host for host in (made.host(), made.host())}
        with self.system.client() as client:
            for host in self.hosts.values():
                self._add(client.add_node, client.preflight, host)
        self.system.await_nodes(*self.hosts)

    def _add(self, add: object, look: object, host: FarHost) -> None:
        spec = HostSpec(
            f"{host.user}@{host.address}",
            identity=str(self.network.identity),
            python=str(PYTHON),
            gpus="simulated:1xH100",
            cpus=4,
        )
        first = look(NodeRequest(host.name, spec))  # type: ignore[operator]
        assert [check.verdict for check in first.checks] == ["ok", "unknown"]
        looked = look(NodeRequest(host.name, spec, first.host_key))  # type: ignore[operator]
        assert looked.ready, looked
        add(NodeRequest(host.name, spec, first.host_key))  # type: ignore[operator]

    def submit(self, policy: OnNodeLost | None = OnNodeLost.REQUEUE) -> tuple[int, FarHost]:
        """A running job, and where it is."""
        script = BEATS.format(gate=self.gate, beats=self.beats)
        spec = JobSpec(("sh", "-c", script), gpus=1, workdir="/", grace_s=0.5, on_node_lost=policy)
        with self.system.client() as client:
            job = client.submit(spec).ids[0]
        return job, self.hosts[self.running(job).held[0].node]

    def running(self, job: int, attempt: int = 1) -> JobView:
        """Once this attempt runs."""
        return self.until(job, lambda view: view.state is JobState.RUNNING and view.attempt == attempt)

    def until(self, job: int, true: object) -> JobView:
        seen: list[JobView] = []

        def look() -> bool:
            with self.system.client() as client:
                seen[:] = [client.job(job).job]
            return bool(true(seen[0]))  # type: ignore[operator]

        self.system.until(look, f"job {job} is as it should be")
        return seen[0]

    def await_state(self, node: FarHost, *states: NodeState) -> None:
        def look() -> bool:
            with self.system.client() as client:
                return client.node(node.name).state in states

        self.system.until(look, f"{node.name} is {states}")

    def finish(self, job: int) -> JobView:
        """Let it end, and see its own exit code arrive once."""
        self.gate.touch()
        view = self.until(job, lambda view: view.state.terminal)
        assert (view.state, view.exit_code) == (JobState.FAILED, 7)
        with self.system.client() as client:
            events = client.events(job=job).events
        assert sum(event.kind == "JobEnded" for event in events) == 1
        exits = [event.data["attempt"] for event in events if event.kind == "AttemptExited"]
        assert len(exits) == len(set(exits)) == view.attempt
        return view

    def times(self) -> dict[int, list[float]]:
        """When each attempt was alive, by the one clock of all."""
        found: dict[int, list[float]] = {}
        for line in self.beats.read_text().splitlines():
            attempt, now = line.split()
            found.setdefault(int(attempt), []).append(float(now))
        return found


@pytest.fixture
def lease_s() -> float:
    return 3.0


@pytest.fixture
def cluster(lease_s: float) -> Iterator[Cluster]:
    with network() as made, system() as controller:
        yield Cluster(made, controller, lease_s)


def never_at_once(times: dict[int, list[float]]) -> bool:
    return max(times[1]) < min(times[2])


@pytest.mark.parametrize("lease_s", [600.0])
def test_a_cut_shorter_than_the_lease_ends_nothing(cluster: Cluster) -> None:
    job, host = cluster.submit()
    host.cut()
    cluster.await_state(host, NodeState.SUSPECT, NodeState.DOWN)
    assert cluster.running(job).attempt == 1
    host.mend()
    cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 1


@pytest.mark.parametrize("way", ["both", "there", "back"])
def test_a_cut_longer_than_the_lease_moves_the_job_and_never_twice_at_once(
    cluster: Cluster, way: str
) -> None:
    job, host = cluster.submit()
    host.cut(way)
    moved = cluster.running(job, attempt=2)
    assert moved.held[0].node != host.name
    host.mend()
    cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 2
    assert never_at_once(cluster.times())


def test_jobs_that_wait_are_not_touched_by_any_cut(cluster: Cluster) -> None:
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
def test_a_cable_that_comes_and_goes(cluster: Cluster) -> None:
    job, host = cluster.submit()
    for _ in range(4):
        host.cut()
        cluster.await_state(host, NodeState.SUSPECT, NodeState.DOWN)
        host.mend()
        cluster.await_state(host, NodeState.UP)
    assert cluster.finish(job).attempt == 1


def test_an_operator_who_pulled_the_plug_need_not_wait(cluster: Cluster) -> None:
    job, host = cluster.submit(OnNodeLost.MANUAL)
    host.cut()
    cluster.await_state(host, NodeState.DOWN)
    with cluster.system.client() as client:
        assert client.job(job).job.attempt == 1
        assert "corral nodes lost" in client.job(job).why.sentence
        client.declare_lost(host.name)
    assert cluster.running(job, attempt=2).held[0].node != host.name
