"""Everything that may be wrong with a host, asked before it joins: a line each, with what to do about it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

import asyncssh

from controller.nodes.bundle import bundle
from controller.nodes.knownhosts import fingerprint, written
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.sharing import markers
from controller.nodes.ssh import HOME, SshHost, files, push
from controller.nodes.sshconnector import HostKeyChanged, HostKeyUnknown, SshConnector, sentence
from wire.api.nodes import Check, Preflight
from wire.text import duration, plain

OLDEST = (3, 9)
SKEW_S = 5.0
_RUN_S = 60.0
"""A driver without persistence mode takes long to say which GPUs there are."""
_VERSION = "import sys; print('python %d.%d' % sys.version_info[:2])"


async def preflight(
    name: str, host: SshHost, connector: SshConnector, trusted: str = "", shared: Sequence[str] = ()
) -> Preflight:
    """Ask a host everything; `trusted` is a key to take for its own instead of the pinned one.

    `shared` are directories that should be the same there as here.
    """
    checks: list[Check] = []
    key: asyncssh.SSHKey | None = None
    try:
        async with connector.turn(_RUN_S):
            connection = await connector.connect(name, host.address, host.identity, trusted)
            async with connection:
                key = connection.get_server_host_key()
                assert key is not None
                checks.append(_reachable(connection))
                checks.append(Check("host key", "ok", fingerprint(key)))
                checks.append(Check("login", "ok", f"as {connection.get_extra_info('username')}"))
                with markers(shared) as (marked, lacking):
                    checks += [*await _ask(name, host, connection, marked), *lacking]
    except HostKeyUnknown as unknown:
        key = unknown.key
        checks.append(Check("reachable", "ok", "it answers"))
        checks.append(
            Check(
                "host key",
                "unknown",
                fingerprint(key),
                "Compare it with 'ssh-keygen -lf' on the host itself.",
            )
        )
    except HostKeyChanged as changed:
        key = changed.key
        checks.append(Check("host key", "failed", str(changed)))
    except CannotConnect as error:
        # Where the conversation broke off is where it failed: before the key, or at the login.
        place = "reachable" if not checks else "connection"
        checks.append(Check(place, "failed", str(error), _remedy(str(error), host)))
    except (asyncssh.Error, OSError) as error:
        checks.append(Check("connection", "failed", sentence(error), "Try again."))
    ready = all(check.verdict in ("ok", "note") for check in checks)
    shown = written(key) if key is not None else ""
    return Preflight(name, str(host.address), ready, tuple(checks), shown, fingerprint(key) if key else "")


def _remedy(why: str, host: SshHost) -> str:
    if "none of our keys" in why:
        return f"ssh-copy-id {host.address}, as the user whom the controller runs as."
    return "Does 'ssh' reach it from the controller's machine, as the controller's user?"


def _reachable(connection: asyncssh.SSHClientConnection) -> Check:
    version = connection.get_extra_info("server_version")
    return Check("reachable", "ok", plain(str(version), 80))


async def _ask(
    name: str, host: SshHost, connection: asyncssh.SSHClientConnection, marked: Sequence[str]
) -> list[Check]:
    """What can be found out once we are in; ends with the first that makes the rest impossible."""
    fault = await _python(host, connection)
    if fault is not None:
        return [fault]
    try:
        made = await asyncio.get_running_loop().run_in_executor(None, bundle)
        async with await files(connection) as sftp:
            home = PurePosixPath(str(await sftp.realpath("."))) / HOME
            await push(sftp, home, made)
    except (CannotConnect, asyncssh.SFTPError) as error:
        why = str(error) if isinstance(error, CannotConnect) else sentence(error)
        return [Check("files", "failed", why, "Is there room in the home directory there?")]
    arguments = host.agent.arguments(name, host.spool or str(home / "nodes" / name))
    arguments += [word for path in marked for word in ("--shared", path)]
    asked_at = time.time()
    done = await connection.run(
        f"exec {host.python} -I -S -X utf8 {home}/agents/{made.name} -",
        input=json.dumps([*arguments, "--check"]) + "\n",
    )
    try:
        told = json.loads(str(done.stdout))
        checks = [
            Check(*(plain(str(each[field]), 500) for field in ("name", "verdict", "found", "remedy")))
            for each in told["checks"]
        ]
        return [*checks, _time(float(told["now"]), asked_at)]
    except (ValueError, KeyError, TypeError):
        words = plain(str(done.stderr).strip().rpartition("\n")[2], 300) or "it says nothing"
        return [Check("agent", "failed", words, "Does a login there print something by itself? It must not.")]


async def _python(host: SshHost, connection: asyncssh.SSHClientConnection) -> Check | None:
    done = await connection.run(f"{host.python} -c {shlex.quote(_VERSION)}")
    found = re.search(r"python (\d+)\.(\d+)", str(done.stdout))
    remedy = "Install Python 3.9 or newer there, or name one with --python."
    if found is None:
        words = str(done.stderr).strip().rpartition("\n")[2]
        return Check("Python", "failed", plain(words, 300) or f"{host.python} does not start", remedy)
    version = int(found[1]), int(found[2])
    if version < OLDEST:
        return Check("Python", "failed", f"{host.python} is version {version[0]}.{version[1]}", remedy)
    return None


def _time(theirs: float, asked_at: float) -> Check:
    """Their clock was read somewhere between our question and now."""
    now = time.time()
    apart = asked_at - theirs if theirs < asked_at else theirs - now if theirs > now else 0.0
    if apart <= SKEW_S:
        return Check("time", "ok", "the same as here")
    way = "behind" if theirs < asked_at else "ahead"
    return Check("time", "note", f"its clock is {duration(apart)} {way}", "Run chrony or systemd-timesyncd.")
