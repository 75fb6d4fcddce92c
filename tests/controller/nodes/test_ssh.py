"""Hosts over SSH: the pushed bundle, accepted host keys, and reported failures. Agents are real."""

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
from tests.agent.agent_process import alive
from tests.controller.nodes.link_setups import PATIENCE_S, FrameListener, SshLinkSetup
from tests.controller.nodes.ssh_server import SshServer
from wire.agent.orders import Start, Stop
from wire.agent.reports import Hello
from wire.cluster.hosts import SshAddress, parse_ssh_address

Opened = Callable[..., FrameListener]


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[SshLinkSetup]:
    made = SshLinkSetup(tmp_path / "spool")
    await made.begin()
    yield made
    await made.end()


@pytest.fixture
async def jump(setup: SshLinkSetup, tmp_path: Path) -> AsyncIterator[SshServer]:
    """A jump host."""
    made = SshServer(tmp_path / "jump")
    made.user_key = setup.server.user_key
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def opened(setup: SshLinkSetup) -> AsyncIterator[Opened]:
    """Opens a link after `change` has changed its settings, and closes the link after the test."""
    links: list[SshLink] = []

    def begin(change: Callable[[SshLink], None] = lambda _: None) -> FrameListener:
        link, listener = setup.link(), FrameListener()
        change(link)
        links.append(link)
        link.open(listener.deliver)
        return listener

    yield begin
    for each in links:
        await each.close()


async def test_bundle_is_pushed_once_and_readable_only_by_its_user(
    setup: SshLinkSetup, opened: Opened
) -> None:
    await opened().nth(Hello)
    [pushed] = (setup.spool / "agents").iterdir()
    assert (pushed.name, pushed.read_bytes()) == (bundle().name, bundle().data)
    assert setup.spool.stat().st_mode & 0o077 == 0
    before = pushed.stat().st_ino
    setup.server.cut()
    await opened().nth(Hello)
    assert pushed.stat().st_ino == before


async def test_damaged_bundle_is_pushed_again(setup: SshLinkSetup, opened: Opened) -> None:
    place = setup.spool / "agents" / bundle().name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\0" * len(bundle().data))
    await opened().nth(Hello)
    assert place.read_bytes() == bundle().data


async def test_old_bundles_are_removed(setup: SshLinkSetup, opened: Opened) -> None:
    folder = setup.spool / "agents"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"agent-{number}.pyz").write_text("old")
    await opened().nth(Hello)
    left = {path.name for path in folder.iterdir()}
    assert bundle().name in left
    assert len(left) <= 6


async def test_unknown_host_gets_no_data(setup: SshLinkSetup, opened: Opened) -> None:
    setup.pinned.clear()
    lost = await opened().nth(LinkLost)
    assert fingerprint(setup.server.host_key) in lost.why
    assert "corral nodes trust gpu01" in lost.why
    assert not setup.spool.exists()


async def test_host_in_the_users_known_hosts_is_accepted(setup: SshLinkSetup, opened: Opened) -> None:
    setup.pinned.clear()
    line = f"[127.0.0.1]:{setup.server.port} {key_line(setup.server.host_key)}\n"
    (setup.server.place / "known_hosts_of_user").write_text(line)
    await opened().nth(Hello)


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256"])
async def test_changed_host_key_is_refused_and_jobs_keep_running(
    setup: SshLinkSetup, opened: Opened, kind: str
) -> None:
    links: list[SshLink] = []
    listener = opened(links.append)
    await listener.nth(Hello)
    links[0].send(Start(1, 1, ("sleep", "1000"), "somebody", 1000, 100))
    pid = (await listener.status(1, ended=False)).pid
    pinned, setup.server.host_key = setup.server.host_key, asyncssh.generate_private_key(kind)
    await setup.server.stop()
    await setup.server.start()

    def alert() -> list[LinkLost]:
        lost = [each for each in listener.received if isinstance(each, LinkLost)]
        return [each for each in lost if "ALERT: the host key has changed" in each.why]

    assert fingerprint(pinned) in (await listener.until(alert))[0].why
    assert pid is not None
    assert alive(pid)
    setup.server.host_key = pinned
    await setup.server.stop()
    await setup.server.start()
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts] == [pid]


async def test_closed_ssh_port_is_reported(setup: SshLinkSetup, opened: Opened) -> None:
    await setup.server.stop()
    assert (await opened().nth(LinkLost)).why == "nothing listens on the SSH port"


async def test_rejected_key_is_reported(setup: SshLinkSetup, opened: Opened, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")

    def other_key(link: SshLink) -> None:
        link.host = replace(link.host, identity=str(tmp_path / "other"))

    assert "accepts none of the controller's keys" in (await opened(other_key).nth(LinkLost)).why


async def test_missing_python_on_the_host_is_reported(setup: SshLinkSetup, opened: Opened) -> None:
    def no_python(link: SshLink) -> None:
        link.host = replace(link.host, python="/no/such/python")

    lost = await opened(no_python).nth(LinkLost)
    assert "/no/such/python" in lost.why
    assert "not found" in lost.why


async def test_silent_ssh_server_times_out(setup: SshLinkSetup, opened: Opened) -> None:
    silent = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]

    def nowhere(link: SshLink) -> None:
        link.host = replace(link.host, ssh=f"somebody@127.0.0.1:{port}")
        link._connector = connector.SshConnector(
            KnownHosts(lambda: setup.pinned), config=setup.server.config, connect_s=0.3
        )

    assert (await opened(nowhere).nth(LinkLost)).why == "no answer within 0.3 s"
    silent.close()


async def test_number_of_concurrent_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_host_keys_are_read_in_every_form(tmp_path: Path) -> None:
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
def test_ssh_addresses_are_parsed(text: str, read: SshAddress) -> None:
    assert parse_ssh_address(text) == read
    assert str(read) == text


@pytest.mark.parametrize(
    "text", ["", "-oProxyCommand=x", "gpu01:0", "gpu01:99999", "a b", "a@b@c", "gpu;reboot"]
)
def test_invalid_ssh_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse_ssh_address(text)


def test_bundle_is_reproducible() -> None:
    first = bundle()
    bundle.cache_clear()
    assert bundle() == first


def test_first_command_is_read_alike_by_every_shell() -> None:
    """Within single quotes csh expands `!` (but not `!;`), and fish reads a backslash as an escape."""
    before, inside, after = bootstrap._FIND.split("'")
    assert (before, after) == ("exec /bin/sh -c ", "")
    assert not set(inside.replace("$!;", "")) & set("!\\\n")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "ksh", "zsh", "fish", "csh", "tcsh"])
def test_first_command_finds_python_in_each_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = bootstrap._FIND.format(try_s=bootstrap.TRY_S, pythons="python3")
    told = '["def receive_agent(word): print(word)", {"word": "arrived"}]\n'
    done = subprocess.run(
        [shell, "-c", command], input=told, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("arrived\n", "")


async def test_agent_command_line_is_not_read_by_a_shell(setup: SshLinkSetup, opened: Opened) -> None:
    """The name of the cluster has characters that a shell would act on."""
    hostile = "$(touch pwned); 'ü\" %n"

    def rename(link: SshLink) -> None:
        link._cluster = hostile

    hello = await opened(rename).nth(Hello)
    assert (setup.spool / "cluster").read_text().strip() == hostile
    assert hello.facts.address == "127.0.0.1"
    assert not (setup.server.home / "pwned").exists()


async def test_configured_python_of_a_host_is_used(setup: SshLinkSetup, opened: Opened) -> None:
    """Without a configured Python, the PATH of the host is searched."""
    (setup.server.home / "python3").symlink_to(sys.executable)

    def named(link: SshLink) -> None:
        link.host = replace(link.host, python="./python3")

    await opened(named).nth(Hello)


async def test_agent_is_replaced_while_jobs_run(
    setup: SshLinkSetup, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[SshLink] = []
    listener = opened(links.append)
    await listener.nth(Hello)
    links[0].send(Start(1, 1, ("sleep", "1000"), "somebody", 1000, 100))
    pid = (await listener.status(1, ended=False)).pid
    folder = setup.spool / "agents"
    data = _with_comment(bundle().data, b"newer")
    newer = Bundle("agent-newer.pyz", data, hashlib.sha256(data).hexdigest(), bundle().bootstrap)
    monkeypatch.setattr(link, "bundle", lambda: newer)
    setup.server.cut()
    again = await listener.nth(Hello, 2)
    assert [status.pid for status in again.attempts] == [pid]
    assert (folder / newer.name).read_bytes() == newer.data
    (folder / bundle().name).unlink()  # the attempts of the old agent no longer need its file
    links[0].send(Stop(1, 1))
    assert (await listener.status(1, ended=True)).why == "cancelled"


def _with_comment(data: bytes, comment: bytes) -> bytes:
    made = io.BytesIO(data)
    with zipfile.ZipFile(made, "a") as archive:
        archive.comment = comment
    return made.getvalue()


async def test_ssh_config_of_the_user_applies_with_jump_hosts(
    setup: SshLinkSetup, jump: SshServer, opened: Opened
) -> None:
    known = setup.server.place / "known_hosts_of_user"
    setup.server.config.write_text(
        f"Host far\n HostName 127.0.0.1\n Port {setup.server.port}\n ProxyJump bastion\n"
        f"Host bastion\n HostName 127.0.0.1\n Port {jump.port}\n"
        f"Host *\n User somebody\n IdentityFile {setup.server.identity}\n IdentityAgent none\n"
        f" UserKnownHostsFile {known}\n"
    )

    def by_name(link: SshLink) -> None:
        link.host = replace(link.host, ssh="far", identity="")

    listener = opened(by_name)
    assert "jump host" in (await listener.nth(LinkLost)).why
    known.write_text(f"[127.0.0.1]:{jump.port} {key_line(jump.host_key)}\n")
    assert (await listener.nth(Hello)).facts.address in ("far", "127.0.0.1")
    assert jump.jumps >= 1
