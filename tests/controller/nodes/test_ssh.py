"""Hosts over SSH: what is pushed, whose key is taken, and what is said when it cannot be. Agents are real."""

from __future__ import annotations

import asyncio
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from controller.nodes.agent import bootstrap
from controller.nodes.agent.zipapp import Bundle, bundle
from controller.nodes.link import LinkLost
from controller.nodes.ssh import connector, link
from controller.nodes.ssh.known_hosts import (
    KnownHosts,
    fingerprint,
    is_public_key,
    key_line,
    read_legacy_file,
    without_comment,
)
from controller.nodes.ssh.link import SshLink
from tests.agent.driving import alive
from tests.controller.nodes.sshd import Sshd
from tests.controller.nodes.ways import PATIENCE_S, Listener, Ssh
from wire.agent.frames import Hello, Start, Stop
from wire.cluster.hosts import SshAddress, parse_ssh_address

Opened = Callable[..., Listener]


@pytest.fixture
async def way(tmp_path: Path) -> AsyncIterator[Ssh]:
    made = Ssh(tmp_path / "spool")
    await made.begin()
    yield made
    await made.end()


@pytest.fixture
async def jump(way: Ssh, tmp_path: Path) -> AsyncIterator[Sshd]:
    """A host on the way to another."""
    made = Sshd(tmp_path / "jump")
    made.user_key = way.sshd.user_key
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def opened(way: Ssh) -> AsyncIterator[Opened]:
    """Opens a link, changed by `change` before; closed afterwards."""
    links: list[SshLink] = []

    def begin(change: Callable[[SshLink], None] = lambda _: None) -> Listener:
        link, listener = way.link(), Listener()
        change(link)
        links.append(link)
        link.open(listener.deliver)
        return listener

    yield begin
    for each in links:
        await each.close()


async def test_the_bundle_is_pushed_once_whole_and_for_nobody_else(way: Ssh, opened: Opened) -> None:
    await opened().nth(Hello)
    [pushed] = (way.spool / "agents").iterdir()
    assert (pushed.name, pushed.read_bytes()) == (bundle().name, bundle().data)
    assert way.spool.stat().st_mode & 0o077 == 0
    before = pushed.stat().st_ino
    way.sshd.cut()
    await opened().nth(Hello)
    assert pushed.stat().st_ino == before


async def test_a_damaged_bundle_is_pushed_again(way: Ssh, opened: Opened) -> None:
    place = way.spool / "agents" / bundle().name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\0" * len(bundle().data))
    await opened().nth(Hello)
    assert place.read_bytes() == bundle().data


async def test_bundles_of_old_versions_go(way: Ssh, opened: Opened) -> None:
    folder = way.spool / "agents"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"agent-{number}.pyz").write_text("old")
    await opened().nth(Hello)
    left = {path.name for path in folder.iterdir()}
    assert bundle().name in left
    assert len(left) <= 6


async def test_an_unknown_host_is_told_nothing(way: Ssh, opened: Opened) -> None:
    way.pinned.clear()
    lost = await opened().nth(LinkLost)
    assert fingerprint(way.sshd.host_key) in lost.why
    assert "corral nodes trust gpu01" in lost.why
    assert not way.spool.exists()


async def test_a_host_that_the_users_own_known_hosts_names_is_known(way: Ssh, opened: Opened) -> None:
    way.pinned.clear()
    line = f"[127.0.0.1]:{way.sshd.port} {key_line(way.sshd.host_key)}\n"
    (way.sshd.place / "known_hosts_of_user").write_text(line)
    await opened().nth(Hello)


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256"])
async def test_a_changed_host_key_is_refused_and_what_runs_there_lives_on(
    way: Ssh, opened: Opened, kind: str
) -> None:
    links: list[SshLink] = []
    listener = opened(links.append)
    await listener.nth(Hello)
    links[0].send(Start(1, 1, ("sleep", "1000"), "somebody", 1000, 100))
    pid = (await listener.status(1, ended=False)).pid
    pinned, way.sshd.host_key = way.sshd.host_key, asyncssh.generate_private_key(kind)
    await way.sshd.stop()
    await way.sshd.start()

    def alert() -> list[LinkLost]:
        lost = [each for each in listener.heard if isinstance(each, LinkLost)]
        return [each for each in lost if "ALERT: its host key changed" in each.why]

    assert fingerprint(pinned) in (await listener.until(alert))[0].why
    assert pid is not None
    assert alive(pid)
    way.sshd.host_key = pinned
    await way.sshd.stop()
    await way.sshd.start()
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts] == [pid]


async def test_nobody_listens(way: Ssh, opened: Opened) -> None:
    await way.sshd.stop()
    assert (await opened().nth(LinkLost)).why == "nothing listens at its SSH port"


async def test_a_key_that_is_not_let_in(way: Ssh, opened: Opened, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")

    def other_key(link: SshLink) -> None:
        link.host = replace(link.host, identity=str(tmp_path / "other"))

    assert "accepts none of the controller's keys" in (await opened(other_key).nth(LinkLost)).why


async def test_no_such_python(way: Ssh, opened: Opened) -> None:
    def no_python(link: SshLink) -> None:
        link.host = replace(link.host, python="/no/such/python")

    lost = await opened(no_python).nth(LinkLost)
    assert "/no/such/python" in lost.why
    assert "not found" in lost.why


async def test_a_host_that_says_nothing_has_a_deadline(way: Ssh, opened: Opened) -> None:
    silent = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]

    def nowhere(link: SshLink) -> None:
        link.host = replace(link.host, ssh=f"somebody@127.0.0.1:{port}")
        link._connector = connector.SshConnector(
            KnownHosts(lambda: way.pinned), config=way.sshd.config, connect_s=0.3
        )

    assert (await opened(nowhere).nth(LinkLost)).why == "no answer within 0.3 s"
    silent.close()


async def test_few_connections_are_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "AT_ONCE", 3)
    made = connector.SshConnector(KnownHosts(dict))
    inside, most = 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with made.turn():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(enter() for _ in range(20)))
    assert most == 3


def test_keys_are_read_as_people_write_them(tmp_path: Path) -> None:
    one, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    assert KnownHosts(lambda: {"gpu01": key_line(one)}).of("gpu01") == (one.convert_to_public(),)
    assert KnownHosts(dict).of("gpu01") == ()
    assert without_comment(f"{key_line(one)} a comment") == key_line(one)
    old = tmp_path / "known_hosts"
    assert read_legacy_file(old) == {}
    old.write_text(
        f"gpu01 {key_line(one)}\n\nbroken ssh-ed25519 nonsense\ngpu02 {key_line(other)} a comment\n"
    )
    assert read_legacy_file(old) == {"gpu01": key_line(one), "gpu02": key_line(other)}
    assert is_public_key(key_line(one))
    assert not is_public_key("ssh-ed25519 nonsense")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("gpu01", SshAddress("gpu01")),
        ("ada@gpu01", SshAddress("gpu01", "ada")),
        ("ada@gpu01.example.org:2222", SshAddress("gpu01.example.org", "ada", 2222)),
        ("[fd00::1]:22", SshAddress("fd00::1", "", 22)),
    ],
)
def test_addresses(text: str, read: SshAddress) -> None:
    assert parse_ssh_address(text) == read
    assert str(read) == text


@pytest.mark.parametrize(
    "text", ["", "-oProxyCommand=x", "gpu01:0", "gpu01:99999", "a b", "a@b@c", "gpu;reboot"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse_ssh_address(text)


def test_the_bundle_is_the_same_every_time() -> None:
    first = bundle()
    bundle.cache_clear()
    assert bundle() == first


def test_every_shell_reads_the_first_command_alike() -> None:
    """Within single quotes csh expands `!` (but not `!;`), and fish reads a backslash as an escape."""
    before, inside, after = bootstrap._FIND.split("'")
    assert (before, after) == ("exec /bin/sh -c ", "")
    assert not set(inside.replace("$!;", "")) & set("!\\\n")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "ksh", "zsh", "fish", "csh", "tcsh"])
def test_the_first_command_finds_python_in_this_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = bootstrap._FIND.format(try_s=bootstrap.TRY_S, pythons="python3")
    told = '["def arrive(word): print(word)", {"word": "arrived"}]\n'
    done = subprocess.run(
        [shell, "-c", command], input=told, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("arrived\n", "")


async def test_the_agents_command_line_passes_no_shell(way: Ssh, opened: Opened) -> None:
    """The name of the cluster has characters that a shell would act on."""
    hostile = "$(touch pwned); 'ü\" %n"

    def rename(link: SshLink) -> None:
        link._cluster = hostile

    hello = await opened(rename).nth(Hello)
    assert (way.spool / "cluster").read_text().strip() == hostile
    assert hello.facts.address == "127.0.0.1"
    assert not (way.sshd.home / "pwned").exists()


async def test_a_python_of_the_host(way: Ssh, opened: Opened) -> None:
    """What stands in PATH there, if nothing else is said."""
    (way.sshd.home / "python3").symlink_to(sys.executable)

    def named(link: SshLink) -> None:
        link.host = replace(link.host, python="./python3")

    await opened(named).nth(Hello)


async def test_the_agent_is_swapped_under_running_jobs(
    way: Ssh, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[SshLink] = []
    listener = opened(links.append)
    await listener.nth(Hello)
    links[0].send(Start(1, 1, ("sleep", "1000"), "somebody", 1000, 100))
    pid = (await listener.status(1, ended=False)).pid
    folder = way.spool / "agents"
    data = _with_comment(bundle().data, b"newer")
    newer = Bundle("agent-newer.pyz", data, hashlib.sha256(data).hexdigest(), bundle().arrival)
    monkeypatch.setattr(link, "bundle", lambda: newer)
    way.sshd.cut()
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts] == [pid]
    assert (folder / newer.name).read_bytes() == newer.data
    (folder / bundle().name).unlink()  # what the old agent left needs its file no more
    links[0].send(Stop(1, 1))
    assert (await listener.status(1, ended=True)).why == "cancelled"


def _with_comment(data: bytes, comment: bytes) -> bytes:
    made = io.BytesIO(data)
    with zipfile.ZipFile(made, "a") as archive:
        archive.comment = comment
    return made.getvalue()


async def test_the_users_ssh_config_is_heeded_jump_hosts_too(way: Ssh, jump: Sshd, opened: Opened) -> None:
    known = way.sshd.place / "known_hosts_of_user"
    way.sshd.config.write_text(
        f"Host far\n HostName 127.0.0.1\n Port {way.sshd.port}\n ProxyJump bastion\n"
        f"Host bastion\n HostName 127.0.0.1\n Port {jump.port}\n"
        f"Host *\n User somebody\n IdentityFile {way.sshd.identity}\n IdentityAgent none\n"
        f" UserKnownHostsFile {known}\n"
    )

    def by_name(link: SshLink) -> None:
        link.host = replace(link.host, ssh="far", identity="")

    listener = opened(by_name)
    assert "jump host" in (await listener.nth(LinkLost)).why
    known.write_text(f"[127.0.0.1]:{jump.port} {key_line(jump.host_key)}\n")
    assert (await listener.nth(Hello)).facts.address in ("far", "127.0.0.1")
    assert jump.jumps >= 1
