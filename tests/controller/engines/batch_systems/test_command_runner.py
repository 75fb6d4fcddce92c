"""Commands run on this machine and, by SSH, on a login node. A command counts only with its last line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.engines.batch_systems import command_runner
from controller.engines.batch_systems.command_runner import CommandRunner, LocalRunner, SshRunner
from controller.engines.contract import EngineUnavailable
from controller.nodes.ssh.known_hosts import key_line
from tests.controller.nodes.openssh_server import PATIENCE_S, OpenSshServer, lacking, running_openssh_server

LACKING = lacking()


def login_node(server: OpenSshServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> SshRunner:
    """Return a runner whose controller has the server's host key in its known_hosts."""
    (home / ".ssh").mkdir(parents=True)
    known = f"[127.0.0.1]:{server.port} {key_line(server.host_key)}\n"
    (home / ".ssh" / "known_hosts").write_text(known)
    monkeypatch.setenv("HOME", str(home))
    return SshRunner(f"{server.user}@127.0.0.1:{server.port}", str(server.identity), PATIENCE_S)


@pytest.fixture(params=["local", "ssh"])
async def runner(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CommandRunner]:
    if request.param == "local":
        yield LocalRunner(PATIENCE_S)
    elif LACKING:
        pytest.skip(LACKING)
    else:
        with running_openssh_server() as server:
            server.rc("echo Welcome to the cluster\n")
            made = login_node(server, tmp_path / "home", monkeypatch)
            yield made
            await made.close()


async def test_output_errors_and_exit_code(runner: CommandRunner) -> None:
    done = await runner.run("cat; echo problem >&2; exit 3", b"it's $input\n")
    assert (done.code, done.out, done.err.strip()) == (3, "it's $input\n", "problem")


async def test_output_without_a_newline_at_its_end_is_kept(runner: CommandRunner) -> None:
    assert (await runner.run("printf '\\n a\\n\\nb'")).out == "\n a\n\nb"


async def test_an_answer_that_was_cut_off_is_no_answer(runner: CommandRunner) -> None:
    with pytest.raises(EngineUnavailable, match="is not complete: gone"):
        await runner.run("echo one line; echo gone >&2; kill -9 $$")


async def test_a_command_that_prints_without_end_is_ended(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_runner, "MOST_OUTPUT", 1 << 20)
    with pytest.raises(EngineUnavailable, match="printed more than 1 MiB"):
        await runner.run("yes")
    assert (await runner.run("echo next")).out == "next\n"


async def test_output_is_streamed(runner: CommandRunner) -> None:
    pieces = [piece async for piece in runner.stream("printf abc; printf def >&1")]
    assert b"".join(pieces).endswith(b"abcdef")


async def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="no answer within"):
        await LocalRunner(0.2).run(f"echo $$ > {tmp_path}/pid; sleep 1000")
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_stream_that_is_not_read_to_its_end_is_ended(tmp_path: Path) -> None:
    stream = LocalRunner(PATIENCE_S).stream(f"echo $$ > {tmp_path}/pid; echo begun; sleep 1000")
    assert await anext(stream) == b"begun\n"
    await stream.aclose()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_secrets_of_the_controller_do_not_reach_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_TOKEN", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    shown = (await LocalRunner(PATIENCE_S).run("env")).out
    assert "secret" not in shown
    assert "SLURM_CONF=/etc/slurm/other.conf" in shown


@pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")
async def test_a_lost_login_node_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_openssh_server() as server:
        runner = login_node(server, tmp_path / "home", monkeypatch)
        assert (await runner.run("id -un")).out.strip() == server.user
        with pytest.raises(EngineUnavailable, match="login node"):
            await runner.run("kill -9 $PPID")
        server.stop_listening()
        with pytest.raises(EngineUnavailable, match="nothing listens on the SSH port"):
            await runner.run("true")
        server.listen()
        assert (await runner.run("echo back")).out == "back\n"
        await runner.close()


@pytest.mark.skipif(bool(LACKING), reason=LACKING or "everything is there")
async def test_many_commands_share_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_openssh_server(MaxSessions="10") as server:
        runner = login_node(server, tmp_path / "home", monkeypatch)
        connections = await asyncio.gather(*(runner.run("echo $SSH_CONNECTION") for _ in range(8)))
        assert len({each.out for each in connections}) == 1
        await runner.close()
