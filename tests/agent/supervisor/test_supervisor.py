"""Attempts as real processes: start, end, and the loss of agent, supervisor and fork server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.agent_process import AgentProcess, alive, carriers, eventually
from wire.agent.orders import Note, ReadLog, Settle, Start, Stop
from wire.agent.reports import LogChunk, Report

Run = Callable[..., AgentProcess]
WAIT_FOREVER = ("sleep", "1000")


def gated(gate: Path, then: str) -> tuple[str, ...]:
    """A command that continues once `gate` is written."""
    os.mkfifo(gate)
    return ("sh", "-c", f'read -r _ < "{gate}"; {then}')


def test_attempt_runs_and_its_exit_code_is_reported(run: Run, python: str) -> None:
    agent = run(python=python)
    agent.start(1, "sh", "-c", "echo out; echo err >&2; exit 3")
    started, ended = agent.started(1), agent.ended(1)
    assert started.started_at is not None
    assert started.ended_at is None
    assert (ended.code, ended.signal, ended.why) == (3, None, "")
    assert (ended.pid, ended.started_at) == (started.pid, started.started_at)
    assert ended.usage is not None
    assert agent.log(1) == b"out\n"
    assert agent.log(1, "stderr") == b"err\n"


def test_signal_is_distinguished_from_an_exit_code(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "kill -SEGV $$")
    ended = agent.ended(1)
    assert (ended.code, ended.signal) == (None, signal.SIGSEGV)


def test_jobs_survive_a_killed_agent(run: Run, tmp_path: Path, python: str) -> None:
    first = run(python=python)
    gate = tmp_path / "gate"
    first.start(1, *gated(gate, "exit 7"))
    first.start(2, *WAIT_FOREVER)
    pids = {job: first.started(job).pid for job in (1, 2)}
    first.kill()

    second = run(python=python)
    assert {status.job: status.pid for status in second.hello().attempts} == pids
    gate.write_text("go\n")
    assert second.ended(1).code == 7
    assert [each.pid for each in second.reports(1)] == [pids[1]]
    second.kill()

    third = run(python=python)
    told = {status.job: status for status in third.hello().attempts}
    assert told[1].code == 7
    assert told[2].ended_at is None
    third.send(Settle(1, 1))
    third.start(3, "true")
    third.ended(3)
    third.kill()

    assert {status.job for status in run(python=python).hello().attempts} == {2, 3}


def test_end_without_an_agent_is_reported_by_the_next_hello(run: Run, tmp_path: Path) -> None:
    first = run()
    gate = tmp_path / "gate"
    first.start(1, *gated(gate, "exit 9"))
    supervisor = (first.started(1), first.supervisor(1))[1]
    first.kill()
    gate.write_text("go\n")
    eventually(lambda: not alive(supervisor))
    (status,) = run().hello().attempts
    assert status.code == 9


def test_order_that_never_reached_the_fork_server_runs_after_a_restart(run: Run) -> None:
    first = run()
    nursery = first.fork_server()
    os.kill(nursery, signal.SIGSTOP)
    first.start(1, "sh", "-c", "exit 4")
    eventually((first.spool / "attempts" / "1.1" / "record").exists)
    first.kill()
    os.kill(nursery, signal.SIGKILL)
    assert run().ended(1).code == 4


def test_lost_supervisor_ends_its_attempt(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "setsid sleep 1000 & sleep 1000 & wait")
    main = agent.started(1).pid
    assert main is not None
    eventually(lambda: len([*carriers(f"{agent.spool}/attempts/1.1")]) == 3)
    os.kill(agent.supervisor(1), signal.SIGKILL)
    ended = agent.ended(1)
    assert (ended.code, ended.why, ended.pid) == (None, "supervisor_lost", main)
    assert [*carriers(f"{agent.spool}/attempts/1.1")] == []


def test_supervisor_and_agent_killed_together(run: Run) -> None:
    first = run()
    first.start(1, *WAIT_FOREVER)
    main = first.started(1).pid
    assert main is not None
    supervisor = first.supervisor(1)
    first.kill()
    os.kill(supervisor, signal.SIGKILL)
    second = run()
    assert second.ended(1).why == "supervisor_lost"
    assert not alive(main)


def test_lost_fork_server_is_replaced(run: Run) -> None:
    agent = run()
    agent.start(1, *WAIT_FOREVER)
    agent.started(1)
    nursery = agent.fork_server()
    os.kill(nursery, signal.SIGSTOP)
    for job in range(2, 12):
        agent.start(job, "sh", "-c", f"exit {job}")
    eventually((agent.spool / "attempts" / "11.1" / "record").exists)
    os.kill(nursery, signal.SIGKILL)
    assert [agent.ended(job).code for job in range(2, 12)] == [*range(2, 12)]
    assert agent.fork_server() != nursery
    agent.send(Stop(1, 1))
    assert agent.ended(1).why == "cancelled"


def test_stop_sends_sigterm_first(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    agent.started(1)
    eventually(lambda: agent.log(1) == b"ready\n")
    agent.send(Stop(1, 1, grace_s=60.0))
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (5, "cancelled")


def test_stop_kills_a_job_that_ignores_sigterm(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
    eventually(lambda: agent.log(1) == b"ready\n")
    agent.send(Stop(1, 1, grace_s=0.2, why="node_drained"))
    ended = agent.ended(1)
    assert (ended.signal, ended.why) == (signal.SIGKILL, "node_drained")


def test_a_second_stop_can_shorten_the_grace(run: Run) -> None:
    agent = run()
    agent.start(1, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
    eventually(lambda: agent.log(1) == b"ready\n")
    agent.send(Stop(1, 1, grace_s=1000.0), Stop(1, 1, grace_s=0.0, why="impatient"))
    ended = agent.ended(1)
    assert (ended.signal, ended.why) == (signal.SIGKILL, "cancelled")


def test_stop_order_survives_the_agent(run: Run) -> None:
    first = run()
    first.start(1, *WAIT_FOREVER)
    first.started(1)
    supervisor = first.supervisor(1)
    os.kill(supervisor, signal.SIGSTOP)
    first.send(Stop(1, 1))
    eventually((first.spool / "attempts" / "1.1" / "stop").exists)
    first.kill()
    os.kill(supervisor, signal.SIGCONT)
    second = run()
    status = next((each for each in second.hello().attempts if each.ended_at), None) or second.ended(1)
    assert status.why == "cancelled"


def test_no_process_escapes_a_stop(run: Run) -> None:
    """The process has left the job by a double fork into a new session, and has cleared its environment."""
    agent = run()
    escape = (
        "import os,time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(1000)"
    )
    command = f'env -i "{sys.executable}" -c "{escape}"; echo gone; sleep 1000'
    agent.start(1, "sh", "-c", command)
    eventually(lambda: agent.log(1) == b"gone\n")
    supervisor = agent.supervisor(1)
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
    below = eventually(lambda: [int(pid) for pid in children.read_text().split()][1:])
    agent.send(Stop(1, 1))
    agent.ended(1)
    assert not any(map(alive, below))


def test_background_processes_are_killed_before_the_end_is_reported(run: Run, tmp_path: Path) -> None:
    agent = run()
    agent.start(1, "sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path}/left; exit 2")
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (2, "")
    assert not alive(int((tmp_path / "left").read_text()))


def test_a_job_that_keeps_forking_is_ended(run: Run) -> None:
    agent = run()
    agent.start(
        1, "sh", "-c", "echo ready; while :; do (trap '' TERM; setsid sleep 1000 &) ; done", grace_s=0.0
    )
    eventually(lambda: agent.log(1) == b"ready\n")
    agent.send(Stop(1, 1, grace_s=0.0))
    agent.ended(1)
    assert [*carriers(f"{agent.spool}/attempts/1.1")] == []


def test_time_limit_is_enforced_without_an_agent(run: Run) -> None:
    first = run()
    first.start(1, *WAIT_FOREVER, time_limit_s=1.0)
    main = first.started(1).pid
    assert main is not None
    first.kill()
    eventually(lambda: not alive(main))
    second = run()
    (status,) = second.hello().attempts
    ended = status if status.ended_at else second.ended(1)
    assert (ended.signal, ended.why) == (signal.SIGTERM, "time_limit")


def test_reused_pid_is_not_killed(run: Run, spool: Path) -> None:
    """The pid in the record now belongs to another process with another start time."""
    from agent.attempts import attempt_record

    first = run()
    first.start(1, *WAIT_FOREVER)
    first.started(1)
    main, supervisor = first.started(1).pid, first.supervisor(1)
    first.kill()
    for pid in (supervisor, main):
        assert pid is not None
        with suppress(ProcessLookupError):  # the fork server kills what a supervisor leaves
            os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: not alive(pid))
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other_process:
        path = spool / "attempts" / "1.1" / "record"
        order = path.read_bytes().split(b"\n")[0]
        facts = attempt_record.encode_fact("claimed", supervisor) + attempt_record.encode_fact(
            "started", other_process.pid, 1, "1.0"
        )
        path.write_bytes(order + b"\n" + facts + b" " * attempt_record.RESERVED_BYTES)
        assert run().ended(1).why == "supervisor_lost"
        assert other_process.poll() is None
        other_process.kill()


def test_reboot_is_detected_by_its_boot_id(run: Run, spool: Path) -> None:
    from agent.attempts import attempt_record

    first = run()
    first.start(1, "true")
    first.ended(1)
    first.kill()
    path = spool / "attempts" / "1.1" / "record"
    _, _, order = attempt_record.decode_facts(path.read_bytes().rstrip(b" "))[0]
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other_process:
        ticks = Path(f"/proc/{other_process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        facts = attempt_record.encode_fact("claimed", 1) + attempt_record.encode_fact(
            "started", other_process.pid, ticks, "1.0"
        )
        path.write_bytes(
            attempt_record.encode_fact("order", "another-boot", order)
            + facts
            + b" " * attempt_record.RESERVED_BYTES
        )
        assert run().ended(1).why == "supervisor_lost: the host rebooted"
        assert other_process.poll() is None
        other_process.kill()


def test_a_damaged_record_ends_its_attempt_and_harms_no_other(run: Run, spool: Path) -> None:
    first = run()
    first.start(1, "sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000")
    first.start(2, *WAIT_FOREVER)
    mains = [first.started(job).pid for job in (1, 2)]
    eventually(lambda: len([*carriers(f"{spool}/attempts/1.1")]) == 3)
    first.kill()
    path = spool / "attempts" / "1.1" / "record"
    damaged = path.read_bytes().replace(b'"somebody"', b'"nobody01"')
    path.write_bytes(damaged)

    second = run()
    (kept,) = (spool / "unreadable").iterdir()
    assert second.ended(1).why == (
        "supervisor_lost: its record in the spool cannot be trusted "
        f"(line 1: its checksum is wrong); it is kept as {kept}"
    )
    assert kept.read_bytes() == damaged
    assert [*carriers(f"{spool}/attempts/1.1")] == []
    assert mains[1] is not None
    assert alive(mains[1])
    second.start(3, "true")
    assert second.ended(3).code == 0


def test_damaged_record_of_a_settled_attempt_is_ignored(run: Run, spool: Path) -> None:
    first = run()
    first.start(1, "echo", "words")
    first.ended(1)
    first.send(Settle(1, 1))
    eventually((spool / "settled" / "1.1").exists)
    first.kill()
    (spool / "settled" / "1.1" / "record").write_bytes(b"nonsense")
    second = run()
    assert second.hello().attempts == ()
    assert second.log(1) == b"words\n"
    second.start(1, "true")
    assert second.ended(1).why.startswith("its record cannot be read")


def test_full_disk_loses_no_outcome(run: Run, spool: Path) -> None:
    """The job fills the disk with its output. Its end is recorded; the next job is refused with a reason."""
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("no right to mount here")
    spool.mkdir()
    mount = f'mount -t tmpfs -o size=256k,mode=700 tmpfs "{spool}" && exec "$@"'
    agent = run(prefix=("unshare", "--mount", "sh", "-c", mount, "sh"))
    inside = Path(f"/proc/{agent.process.pid}/root{spool}")
    agent.start(1, "sh", "-c", "yes; exit 6")
    ended = agent.ended(1)
    assert (ended.code, ended.why) == (6, "")
    assert b" ended " in (inside / "attempts" / "1.1" / "record").read_bytes()
    agent.start(2, "true")
    why = f"the order cannot be written to the spool {spool}: No space left on device"
    assert agent.ended(2).why == f"node_unfit: {why}"
    agent.wait_exit()
    assert agent.stderr_text == f"agent: it cannot run jobs: {why}\n"


@pytest.mark.parametrize("removed", ["attempts/1.1", "."])
def test_attempt_whose_directory_was_removed_is_found_and_killed(run: Run, spool: Path, removed: str) -> None:
    """The directory was removed while no agent ran. The GPUs are not free before the attempt is gone."""
    first = run()
    first.start(1, "sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000")
    first.started(1)
    eventually(lambda: len([*carriers(f"{spool}/attempts/1.1")]) == 3)
    first.kill()
    shutil.rmtree(spool / removed)

    second = run()
    assert [status.job for status in second.hello().attempts] == [1]
    ended = second.ended(1)
    assert ended.why == "supervisor_lost: its record in the spool cannot be trusted (its directory is gone)"
    assert [*carriers(f"{spool}/attempts/1.1")] == []
    second.start(2, "true")
    assert second.ended(2).code == 0


def test_power_loss_or_manual_damage_affects_only_its_attempt(run: Run, spool: Path) -> None:
    first = run()
    for job in range(1, 7):
        first.start(job, *WAIT_FOREVER)
    for job in range(1, 7):
        first.started(job)
    pid = first.started(6).pid
    first.kill()
    attempts = spool / "attempts"
    os.truncate(attempts / "1.1" / "record", 0)
    os.truncate(attempts / "2.1" / "record", 40)
    (attempts / "3.1" / "record").write_bytes(bytes(3_000))
    (attempts / "4.1" / "record").unlink()
    (attempts / "4.1" / "record").mkdir()
    shutil.rmtree(attempts / "5.1")
    (attempts / "5.1").write_text("in the way")
    (attempts / "6.1" / "stop").touch()
    (attempts / ".nfs0001").write_text("somebody else's")
    (attempts / ".7.1").mkdir()
    (spool / "hints").unlink()
    (spool / "hints").write_text("no pipe")
    (spool / "lease").write_bytes(b"nonsense")
    (spool / "lock").write_text("1")

    second = run()
    for job in range(1, 6):
        assert second.ended(job).why.startswith("supervisor_lost: its record in the spool cannot be trusted")
        assert [*carriers(f"{attempts}/{job}.1")] == []
    assert len([*(spool / "unreadable").iterdir()]) == 5
    assert pid is not None
    assert alive(pid)
    second.send(Stop(6, 1, 0.0, "cancelled"))
    assert second.ended(6).why == "cancelled"


def test_pipes_in_place_of_logs_block_nothing(run: Run) -> None:
    """Opening a pipe without a reader would block the supervisor or the agent."""
    agent = run("--jobs", '{"log_mib": 1}')
    swap = 'cd "$CORRAL_SPOOL"; for each in stdout stderr; do rm $each; mkfifo $each; done; exec sleep 1000'
    agent.start(1, "sh", "-c", swap, time_limit_s=1.0, grace_s=0.0)
    agent.started(1)
    eventually((agent.spool / "attempts" / "1.1" / "stderr").is_fifo)
    agent.send(ReadLog(7, 1, 1), Note(1, 1, "look"))
    answer = agent.until(lambda said: next((each for each in said if isinstance(each, LogChunk)), None))
    assert answer.end
    assert agent.ended(1).why == "time_limit"


def test_repeated_orders_have_one_effect(run: Run) -> None:
    agent = run()
    order = agent.start(1, "sh", "-c", "echo once; sleep 1000")
    first = agent.started(1)
    agent.send(order)
    agent.until(lambda _: len(agent.reports(1)) == 2)
    assert agent.reports(1) == [first, first]
    eventually(lambda: agent.log(1) == b"once\n")
    agent.send(Stop(1, 1), Stop(1, 1))
    ended = agent.ended(1)
    agent.send(order, Stop(1, 1))
    agent.until(lambda _: len([each for each in agent.reports(1) if each.ended_at]) == 3)
    assert agent.reports(1)[-2:] == [ended, ended]
    assert agent.log(1) == b"once\n"


def test_older_attempt_is_refused(run: Run) -> None:
    agent = run()
    agent.start(1, "true", attempt=3)
    agent.ended(1, 3)
    agent.start(1, "true", attempt=2)
    assert agent.ended(1, 2).why == "refused: attempt 3 of job 1 was already seen here"
    agent.kill()
    second = run()
    second.start(1, "true", attempt=2)
    assert second.ended(1, 2).why.startswith("refused: ")


def test_a_newer_attempt_waits_until_the_older_has_ended(run: Run, tmp_path: Path) -> None:
    agent = run()
    agent.start(
        1, "sh", "-c", f"trap 'rm {tmp_path}/mine; exit' TERM; touch {tmp_path}/mine; sleep 1000 & wait"
    )
    eventually((tmp_path / "mine").exists)
    agent.start(1, "sh", "-c", f"test ! -e {tmp_path}/mine", attempt=2)
    assert agent.ended(1, 1).why == "superseded"
    assert agent.ended(1, 2).code in (0, 1)
    kinds = [
        (each.status.attempt, each.status.ended_at is not None)
        for each in agent.received
        if isinstance(each, Report)
    ]
    assert kinds == [(1, False), (1, True), (2, False), (2, True)]


def test_attempt_stopped_before_its_start_order_never_starts(run: Run) -> None:
    agent = run()
    agent.send(Stop(1, 1))
    assert agent.ended(1).why == "cancelled"
    agent.start(1, "true")
    agent.until(lambda _: len(agent.reports(1)) == 2)
    agent.kill()
    second = run()
    second.start(1, "true")
    assert second.ended(1).why == "cancelled"
    assert second.ended(1).pid is None


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({"command": ("no-such-program",)}, "cannot run no-such-program: not found in PATH ("),
        ({"command": ("./data",)}, "cannot run ./data: Permission denied"),
        (
            {"command": ("./script",)},
            "cannot run ./script: the interpreter that its first line names does not exist",
        ),
        ({"command": ("./text",)}, "cannot run ./text: it is not a program; a script begins with #!"),
        (
            {"command": ("true",), "workdir": "/no/such/place"},
            "cannot enter the working directory /no/such/place",
        ),
        ({"command": ("true", "\0")}, "cannot run /usr/bin/true: embedded null byte"),
        (
            {"command": ("true",), "env": {"A=B": ""}},
            "cannot run /usr/bin/true: illegal environment variable name",
        ),
        ({"command": ("true", "x" * 200_000)}, "cannot run /usr/bin/true: Argument list too long"),
    ],
)
def test_command_that_cannot_start_is_reported_with_a_cause(
    run: Run, tmp_path: Path, order: dict[str, object], why: str
) -> None:
    for name, text, mode in (
        ("script", "#!/no/such/interpreter\n", 0o755),
        ("text", "just text\n", 0o755),
        ("data", "just data\n", 0o644),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    agent = run()
    agent.send(
        Start(1, 1, **{"user": "x", "cpu_milli": 1, "memory_mib": 1, "workdir": str(tmp_path), **order})
    )
    ended = agent.ended(1)
    assert ended.why.startswith(f"launch_failed: {why}"), ended.why
    assert (ended.pid, ended.code) == (None, None)


def test_two_hundred_attempts_at_once(run: Run) -> None:
    agent = run("--keep", "5")
    jobs = range(1, 201)
    for job in jobs:
        agent.start(job, "sh", "-c", f"exit {job % 256}")
    assert [agent.ended(job).code for job in jobs] == [job % 256 for job in jobs]
    agent.send(*(Settle(job, 1) for job in jobs))
    eventually(lambda: os.listdir(agent.spool / "attempts") == [])
    eventually(lambda: len(os.listdir(agent.spool / "settled")) == 5)
    assert len([each for each in agent.received if isinstance(each, Report) and each.status.ended_at]) == len(
        jobs
    )
