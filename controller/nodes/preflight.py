"""Checks whether a host can become a node. Each check has a result, and a remedy for a failure."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

import asyncssh

from controller.nodes.agent.arguments import agent_arguments
from controller.nodes.agent.bootstrap import BootstrapFailed, start_agent
from controller.nodes.agent.zipapp import bundle
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.shared_directories import marker_files
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.host_key_check import HostKeyChanged, HostKeyUnknown
from controller.nodes.ssh.known_hosts import fingerprint, key_line
from controller.nodes.ssh.ssh_attempt import AuthenticationFailed, describe_error
from wire.agent.job_policy import JobPolicy
from wire.api.nodes import Check, Preflight
from wire.cluster.hosts import HostSpec, SshAddress, parse_ssh_address
from wire.program_parts import AGENT
from wire.text import duration, printable

SKEW_S = 5.0
_RUN_S = 60.0
"""The most seconds for all checks. They must be enough for a GPU driver without persistence mode, which takes
long to list its GPUs.
"""


async def preflight(
    name: str,
    host: HostSpec,
    connector: SshConnector,
    trusted: str = "",
    shared: Sequence[str] = (),
    cluster: str = "",
) -> Preflight:
    """Check over SSH whether the host could become the node `name`. The host does not become a node.

    `trusted` is an SSH host key that is accepted instead of the pinned key. `shared` contains directories
    that should be the same on the host and on the controller's machine, such as network file systems.
    """
    checks: list[Check] = []
    boot_id = ""
    key: asyncssh.SSHKey | None = None
    address = parse_ssh_address(host.ssh)
    try:
        async with connector.turn(_RUN_S):
            connection = await connector.connect(name, address, host.identity, trusted)
            async with connection:
                key = connection.get_server_host_key()
                assert key is not None
                checks.append(_reachable(connection))
                checks.append(Check("host key", "ok", fingerprint(key)))
                checks.append(Check("login", "ok", f"as {connection.get_extra_info('username')}"))
                with marker_files(shared) as (marked, lacking):
                    asked, boot_id = await _checks_on_host(name, host, connection, marked, cluster)
                    checks += [*asked, *lacking]
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
        # Name the check that failed: "login" if the host accepted no key, "connection" if the time limit
        # _RUN_S was reached after a check had passed, "reachable" in all other cases.
        place = (
            "login" if isinstance(error, AuthenticationFailed) else "connection" if checks else "reachable"
        )
        checks.append(Check(place, "failed", str(error), _remedy(error, address, reached=bool(checks))))
    except (asyncssh.Error, OSError) as error:
        checks.append(Check("connection", "failed", describe_error(error), "Try again."))
    ready = _all_passed(checks)
    shown = key_line(key) if key is not None else ""
    return Preflight(
        name, str(address), ready, tuple(checks), shown, fingerprint(key) if key else "", boot_id
    )


def _remedy(error: CannotConnect, address: SshAddress, *, reached: bool) -> str:
    """Return what to do after a failed connection. `reached` is True if the host has answered before."""
    if isinstance(error, AuthenticationFailed):
        return error.remedy
    here = "On the controller's machine, as the controller's user: does"
    if reached:
        return f"{here} 'ssh {address.words()} nvidia-smi' end? A GPU driver that hangs delays the checks."
    return f"{here} 'ssh {address.words()}' reach the host?"


def _reachable(connection: asyncssh.SSHClientConnection) -> Check:
    version = connection.get_extra_info("server_version")
    return Check("reachable", "ok", printable(str(version), 80))


async def _checks_on_host(
    name: str,
    host: HostSpec,
    connection: asyncssh.SSHClientConnection,
    marker_paths: Sequence[str],
    cluster: str,
) -> tuple[list[Check], str]:
    """Start the agent on the host in its check mode. Return the results of the agent's checks, and the boot
    id of the host ("" if unknown).

    `marker_paths` are the files that marker_files() created; the agent checks whether it finds them. If the
    agent cannot be started or does not answer, the result is one failed check.
    """
    made = await asyncio.get_running_loop().run_in_executor(None, bundle)
    try:
        started = await start_agent(connection, host.python, host.spool, made)
    except BootstrapFailed as error:
        remedy = error.remedy.replace("HOST", parse_ssh_address(host.ssh).words())
        return [Check(error.check, "failed", str(error), remedy)], ""
    arguments = agent_arguments(name, host, started.home, cluster=cluster)
    arguments += [word for path in marker_paths for word in ("--shared", path)]
    asked_at = time.time()
    started.send_options([*arguments, "--check"])
    said = b"\n"
    while said and not said.startswith(b'{"now"'):
        said = await started.process.stdout.readline()
    try:
        return _read_report(said, asked_at)
    except (ValueError, KeyError, TypeError):
        return [_no_report(await started.words.end(1.0))], ""


def _read_report(line: bytes, asked_at: float) -> tuple[list[Check], str]:
    """Return the checks in the agent's report, with a check of the host's clock, and the boot id of the host.

    `asked_at` is the time at which the report was requested, in seconds since 1970. Raise ValueError,
    KeyError or TypeError if the line is not a report.
    """
    report = json.loads(line)
    checks = [
        Check(*(printable(str(each[field]), 500) for field in ("name", "verdict", "found", "remedy")))
        for each in report["checks"]
    ]
    return [*checks, _time(float(report["now"]), asked_at)], printable(str(report["boot_id"]))


def _no_report(words: str) -> Check:
    """Return a failed check whose text contains `words`, which the agent has printed instead of a report."""
    remedy = "Check the Python installation there, or name another Python with --python."
    return Check("agent", "failed", words or "it prints nothing", remedy)


async def local_preflight(
    name: str, host: HostSpec, jobs: JobPolicy, shared: Sequence[str] = (), cluster: str = ""
) -> Preflight:
    """Run the checks of a host on the controller's own machine, where the agent needs no SSH.

    The host settings must have a spool. The node may be in use: its agent continues to run.
    """
    with marker_files(shared) as (marked, lacking):
        words = [*agent_arguments(name, host, "", jobs, cluster)]
        words += [word for path in marked for word in ("--shared", path)]
        command = AGENT.command(*words, "--check", python=host.python)
        boot_id, asked_at = "", time.time()
        try:
            said, errors = await asyncio.wait_for(_output(command), _RUN_S)
            checks, boot_id = _read_report(said, asked_at)
        except TimeoutError:
            checks = [_no_report(f"no report in {duration(_RUN_S)}")]
        except OSError as error:
            checks = [_no_report(f"{command[0]}: {error.strerror}")]
        except (ValueError, KeyError, TypeError):
            checks = [_no_report(printable(errors.decode(errors="replace").strip()[-500:], 500))]
    checks += lacking
    return Preflight(name, "", _all_passed(checks), tuple(checks), boot_id=boot_id)


async def _output(command: Sequence[str]) -> tuple[bytes, bytes]:
    """Run a command. Return (the last line of its stdout, its whole stderr). Kill the command if this task is
    cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return (out.splitlines() or [b""])[-1], err


def _all_passed(checks: Sequence[Check]) -> bool:
    return all(check.verdict in ("ok", "note") for check in checks)


def _time(theirs: float, asked_at: float) -> Check:
    """Return a check that compares the host's clock with the controller's clock.

    `theirs` is the time of the host, which was read after `asked_at` and before this call. `asked_at` is a
    time of the controller.
    """
    now = time.time()
    apart = asked_at - theirs if theirs < asked_at else theirs - now if theirs > now else 0.0
    if apart <= SKEW_S:
        return Check("time", "ok", "the same as here")
    way = "behind" if theirs < asked_at else "ahead"
    return Check("time", "note", f"its clock is {duration(apart)} {way}", "Run chrony or systemd-timesyncd.")
