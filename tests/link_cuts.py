"""A controller and hosts in network namespaces whose links are cut, and jobs that record when they run.

All share one clock, so that attempts that overlap are detected.
`python -m tests.link_cuts --seconds 60 --seed 7` cuts links at random under load and reports.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.networks import PYTHON, Network, NetworkHost, lacking, network
from tests.systems import System, system
from wire.api.jobs import JobView
from wire.api.nodes import NodeRequest
from wire.cluster.hosts import HostSpec
from wire.http.client import Client
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost, Restart
from wire.names import JobState, NodeState

HOSTS = 2
LIVES = """
umask 0
trap 'exit 143' TERM
beat() {{ read -r now _ < /proc/uptime; echo "$CORRAL_ATTEMPT $now $1" >> {beats}.$CORRAL_JOB_ID; }}
left={count}
while [ $left -gt 0 ] && [ ! -e {gate} ]; do
    beat alive
    left=$((left - 1))
    sleep 0.05
done
beat {code}
exit {code}
"""


class Cluster:
    """A controller in a namespace, and two hosts that its operator added."""

    def __init__(
        self, made: Network, controller: System, lease_s: float, program: str = "controller"
    ) -> None:
        self.network = made
        self.system = controller
        self.system.program = ("tests.in_network_namespace", made.head, program)
        self.system.sections["nodes"] = {}
        self.system.sections["scheduler"] = {
            "lease_s": lease_s,
            "lease_margin_s": 1.0,
            "down_after_s": 2.0,
            "heartbeat_s": 0.4,
        }
        self.system.start()
        folder = made.place / "beats"
        folder.mkdir()
        folder.chmod(0o777)
        self.beats, self.gate = folder / "of", made.place / "gate"
        self.hosts = {host.name: host for host in (made.host() for _ in range(HOSTS))}
        with self.system.client() as client:
            for host in self.hosts.values():
                self._add(client, host)
        self.system.await_nodes(*self.hosts)

    def turn_page(self) -> None:
        """Repair all links, end all jobs, and remove the gate file, for the next test."""
        for host in self.hosts.values():
            host.mend()
        with self.system.client() as client:
            active = [job for job, view in self.system.jobs().items() if not view.state.terminal]
            for job in active:
                client.cancel(job)
        self.system.await_jobs(active)
        self.system.await_nodes(*self.hosts)
        self.gate.unlink(missing_ok=True)

    def _add(self, client: Client, host: NetworkHost) -> None:
        spec = HostSpec(
            f"{host.user}@{host.address}",
            identity=str(self.network.identity),
            python=str(PYTHON),
            gpus="simulated:2xH100",
            cpus=4,
        )
        first = client.preflight(NodeRequest(host.name, spec))
        assert [check.verdict for check in first.checks] == ["ok", "unknown"]
        looked = client.preflight(NodeRequest(host.name, spec, first.host_key))
        assert looked.ready, looked
        client.add_node(NodeRequest(host.name, spec, first.host_key))

    def spec(
        self, policy: OnNodeLost | None, gpus: float = 2, count: int = 100_000, code: int = 7
    ) -> JobSpec:
        """The command of a job that runs for this many beats, or until the gate file exists."""
        script = LIVES.format(gate=self.gate, beats=self.beats, count=count, code=code)
        # A host may be cut off any number of times while a job is on it.
        endless = Restart(limit=None)
        return JobSpec(
            ("sh", "-c", script), gpus=gpus, workdir="/", grace_s=0.5, on_node_lost=policy, restart=endless
        )

    def submit(self, policy: OnNodeLost | None = OnNodeLost.REQUEUE) -> tuple[int, NetworkHost]:
        """A running job and its nodes."""
        with self.system.client() as client:
            job = client.submit(self.spec(policy)).ids[0]
        return job, self.hosts[self.running(job).held[0].node]

    def running(self, job: int, attempt: int = 1) -> JobView:
        """Wait until this attempt runs."""
        return self.until(job, lambda view: view.state is JobState.RUNNING and view.attempt == attempt)

    def until(self, job: int, true: Callable[[JobView], bool]) -> JobView:
        seen: list[JobView] = []

        def look() -> bool:
            with self.system.client() as client:
                seen[:] = [client.job(job).job]
            return true(seen[0])

        self.system.until(look, f"job {job} is as it should be")
        return seen[0]

    def await_state(self, node: NetworkHost, *states: NodeState) -> None:
        def look() -> bool:
            with self.system.client() as client:
                return client.node(node.name).state in states

        self.system.until(look, f"{node.name} is {states}")

    def finish(self, job: int) -> JobView:
        """Let the job end; check that its exit code arrives once."""
        self.gate.touch()
        view = self.until(job, lambda view: view.state.terminal)
        assert (view.state, view.exit_code) == (JobState.FAILED, 7)
        with self.system.client() as client:
            events = client.events(job=job).events
        assert sum(event.kind == "JobEnded" for event in events) == 1
        exits = [event.data["attempt"] for event in events if event.kind == "AttemptExited"]
        assert len(exits) == len(set(exits)) == view.attempt
        return view

    def lives(self, job: int) -> dict[int, list[tuple[float, str]]]:
        """The time span and the outcome of each attempt, by the common clock."""
        found: dict[int, list[tuple[float, str]]] = {}
        path = Path(f"{self.beats}.{job}")
        for line in path.read_text().splitlines() if path.exists() else ():
            attempt, now, word = line.split()
            found.setdefault(int(attempt), []).append((float(now), word))
        return found

    def never_at_once(self, job: int) -> bool:
        """Whether each attempt ended before the next began."""
        lives = [value for _, value in sorted(self.lives(job).items())]
        return all(one[-1][0] < next_[0][0] for one, next_ in pairwise(lives))


@contextmanager
def cluster(lease_s: float, program: str = "controller") -> Iterator[Cluster]:
    """A cluster for one test."""
    with network() as made, system() as controller:
        yield Cluster(made, controller, lease_s, program)


@dataclass
class Report:
    """The faults, and the broken guarantees."""

    seed: int
    cuts: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    moved: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cuts = ", ".join(f"{count} {direction}" for direction, count in sorted(self.cuts.items()))
        summary = f"seed {self.seed}: cuts: {cuts}; {self.jobs} jobs, {self.moved} restarted; "
        return summary + ("; ".join(self.broken) or "no guarantee was broken")


def cut_at_random(made: Cluster, seed: int, seconds: float) -> Report:
    """Cut and repair links at random while jobs arrive; then repair all and check the guarantees."""
    dice, report = random.Random(seed), Report(seed)
    codes: dict[int, tuple[int, OnNodeLost]] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with made.system.client() as client:
            for _ in range(dice.randrange(3)):
                code, policy = dice.choice([0, 3, 5]), dice.choice([OnNodeLost.WAIT, OnNodeLost.REQUEUE])
                spec = made.spec(policy, dice.choice([0.5, 1.0]), dice.randrange(5, 120), code)
                codes[client.submit(spec).ids[0]] = code, policy
        host = dice.choice([*made.hosts.values()])
        host.mend()
        if dice.random() < 0.7:
            direction = dice.choice(["to_host", "from_host", "both"])
            host.cut(direction)
            report.cuts[direction] = report.cuts.get(direction, 0) + 1
        time.sleep(dice.uniform(0.1, 3.0))
    for host in made.hosts.values():
        host.mend()
    for job, (code, policy) in codes.items():
        view = made.until(job, lambda view: view.state.terminal)
        report.jobs += 1
        report.moved += view.attempt > 1
        report.broken += _broken(made, view, code, policy)
    return report


def _broken(made: Cluster, view: JobView, code: int, policy: OnNodeLost) -> Iterator[str]:
    lives = made.lives(view.id)
    if view.attempt not in lives:
        yield f"attempt {view.attempt} of job {view.id} left no trace"
    if not made.never_at_once(view.id):
        yield f"job {view.id} ran twice at once"
    if policy is OnNodeLost.WAIT and view.attempt != 1:
        yield f"job {view.id} was to wait and was restarted"
    if view.exit_code != code or lives.get(view.attempt, [(0.0, "")])[-1][1] != str(code):
        last_word = lives.get(view.attempt, [(0.0, "nothing")])[-1][1]
        how = f"{view.state.value}, {view.detail} (attempt {view.attempt}, whose last word was {last_word})"
        yield f"job {view.id} was to return {code}, and {view.exit_code} is on record: {how}"


def main() -> int:
    """Run and print; exit code 0 if all guarantees held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run; random if left out")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    if lacking():
        print(f"no links are cut: {lacking()}")
        return 0
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    print(f"{given.seconds:g} s of cut links with seed {seed} …", flush=True)
    with cluster(lease_s=3.0) as made:
        report = cut_at_random(made, seed, given.seconds)
    print(report)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
