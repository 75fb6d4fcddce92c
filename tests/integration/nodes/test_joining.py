"""Hosts join and leave a running cluster by the command line; the SSH server runs real agents."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from controller.nodes.ssh.known_hosts import fingerprint, key_line
from tests.controller.nodes.ssh_server import SshServer, running_ssh_server
from tests.programs import run_corral
from tests.systems import PATIENCE_S, System, system
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState

Corral = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cluster() -> Iterator[System]:
    with system("here") as made:
        yield made.start()


@pytest.fixture
def ssh_server(cluster: System) -> Iterator[SshServer]:
    with running_ssh_server(cluster.place / "far") as sshd:
        yield sshd
        cluster.stop()  # while the SSH server still runs


@pytest.fixture
def corral(cluster: System) -> Corral:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
        environment = {**kept, "CORRAL_URL": f"unix://{cluster.socket}"}
        return run_corral(*words, environment=environment, place=cluster.place)

    return run


def options(ssh_server: SshServer) -> list[str]:
    simulated = ["--gpus", "simulated:2xH100", "--run-as-self"]
    return [*simulated, "--identity", str(ssh_server.identity), "--python", sys.executable]


def at(ssh_server: SshServer) -> str:
    return f"somebody@127.0.0.1:{ssh_server.port}"


def test_host_joins_runs_a_job_survives_a_restart_and_is_removed(
    cluster: System, ssh_server: SshServer, corral: Corral
) -> None:
    key = fingerprint(ssh_server.host_key)
    asked = corral("nodes", "add", "gpu02", at(ssh_server), *options(ssh_server))
    assert asked.returncode == 1
    assert f"unknown host key    {key}" in asked.stdout
    assert not (ssh_server.home / ".corral").exists()

    wrong = corral(
        "nodes", "add", "gpu02", at(ssh_server), *options(ssh_server), "--fingerprint", "SHA256:other"
    )
    assert (wrong.returncode, wrong.stderr.count(key)) == (1, 1)

    added = corral(
        "nodes",
        "add",
        "gpu02",
        at(ssh_server),
        *options(ssh_server),
        "--label",
        "rack=r9",
        "--fingerprint",
        key,
    )
    assert added.returncode == 0, added.stdout + added.stderr
    assert "node gpu02: joined with 2 × NVIDIA H100 80GB HBM3" in added.stderr
    for line in ("ok      Python", "ok      spool", "ok      disk", "ok      time", "ok      GPUs"):
        assert f"\n  {line}" in added.stdout

    run = corral("run", "--select", "rack=r9", "--gpus", "1", "--", "sh", "-c", "echo $CORRAL_NODE")
    assert (run.returncode, run.stdout) == (0, "gpu02\n")

    cluster.stop()
    cluster.start()
    cluster.await_nodes("gpu02")
    with cluster.client() as client:
        job = client.submit(JobSpec(("sleep", "1000"), selector={"node": "gpu02"})).ids[0]
        cluster.await_jobs([job], JobState.RUNNING)
        busy = corral("nodes", "remove", "gpu02")
        assert busy.returncode == 1
        assert "node gpu02 still has 1 job" in busy.stderr
        client.cancel(job)
        cluster.await_jobs([job])
        assert corral("nodes", "remove", "gpu02").returncode == 0
        assert [node.name for node in client.nodes().nodes] == ["here"]
        cluster.until(
            lambda: not ssh_server.connections or all(each.is_closed() for each in ssh_server.connections),
            "it left",
        )
    assert f"pinned the host key {key} of node gpu02" in corral("events", "-n", "500").stdout
    cluster.stop()
    cluster.start()
    assert corral("nodes", "-o", "name").stdout == "here\n"


def test_host_of_another_cluster_is_not_taken(cluster: System, ssh_server: SshServer, corral: Corral) -> None:
    """Both clusters use the same directory on the host, and neither takes jobs of the other."""
    add = ["nodes", "add", "gpu02", at(ssh_server), *options(ssh_server), "--yes"]
    assert corral(*add).returncode == 0
    with cluster.client() as client:
        job = client.submit(JobSpec(("sleep", "1000"), selector={"node": "gpu02"})).ids[0]
        cluster.await_jobs([job], JobState.RUNNING)
        with system("there") as other:
            other.start()

            def corral_there(*words: str) -> subprocess.CompletedProcess[str]:
                environment = {**os.environ, "CORRAL_URL": f"unix://{other.socket}"}
                return run_corral(*words, environment=environment)

            refused = corral_there(*add)
            assert refused.returncode == 1
            assert "failed  spool       the spool directory" in refused.stdout
            assert "belongs to another Corral cluster" in refused.stdout
            aside = corral_there(*add, "--spool", str(cluster.place / "aside"))
            assert aside.returncode == 0
            assert "note    agents      Corral is on this host already" in aside.stdout
            assert client.job(job).job.state is JobState.RUNNING
            client.cancel(job)
            cluster.await_jobs([job])
            assert corral("nodes", "remove", "gpu02").returncode == 0
            cluster.until(lambda: corral_there(*add).returncode == 0, "the other one may have it now")
            other.stop()


def test_many_hosts_are_added_from_a_file(cluster: System, ssh_server: SshServer, corral: Corral) -> None:
    names = [f"gpu{number:02}" for number in range(1, 7)]
    lines = [f"{name} {at(ssh_server)} label.rack=r{name[-1]}  # rack by rack" for name in names]
    Path(cluster.place / "hosts").write_text(
        "\n".join(["# our hosts", "", *lines, f"bad {at(ssh_server)}0"]) + "\n"
    )
    added = corral("nodes", "add", "--hosts-file", "hosts", *options(ssh_server), "--yes")
    assert added.returncode == 2
    assert "cannot read" in added.stderr
    Path(cluster.place / "hosts").write_text("\n".join([*lines, "gone 127.0.0.1:1"]) + "\n")
    added = corral("nodes", "add", "--hosts-file", "hosts", *options(ssh_server), "--yes")
    assert added.returncode == 1
    assert "gone at 127.0.0.1:1: not ready" in added.stdout
    assert "does 'ssh -p 1 127.0.0.1' reach the host?" in added.stdout
    told = {line.split()[0]: line for line in added.stdout.split("WHY\n")[1].splitlines()}
    assert [*told] == [*names, "gone"]
    assert all("joined     2 × NVIDIA H100" in told[name] for name in names)
    assert "not ready  reachable: nothing listens on the SSH port" in told["gone"]
    assert "6 of 7 hosts joined" in added.stderr
    assert (
        "gpu01, gpu02, gpu03, gpu04, gpu05 and 1 more:\n  note    agents      these nodes are one machine"
        in added.stdout
    )
    cluster.await_nodes(*names)
    with cluster.client() as client:
        racks = {node.name: node.labels.get("rack") for node in client.nodes().nodes if node.name in names}
    assert racks == {name: f"r{name[-1]}" for name in names}


def test_interrupted_add_continues_with_the_same_command(
    cluster: System, ssh_server: SshServer, corral: Corral, tmp_path: Path
) -> None:
    """Ctrl-C while one host is slow to answer: the command ends at once and adds no host."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["nodes", "add", "gpu02", at(ssh_server), "slow", f"127.0.0.1:{silent.getsockname()[1]}"]
        environment = {**os.environ, "CORRAL_URL": f"unix://{cluster.socket}"}
        adding = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", *words, *options(ssh_server), "--yes"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with silent.accept()[0]:  # the controller is at it
            adding.send_signal(signal.SIGINT)
            said = adding.communicate(timeout=PATIENCE_S)
    assert adding.returncode == 130, said
    assert "Traceback" not in said[1]
    assert corral("nodes", "-o", "name").stdout == "here\n"
    assert corral(*words[:4], *options(ssh_server), "--yes").returncode == 0


def test_changed_host_key_is_reported_until_it_is_trusted(
    cluster: System, ssh_server: SshServer, corral: Corral
) -> None:
    assert corral("nodes", "add", "gpu02", at(ssh_server), *options(ssh_server), "--yes").returncode == 0
    with cluster.client() as client:
        job = client.submit(JobSpec(("sleep", "1000"), selector={"node": "gpu02"})).ids[0]
        cluster.await_jobs([job], JobState.RUNNING)
        other = key_line(asyncssh.generate_private_key("ssh-ed25519"))
        client.trust("gpu02", other)  # the pinned key differs from the key of the host
        cluster.until(lambda: "ALERT: the host key has changed" in client.node("gpu02").why, "the alarm")
        assert client.node("gpu02").state is NodeState.SUSPECT
        assert client.job(job).job.state is JobState.RUNNING
        looked = corral("nodes", "check", "gpu02", "-o", "json")
        [shown] = json.loads(looked.stdout)
        assert (looked.returncode, shown["ready"]) == (1, False)
        refused = corral("nodes", "trust", "gpu02", "--fingerprint", "SHA256:other")
        assert refused.returncode == 1
        trusted = corral("nodes", "trust", "gpu02", "--fingerprint", fingerprint(ssh_server.host_key))
        assert trusted.returncode == 0, trusted.stderr
        cluster.await_nodes("gpu02")
        assert client.job(job).job.state is JobState.RUNNING
        client.cancel(job)
        cluster.await_jobs([job])


def test_configured_nodes_cannot_be_removed_by_command(cluster: System, corral: Corral) -> None:
    for words in (["remove", "here"], ["add", "here", "somewhere:1", "--yes"]):
        done = corral("nodes", *words)
        assert done.returncode == 1
    assert "corral: node here is in scheduler.toml" in corral("nodes", "remove", "here").stderr


def test_node_on_the_machine_of_the_controller_is_checked_without_ssh(corral: Corral) -> None:
    done = corral("nodes", "check", "here", "-o", "json")
    [result] = json.loads(done.stdout)
    assert (done.returncode, result["ready"], result["address"]) == (0, True, "")
    verdicts = {check["name"]: check["verdict"] for check in result["checks"]}
    assert verdicts["GPUs"] == verdicts["spool"] == verdicts["time"] == "ok"
    assert result["boot_id"]


def test_failed_check_of_a_node_on_the_machine_of_the_controller_names_the_reason(
    cluster: System, corral: Corral
) -> None:
    cluster.stop()
    cluster.sections["nodes"]["here"]["python"] = "/bin/false"
    cluster.launch()
    cluster.await_answer()
    done = corral("nodes", "check", "here")
    assert done.returncode == 1
    assert "here: not ready" in done.stdout
    assert "name another Python with --python" in done.stdout


def test_host_keys_survive_the_controller_and_old_key_files_are_imported(
    cluster: System, ssh_server: SshServer, corral: Corral
) -> None:
    assert corral("nodes", "add", "gpu02", at(ssh_server), *options(ssh_server), "--yes").returncode == 0
    cluster.stop()
    assert not (cluster.state / "known_hosts").exists()
    other = key_line(asyncssh.generate_private_key("ssh-ed25519"))
    (cluster.state / "known_hosts").write_text(f"gpu02 {other}\nhere {other}\nlong-gone {other}\n")
    cluster.start()
    cluster.await_nodes("gpu02")  # the key in the journal stays
    told = corral("events", "-n", "500").stdout
    assert "known_hosts pinned the host key" in told
    assert "long-gone" not in told
    assert not (cluster.state / "known_hosts").exists()
    assert (cluster.state / "known_hosts.imported").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_preflight_compares_hosts(
    cluster: System, ssh_server: SshServer, corral: Corral, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(tmp_path / "other")],
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        pytest.skip(f"no right to mount here: {tried.stderr.strip()}")
    (tmp_path / "same").mkdir()
    missing = tmp_path / "missing"
    # The agent runs in its own mount namespace, where one of these directories is different.
    python = tmp_path / "python"
    hide = f"mount -t tmpfs none {tmp_path}/other"
    python.write_text(f'#!/bin/sh\nexec unshare -m sh -c \'{hide}; exec {sys.executable} "$@"\' sh "$@"\n')
    python.chmod(0o755)
    shared = [str(tmp_path / "same"), str(tmp_path / "other"), str(missing)]
    cluster.stop()
    cluster.sections["cluster"] = {"shared": shared}
    cluster.start()
    words = [*options(ssh_server)[:-1], str(python)]
    looked = corral("nodes", "add", "gpu02", at(ssh_server), *words, "--yes").stdout
    assert re.search(rf"ok +shared +{shared[0]} \(.*\) is the controller's", looked)
    assert re.search(rf"note +shared +{shared[1]} is not the same directory as on the controller", looked)
    assert "Mount the same file system there" in looked
    assert re.search(
        rf"note +shared +{missing} cannot be compared: the controller cannot write there", looked
    )
    assert list((tmp_path / "same").iterdir()) == list((tmp_path / "other").iterdir()) == []
