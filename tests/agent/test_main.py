"""Starting an agent by hand, with wrong and with right arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.agent_process import HERE, AgentProcess, alive, eventually
from tests.limits import PATIENCE_S
from wire.agent.orders import Leave, Ping


def agent(*arguments: object, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", *map(str, arguments)]
    return subprocess.run(
        command, cwd=HERE, stdin=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--gpus", "none", "--spool", "/dev/null/spool"),
            "the spool directory /dev/null/spool cannot be used",
        ),
        (("--gpus", "none", "--spool", "/proc/spool"), "the spool directory /proc/spool cannot be used"),
        (("--gpus", "simulated:8xH1000", "--spool", "{}"), "cannot read '8xH1000'; write 8xH100"),
        (("--gpus", "some", "--spool", "{}"), "cannot read 'some' as GPUs"),
        (("--memory", "lots", "--spool", "{}"), "cannot read 'lots'; write 512G"),
        (("--label", "rack", "--spool", "{}"), "cannot read 'rack'; write KEY=VALUE"),
        ((), "the following arguments are required: --spool"),
    ],
)
def test_configuration_mistakes_are_reported_in_one_sentence(
    spool: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = agent("--name", "gpu01", *(text.format(spool) for text in arguments))
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_full_disk_at_start_is_reported(spool: Path) -> None:
    """The file system is too small for the first directory of the spool."""
    spool.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2,mode=700", "tmpfs", str(spool)]
    command = f'{" ".join(mount)} && exec "{sys.executable}" -m agent --name a --gpus none --spool "{spool}"'
    asked = ["unshare", "--mount", "sh", "-c", command]
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("no right to mount here")
    done = subprocess.run(
        asked, cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_second_agent_waits_until_the_first_has_left(run: Callable[..., AgentProcess]) -> None:
    first = run()
    with subprocess.Popen(
        [sys.executable, "-m", "agent", "--name", "gpu01", "--gpus", "none", "--spool", str(first.spool)],
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as second:
        assert second.stdout is not None
        waiting = Path(f"/proc/{second.pid}/fd")
        eventually(lambda: any(os.path.realpath(each).endswith("/lock") for each in waiting.iterdir()))
        first.disconnect()
        assert b'"t":"hello"' in second.stdout.readline()
        second.kill()


def test_facts_can_be_configured(run: Callable[..., AgentProcess]) -> None:
    facts = (
        run("--cpus", "64", "--memory", "512G", "--label", "rack=a=b", "--address", "10.0.0.7").hello().facts
    )
    assert (facts.cpu_milli, facts.memory_mib) == (64_000, 512 * 1024)
    assert (facts.labels, facts.address, facts.gpus) == ({"rack": "a=b"}, "10.0.0.7", ())


def test_agent_answers_pings_and_leaves(run: Callable[..., AgentProcess]) -> None:
    agent_process = run()
    nursery = agent_process.fork_server()
    agent_process.send(Ping(41), Ping(42))
    agent_process.await_pong(42)
    agent_process.send(Leave())
    assert agent_process.wait_exit() == 0
    assert agent_process.stderr_text == ""
    eventually(lambda: not alive(nursery))


def test_invalid_frames_are_skipped(run: Callable[..., AgentProcess]) -> None:
    agent_process = run()
    assert agent_process.process.stdin is not None
    agent_process.process.stdin.write(
        b'nonsense\n{"t":"hello"}\n{"t":"start","job":"one"}\n[[[[\n\xff\xfe\n' + b"[" * 100_000 + b"\n"
    )
    agent_process.send(Ping(1))
    agent_process.await_pong(1)


def test_stdout_carries_only_frames(run: Callable[..., AgentProcess]) -> None:
    """The lost fork server is reported on stderr."""
    agent_process = run()
    os.kill(agent_process.fork_server(), signal.SIGKILL)
    eventually(lambda: "the fork server has ended" in agent_process.stderr_text)
    agent_process.start(1, "echo", "not a frame")
    assert agent_process.ended(1).code == 0
