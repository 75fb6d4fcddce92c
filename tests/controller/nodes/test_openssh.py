"""Badly configured hosts behind real OpenSSH servers: they join, or the error names the cause.

In each case, none of their processes is left behind.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from controller.nodes import preflight as preflights
from controller.nodes.agent import bootstrap
from controller.nodes.agent.zipapp import bundle
from controller.nodes.link import LinkLost
from controller.nodes.preflight import preflight
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts, key_line
from controller.nodes.ssh.link import SshLink
from tests.clocks import Clock
from tests.controller.nodes.link_setups import FrameListener
from tests.controller.nodes.openssh_server import (
    PATIENCE_S,
    PYTHON,
    OpenSshServer,
    lacking,
    running_openssh_server,
)
from tests.users import processes
from wire.agent.reports import Hello
from wire.api.nodes import Preflight
from wire.cluster.hosts import HostSpec, parse_ssh_address

LACKING = lacking()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")
Host = Callable[..., OpenSshServer]


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """Makes one host, and checks that none of its processes is left after the connections are closed."""
    made: list[OpenSshServer] = []

    def make(**how: str) -> OpenSshServer:
        made.append(opened.enter_context(running_openssh_server(**how)))
        return made[-1]

    with ExitStack() as opened:
        yield make
        for each in made:
            async with asyncio.timeout(PATIENCE_S):
                while left := each.processes():
                    await asyncio.sleep(0.02)
            assert not left


def connector(host: OpenSshServer, pinned: bool = True) -> SshConnector:
    config = host.place / "ssh_config"
    if not config.exists():
        config.write_text(f"IdentityAgent none\nUserKnownHostsFile {host.place}/known_hosts\n")
    keys = {"gpu01": key_line(host.host_key)} if pinned else {}
    return SshConnector(KnownHosts(lambda: keys), config=config)


def spec(host: OpenSshServer, **more: str) -> HostSpec:
    made = HostSpec(
        f"{host.user}@127.0.0.1:{host.port}", identity=str(host.identity), gpus="simulated:2xH100"
    )
    return replace(made, **more)  # type: ignore[arg-type]


async def look(host: OpenSshServer, pinned: bool = True, **more: str) -> Preflight:
    return await preflight("gpu01", spec(host, **more), connector(host, pinned))


async def look_and_join(host: OpenSshServer, **more: str) -> Hello:
    """A preflight without findings, and the hello of the agent."""
    looked = await look(host, **more)
    assert looked.ready, looked
    return await join(host, **more)


async def join(host: OpenSshServer, **more: str) -> Hello:
    """The hello of the agent. Its program comes to the host as that of a preflight does."""
    link, listener = SshLink("gpu01", spec(host, **more), connector(host)), FrameListener()
    link.open(listener.deliver)
    try:
        first = (await listener.until(lambda: listener.received))[0]
        assert isinstance(first, Hello)
        return first
    finally:
        await link.close()


async def refused(host: OpenSshServer, pinned: bool = True, **more: str) -> tuple[str, str, str]:
    """The failed check of a preflight: its name, its finding and its remedy."""
    looked = await look(host, pinned, **more)
    assert not looked.ready
    [failed] = [check for check in looked.checks if check.verdict == "failed"]
    return failed.name, failed.found, failed.remedy


# --- logins ---


@pytest.mark.parametrize(
    "start_up",
    [
        "echo welcome to gpu01; printf 'no end of line'; umask 777",
        "export PATH= TMPDIR=/no/such LC_ALL=tlh PYTHONHOME=/no PYTHONPATH=/no; cd /; ulimit -n 64",
    ],
)
async def test_output_of_login_scripts_is_ignored(host: Host, start_up: str) -> None:
    made = host()
    made.rc(f"{start_up}\n")
    await look_and_join(made)


@pytest.mark.parametrize(
    ("start_up", "why"),
    [
        ("exit 3", "ended with exit code 3, and it printed nothing"),
        ("echo no room for you >&2; exit 1", "its last line was: no room for you"),
        ("yes", "its output does not end"),
        ("cat", "it sends its input back"),
        ("sleep 300", "it sent no answer within 5 s"),
    ],
)
async def test_login_that_runs_no_command_is_refused(
    host: Host, start_up: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in start_up:
        monkeypatch.setattr(bootstrap, "BOOTSTRAP_S", 5.0)
    made = host()
    made.rc(f"{start_up}\n")
    name, found, remedy = await refused(made)
    assert (name, "does not run the agent's command" in found) == ("login", True)
    assert why in found
    assert f"'ssh -p {made.port} {made.user}@127.0.0.1 true'" in remedy


async def test_time_out_after_the_host_has_answered_is_not_blamed_on_the_network(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = host()
    made.rc("sleep 300\n")
    name, remedy = "reachable", ""
    for seconds in (2.0, 10.0, 50.0):  # because a busy machine needs long to connect
        monkeypatch.setattr(preflights, "_RUN_S", seconds)
        monkeypatch.setattr(bootstrap, "BOOTSTRAP_S", 2 * seconds)
        if name == "reachable":
            name, found, remedy = await refused(made)
            assert found == f"no answer within {seconds:g} s"
    assert name == "connection"
    assert f"does 'ssh -p {made.port} {made.user}@127.0.0.1 nvidia-smi' end?" in remedy


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/ksh", "/bin/zsh", "/bin/tcsh", "/usr/bin/fish"])
async def test_agent_starts_under_each_shell(host: Host, shell: str) -> None:
    if not os.access(shell, os.X_OK):
        pytest.skip(f"there is no {shell} here")
    await look_and_join(host(shell=shell))


async def test_login_shells_that_run_nothing_are_refused(host: Host) -> None:
    name, found, _ = await refused(host(shell="/usr/sbin/nologin"))
    assert name == "login", found
    assert "not available" in found
    name, found, remedy = await refused(host(shell="/no/such/shell"))
    assert name == "login", found
    assert "a shell that does not exist" in remedy


async def test_forced_command_is_refused(host: Host) -> None:
    made = host()
    made.authorize('command="echo backups only"')
    assert "its last line was: backups only" in (await refused(made))[1]


async def test_forced_command_that_ends_before_the_agent_is_sent_is_named(host: Host) -> None:
    made = host()
    made.authorize('command="echo backups only"')
    opener, wanted = connector(made), spec(made)
    async with opener.turn():
        connection = await opener.connect("gpu01", parse_ssh_address(wanted.ssh), wanted.identity)
    async with connection:
        process = await connection.create_process("true", encoding=None)
        await process.wait_closed()
        with pytest.raises(bootstrap.BootstrapFailed, match="its last line was: backups only"):
            await bootstrap._Bootstrap(process, "").hand_over("", bundle())


# --- servers ---


@pytest.mark.parametrize(
    "settings",
    [
        {"MaxSessions": "1", "MaxStartups": "1:100:1"},
        {"Subsystem": "other /bin/false", "DisableForwarding": "yes", "PermitTTY": "no"},
        {"ClientAliveInterval": "1", "ClientAliveCountMax": "1", "Banner": "/etc/passwd"},
        {"Ciphers": "aes256-ctr", "MACs": "hmac-sha1", "KexAlgorithms": "ecdh-sha2-nistp256"},
    ],
)
async def test_agent_starts_on_strict_servers(host: Host, settings: dict[str, str]) -> None:
    await look_and_join(host(**settings))


async def test_connections_dropped_by_max_startups_are_retried(host: Host) -> None:
    """As on a jump host that all nodes share. The default of sshd begins to drop at ten."""
    made = host(MaxStartups="3:100:3")
    ssh, target = connector(made), spec(made)
    looked = await asyncio.gather(*(preflight("gpu01", target, ssh) for _ in range(8)))
    assert all(each.ready for each in looked)


async def test_server_that_opens_no_session_is_refused(host: Host) -> None:
    name, found, remedy = await refused(host(MaxSessions="0"))
    assert (name, "opens no session" in found, "MaxSessions" in remedy) == ("login", True, True)


async def test_missing_common_cipher_is_reported_and_can_be_configured(host: Host) -> None:
    made = host(Ciphers="aes128-cbc")
    assert "aes128-cbc" in (await refused(made))[1]
    (made.place / "ssh_config").write_text("Ciphers aes128-cbc\nIdentityAgent none\n")
    await join(made)


# --- homes ---


async def test_home_directory_of_any_name(host: Host) -> None:
    made = host(home="my höme; $(touch pwned) 'dir'")
    await look_and_join(made)
    assert (made.home / ".corral" / "nodes" / "gpu01").is_dir()
    assert not [*made.place.rglob("pwned")]


async def test_unwritable_home_is_refused_and_another_spool_works(host: Host) -> None:
    made = host()
    os.chown(made.home, 0, 0)
    name, found, remedy = await refused(made)
    assert (name, f"{made.home}/.corral: Permission denied" in found) == ("files", True)
    assert "--spool" in remedy
    made.home.rmdir()
    assert (await refused(made))[0] == "files"
    place = made.place / "local disk"
    place.mkdir()
    os.chown(place, made.uid, made.uid)
    await join(made, spool=f"{place}/corral")
    assert not made.home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("ro", "Read-only file system"),
        ("size=64k", "No space left on device"),
        ("noexec,nosuid,nodev,mode=1777", ""),
    ],
)
async def test_unusable_disks_are_refused(host: Host, options: str, why: str) -> None:
    made = host()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},uid={made.uid}", "none", str(made.home)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        if why:
            name, found, _ = await refused(made)
            assert (name, why in found) == ("files", True)
            folder = made.home / ".corral" / "agents"
            assert not (folder.exists() and [*folder.iterdir()])
        else:
            await join(made)
    finally:
        subprocess.run(["umount", "--lazy", str(made.home)], check=True)


async def test_leftovers_of_a_broken_push_are_removed(host: Host) -> None:
    made = host()
    folder = made.home / ".corral" / "agents"
    folder.mkdir(parents=True)
    left = folder / ".0123"
    left.write_text("half an agent")
    os.utime(left, (time.time() - 7_200,) * 2)
    for each in (made.home / ".corral", folder):
        os.chown(each, made.uid, made.uid)
    await join(made)
    assert [path.suffix for path in folder.iterdir()] == [".pyz"]


# --- Pythons ---


def python_of(made: OpenSshServer, script: str, name: str = "python3") -> None:
    """Puts a given Python first in the PATH of the host."""
    folder = made.home / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    made.rc(f"PATH={folder}:$PATH\n")


async def test_output_of_python_startup_is_ignored(host: Host) -> None:
    made = host()
    python_of(made, f'echo "module python loaded"; exec {PYTHON} "$@"')
    await join(made)


async def test_newer_python_is_found_beside_one_that_is_too_old(host: Host) -> None:
    made = host()
    old = 'case "$*" in -V) echo Python 3.6.8;; *) exit 1;; esac'
    python_of(made, old)
    name, found, remedy = await refused(made, python=f"{made.home}/bin/python3")
    assert (name, "python3 is Python 3.6.8" in found, "--python" in remedy) == ("Python", True, True)
    name, found, _ = await refused(made, python="/no/such/python")
    assert (name, found) == ("Python", "/no/such/python is not found")
    python_of(made, f'exec {PYTHON} "$@"', "python3.10")
    await join(made)


async def test_python_that_never_ends_is_stopped_on_the_host(host: Host) -> None:
    made = host()
    python_of(made, "while :; do :; done", "endless")
    name, found, _ = await refused(made, python=f"{made.home}/bin/endless")
    assert (name, "endless" in found) == ("Python", True)

    def left() -> list[str]:
        words = []
        for each in processes(made.uid):
            with suppress(OSError):
                words.append(Path(f"/proc/{each}/cmdline").read_bytes().decode())
        return [each for each in words if "bin/endless" in each]

    deadline = time.monotonic() + PATIENCE_S
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == []


async def test_clock_offset_is_noted(host: Host) -> None:
    made = host()
    clock = Clock(made.place, str(PYTHON))
    clock.set(3 * 3_600 + 120)
    looked = await look(made, python=str(clock.python))
    [found] = [check for check in looked.checks if check.name == "time"]
    assert (looked.ready, found.verdict) == (True, "note")
    assert "its clock is 3h0" in found.found
    assert "ahead" in found.found


# --- keys ---


async def test_key_with_a_passphrase_is_named(host: Host) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen here")
    made = host()
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(made.identity)], check=True)
    name, found, remedy = await refused(made)
    assert (name, f"{made.identity} has a passphrase" in found) == ("login", True)
    assert f"ssh-add {made.identity}" in remedy


async def test_known_hosts_files_are_used(host: Host) -> None:
    made = host()
    known = made.place / "known_hosts"
    known.touch()
    name = f"[127.0.0.1]:{made.port}"
    looked = await look(made, pinned=False)
    assert [check.verdict for check in looked.checks] == ["ok", "unknown"]
    known.write_text(f"{name} {key_line(asyncssh.generate_private_key('ssh-ed25519'))}\n")
    check, found, _ = await refused(made, pinned=False)
    assert (check, "is in known_hosts" in found, f"ssh-keygen -R '{name}'" in found) == (
        "host key",
        True,
        True,
    )
    known.write_text(f"@revoked * {key_line(made.host_key)}\n")
    assert "is revoked" in (await refused(made, pinned=False))[1]
    known.write_text(f"{name} {key_line(made.host_key)}\n")
    if shutil.which("ssh-keygen") is not None:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
        assert "127.0.0.1" not in known.read_text()
    assert (await look(made, pinned=False)).ready


async def test_host_key_signed_by_an_authority_is_accepted(host: Host) -> None:
    made, authority = host(), asyncssh.generate_private_key("ssh-ed25519")
    certificate = authority.generate_host_certificate(
        made.host_key.convert_to_public(), "gpu01", principals=["127.0.0.1"]
    )
    certificate.write_certificate(made.place / "host_key-cert.pub")
    made.stop_listening()
    made.settings["HostCertificate"] = f"{made.place}/host_key-cert.pub"
    made.listen()
    (made.place / "known_hosts").write_text(f"@cert-authority * {key_line(authority)}\n")
    looked = await look(made, pinned=False)
    assert (looked.ready, looked.host_key) == (True, key_line(made.host_key))
    await join(made)


# --- ~/.ssh/config ---


def configured(host: OpenSshServer, text: str) -> None:
    """Writes these lines before the settings for all hosts."""
    (host.place / "far").write_text(f"Host far*\n HostName 127.0.0.1\n Port {host.port}\n User {host.user}\n")
    (host.place / "known_hosts").write_text(f"[127.0.0.1]:{host.port} {key_line(host.host_key)}\n")
    (host.place / "ssh_config").write_text(
        f"Include /no/such/*\nInclude {host.place}/f*\n{text}\n"
        f"Host *\n IdentityAgent none\n IdentityFile {host.identity}\n"
        f" UserKnownHostsFile {host.place}/known_hosts\n"
    )


async def test_ssh_config_includes_matches_and_jump_hosts(host: Host) -> None:
    made = host()
    configured(made, 'Match originalhost far1 exec "true"\n ProxyJump far2,far3')
    await join(made, ssh="far1", identity="")
    assert (await look(made, pinned=False, ssh="far1", identity="")).ready


async def test_missing_files_of_ssh_config_are_ignored(host: Host) -> None:
    made = host()
    configured(made, "Host far1\n IdentityFile /no/such/key\n UserKnownHostsFile /no/such/known_hosts")
    await join(made, ssh="far1", identity="")
    looked = await look(made, pinned=False, ssh="far1", identity="")
    assert [check.verdict for check in looked.checks] == ["ok", "unknown"]


async def test_failing_jump_hosts_are_named(host: Host) -> None:
    made = host(AllowTcpForwarding="no")
    configured(made, "Host far1\n ProxyJump far2\nHost far4\n ProxyJump stranger@far2")
    assert "jump hosts: far2)" in (await refused(made, ssh="far1", identity=""))[1]
    found = (await refused(made, ssh="far4", identity=""))[1]
    assert found.startswith("the connection through the jump hosts stranger@far2 failed: ")
    assert found.endswith("none of the controller's keys is accepted")


async def test_ipv6_address(host: Host) -> None:
    made = host()
    made.stop_listening()
    made.settings["ListenAddress"] = f"[::1]:{made.port}"
    try:
        made.listen()
    except AssertionError:
        pytest.skip("there is no IPv6 here")
    await join(made, ssh=f"{made.user}@[::1]:{made.port}")


# --- a server that restarts ---


async def test_link_reconnects_after_a_server_restart(host: Host) -> None:
    made = host()
    link, listener = SshLink("gpu01", spec(made), connector(made), ping_s=0.1), FrameListener()
    link.open(listener.deliver)
    try:
        await listener.nth(Hello)
        made.stop_listening()
        assert (await refused(made))[1] == "nothing listens on the SSH port"
        made.listen()
        assert (await look(made)).ready
        assert not any(isinstance(each, LinkLost) for each in listener.received)
    finally:
        await link.close()
