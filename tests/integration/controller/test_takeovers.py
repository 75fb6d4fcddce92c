"""Several controllers on one PostgreSQL database: take-overs, standbys, and former leaders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cli.commands.service.controllers import leaderless_note
from controller.api.server.leader_address import is_local
from tests.contract.test_stores import by_hand
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.limits import PATIENCE_S
from tests.oracle.oracle import Oracle
from tests.oracle.verdict import Broken
from tests.programs import run_corral
from tests.several_controllers import Member, SeveralControllers, several_controllers
from tests.takeovers.audit import audited
from tests.takeovers.driver import run, run_promotions
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.names import JobState


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresUnderTest]:
    try:
        with postgres() as running:
            yield running
    except Absent as missing:
        pytest.skip(str(missing))


@pytest.fixture
def cluster(server: PostgresUnderTest) -> Iterator[SeveralControllers]:
    """Two running controllers and one node."""
    with several_controllers(server.new_database()) as made:
        made.start()
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["terminated", "killed", "stopped", "cut from the database"])
def test_take_over_under_load_loses_and_doubles_nothing(server: PostgresUnderTest, fault: str) -> None:
    report = run(server, seed=1, count=1, faults=fault)
    assert [*report.times] == [fault]
    assert report.jobs > 0
    assert report.stale == []
    assert report.broken == []


def test_controllers_that_start_together_agree_on_the_leader(cluster: SeveralControllers) -> None:
    views = [cluster.view(member) for member in cluster.members]
    assert {(view.leader, view.epoch) for view in views if view is not None} == {(cluster.leader().url, 1)}
    for view, member in zip(views, cluster.members, strict=True):
        assert view is not None
        assert sorted(each.role for each in view.controllers) == ["leader", "standby"]
        assert [each.url for each in view.controllers if each.this] == [member.url]
    told = json.loads(cluster_corral(cluster.standby(), "controllers", "-o", "json"))
    assert sorted(each["role"] for each in told["controllers"]) == ["leader", "standby"]


def cluster_corral(member: Member, *words: str) -> str:
    return run_corral(*words, environment={**os.environ, "CORRAL_URL": member.url}, check=True).stdout


def test_standby_shows_the_jobs_of_the_leader_and_sends_changes_there(cluster: SeveralControllers) -> None:
    standby = cluster.standby()
    oracle = Oracle(cluster)
    with standby.client() as reader, standby.client() as writer:
        assert reader.jobs().jobs == ()
        [job] = oracle.submit(writer, oracle.spec(2, gpus=1))
        seen: set[str] = set()
        for batch in reader.stream(after=0):
            seen |= {view.state.value for view in batch.jobs} if batch is not None else set()
            if "COMPLETED" in seen:
                break
        found = reader.jobs(history=True).jobs
        assert [(each.id, each.state) for each in found] == [(job, JobState.COMPLETED)]
        assert [each.name for each in reader.nodes().nodes] == ["gpu01"]
    assert oracle.verify() == []


def test_state_of_a_standby_equals_that_of_the_leader(cluster: SeveralControllers) -> None:
    oracle = Oracle(cluster)
    with cluster.client() as client:
        ids = [oracle.submit(client, oracle.spec(1, gpus=1, name=f"n{each}"))[0] for each in range(12)]
        held = oracle.submit(client, oracle.spec(1, hold=True))[0]
        client.cancel(oracle.submit(client, oracle.spec(200))[0])
    cluster.await_jobs(ids)
    cluster.until(
        lambda: len({seq_of(member) for member in cluster.members}) == 1, "the standby has followed"
    )
    with cluster.leader().client() as first, cluster.standby().client() as second:
        assert first.jobs().jobs == second.jobs().jobs
        assert first.jobs(history=True).jobs == second.jobs(history=True).jobs
        assert [node.state for node in first.nodes().nodes] == [node.state for node in second.nodes().nodes]
        first.cancel(held)


def seq_of(member: Member) -> int:
    with member.client() as client:
        return client.health().seq


def test_client_waits_for_the_next_leader(cluster: SeveralControllers) -> None:
    oracle, leader = Oracle(cluster), cluster.leader()
    assert leader.process is not None
    leader.process.send(signal.SIGKILL)
    with cluster.client() as client:
        [job] = oracle.submit(client, oracle.spec(0), key="once")
        assert client.submit(oracle.spec(0), key="once").ids == (job,)
        assert client.controllers().epoch == 2
    assert oracle.verify() == []


def test_change_of_a_node_survives_a_lost_session(server: PostgresUnderTest) -> None:
    """After the loss of its sessions, the leader writes no rows from before the change."""
    with several_controllers(server.new_database(), count=1) as cluster:
        cluster.start()
        cluster.stop()
        oracle = Oracle(cluster.start())  # This controller has loaded the row of the node before the change.
        with cluster.client() as client:
            client.drain("gpu01", "a fan is broken")
            server.end_sessions("corral pid %")

            def accepted() -> bool:
                with suppress(Refused):
                    return bool(oracle.submit(client, oracle.spec(0, hold=True), key="once"))
                return False

            cluster.until(accepted, "the store can be written again")
            client.cancel(oracle.ids[0])
        assert oracle.verify() == []


def test_client_of_one_standby_is_told_that_no_controller_leads(cluster: SeveralControllers) -> None:
    """A client in the midst of a take-over reads, and its change is refused without being carried out."""
    leader, standby = cluster.leader(), cluster.standby()
    for proxy in cluster.proxies.values():
        proxy.cut()
    assert leader.process is not None
    leader.process.send(signal.SIGKILL)
    with Client(standby.url, timeout_s=5.0) as client:
        assert client.jobs().jobs == ()
        with pytest.raises((Refused, Unreachable)):
            client.submit(JobSpec(command=("true",)))
    for proxy in cluster.proxies.values():
        proxy.heal()
    cluster.until(lambda: cluster.leader() is standby, "the standby leads")
    assert cluster.jobs() == {}


def test_local_address_of_a_leader_on_another_host_is_not_given(cluster: SeveralControllers) -> None:
    """Without [api] url, the address is a unix socket, at which clients would reach another controller."""
    leader, standby = cluster.leader(), cluster.standby()
    with standby.client() as client:
        assert client.controllers().leader == leader.url
    assert leader.process is not None
    leader.process.send(signal.SIGKILL)
    by_hand(
        cluster.store_url,
        "UPDATE corral_control.leader SET holder = 'pid 1 on elsewhere - - -', epoch = epoch + 1, "
        "expires_at = clock_timestamp() + interval '1 hour'",
    )

    def told() -> str:
        with Client(standby.url, timeout_s=1.0) as client, pytest.raises(Refused) as refused:
            client.submit(JobSpec(command=("true",)))
        return str(refused.value)

    cluster.until(lambda: "no address for other hosts" in told(), "the client is told")
    by_hand(
        cluster.store_url,
        "INSERT INTO corral_control.controllers VALUES ('pid 1 on elsewhere - - -', '', '', 0, now(), now())",
    )
    shown = run_corral("controllers", environment={**os.environ, "CORRAL_URL": standby.url}, check=True)
    assert shown.stderr == "", "the cluster has a leader, although this client does not get its address"


def test_note_about_a_missing_leader_names_the_next_step() -> None:
    assert "within 6 s" in leaderless_note({"silent", "standby"})
    assert "Start a controller" in leaderless_note({"silent"})


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("unix:///run/corral.sock", True),
        ("http://127.0.0.1:7070", True),
        ("https://[::1]:7070", True),
        ("https://localhost:7070", True),
        ("https://head1:7070", False),
        ("http://10.0.0.11:7070", False),
    ],
)
def test_local_addresses(url: str, local: bool) -> None:
    assert is_local(url) is local


def freezing(
    server: PostgresUnderTest, place: Path, at: str, without: str, nodes: tuple[str, ...]
) -> tuple[list[Broken], list[str], str]:
    """Let the leader stand still at a moment in a submit, until the other controller leads. Return the stale
    journal entries, the jobs for which the former leader has sent start orders, and its log.
    """
    flag = place / "freeze"
    program = ["tests.takeovers.unfenced", "--freeze", str(flag), "--at", at]
    program += ["--without", without] if without else []
    with several_controllers(server.new_database(), nodes, program=program) as cluster:
        cluster.start()
        leader, standby = cluster.leader(), cluster.standby()
        assert leader.process is not None
        with audited(cluster.store_url) as stale:
            flag.touch()
            submit = threading.Thread(target=submit_quietly, args=(leader,))
            submit.start()
            cluster.until(lambda: not flag.exists(), "the leader stands still")
            cluster.until(lambda: leads(cluster, standby), "the standby leads")
            orders = place / f"freeze.{leader.process.pid}"
            orders.unlink(missing_ok=True)
            leader.process.send(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):  # because a leader without fences does not end
                leader.process.wait(5.0)
            sent = orders.read_text().split() if orders.exists() else []
            found = stale()
        leader.process.send(signal.SIGKILL)
        submit.join(PATIENCE_S)
        return found, sent, leader.log.read_text()


def submit_quietly(member: Member) -> None:
    with suppress(Refused, Unreachable), Client(member.url, timeout_s=60.0) as client:
        client.submit(JobSpec(command=("true",), gpus=1, cpu_milli=100, memory_mib=10))


def leads(cluster: SeveralControllers, member: Member) -> bool:
    view = cluster.view(member)
    return view is not None and any(each.this and each.role == "leader" for each in view.controllers)


@pytest.mark.slow
def test_commit_of_a_former_leader_is_refused_by_the_database(
    server: PostgresUnderTest, tmp_path: Path
) -> None:
    """The controller stands still between its look at the clock and its transaction."""
    stale, _, log = freezing(server, tmp_path, "commit", "", ())
    assert stale == []
    assert "Another controller" in log


@pytest.mark.slow
def test_audit_finds_the_stale_entry_of_a_leader_without_fences_in_the_database(
    server: PostgresUnderTest, tmp_path: Path
) -> None:
    stale, _, _ = freezing(server, tmp_path, "commit", "database", ())
    assert [each.promise for each in stale] != []


@pytest.mark.slow
@pytest.mark.parametrize("without", ["", "clock"])
def test_former_leader_sends_no_order_after_its_lease(
    server: PostgresUnderTest, tmp_path: Path, without: str
) -> None:
    """The controller stands still between its commit and the orders of the commit."""
    _, sent, _ = freezing(server, tmp_path, "orders", without, ("gpu01",))
    assert bool(sent) == bool(without)


@pytest.mark.engines
@pytest.mark.parametrize("fault", ["cut from the agents", "clock ahead", "clock behind", "upgraded"])
def test_rarer_faults_lose_and_double_nothing(server: PostgresUnderTest, fault: str) -> None:
    report = run(server, seed=1, count=2, faults=fault)
    assert report.stale == []
    assert report.broken == []


@pytest.mark.engines
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_restart_of_a_pooler_loses_nothing(server: PostgresUnderTest, mode: str) -> None:
    try:
        report = run(server, seed=1, count=2, faults="pooler restarted", pool=mode)
    except Absent as missing:
        pytest.skip(str(missing))
    assert report.stale == []
    assert report.broken == []


@pytest.mark.engines
def test_promoted_standby_server_that_lags_is_refused_until_the_loss_is_accepted() -> None:
    try:
        report = run_promotions(seed=1, count=1)
    except Absent as missing:
        pytest.skip(str(missing))
    assert report.lost > 0
    assert report.stale == []
    assert report.broken == []
