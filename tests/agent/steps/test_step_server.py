"""The socket of the agent for srun: which processes may use it, the recorded steps, and a restart of the
agent.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from agent.processes.process_marks import mark_code
from agent.steps import listening_socket
from tests import users
from tests.agent.agent_process import AgentProcess, eventually
from wire.agent.frames import Frame, pack
from wire.agent.orders import CloseShell, ShellInput, Signal, SignalTo, Stop
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import OpenTask, StepCall, StepHello, StepNumber, StepsReport, socket_path
from wire.job.steps import MAX_STEPS, Step

Run = Callable[..., AgentProcess]

CLIENT = """
import json, os, socket, sys
where = sys.argv[1]
def connect():
    sock = socket.socket(socket.AF_UNIX)
    folder, name = os.path.split(where)
    sock.connect(f"/proc/self/fd/{os.open(folder, os.O_PATH)}/{name}")
    return sock
sock = connect()
hello = {"t": "step_hello", "attempt": "1.1", "mark": os.environ["CORRAL_MARK"]}
sock.sendall((json.dumps(hello) + "\\n").encode())
step = {"name": "mine", "nodes": "gpu01", "tasks": 2}
call = {"t": "step_call", "request": 5, "job": 0, "attempt": 0, "step": step}
sock.sendall((json.dumps(call) + "\\n").encode())
lines = sock.makefile()
print(lines.readline(), flush=True)
"""
LIVES = CLIENT + "sys.stdin = open('/dev/null'); import time; time.sleep(1000)\n"
ENDS = (
    CLIENT
    + """
call["step"].update(number=0, ended_at=1.0, code=3, cpu_s=1.5, max_rss_kib=2048)
sock.sendall((json.dumps(call) + "\\n").encode())
lines.readline()
"""
)


def where(agent: AgentProcess) -> str:
    return socket_path(str(agent.spool), os.geteuid())


def begin(agent: AgentProcess, program: str, **order: object) -> None:
    agent.start(1, sys.executable, "-c", program, where(agent), **order)
    agent.started(1)


def reported(agent: AgentProcess, when: Callable[[Step], bool]) -> Step:
    def found(said: list[Frame]) -> Step | None:
        steps = [step for each in said if isinstance(each, StepsReport) for step in each.steps]
        return next((step for step in steps if when(step)), None)

    return agent.until(found)


def test_steps_are_in_the_report_of_the_end(run: Run) -> None:
    agent = run()
    begin(agent, ENDS)
    [step] = agent.ended(1).steps
    assert (step.number, step.name, step.nodes, step.tasks) == (0, "mine", "gpu01", 2)
    assert (step.code, step.signal, step.cpu_s, step.max_rss_kib) == (3, 0, 1.5, 2048)
    assert (step.ended_at or 0.0) > 1.0, "the agent's clock counts"
    assert json.loads(agent.log(1).decode())["number"] == 0


def test_a_killed_srun_ends_its_step_and_its_tasks(run: Run) -> None:
    agent = run()
    begin(agent, LIVES)
    pid = reported(agent, lambda step: step.ended_at is None).pid
    os.kill(pid, signal.SIGKILL)
    assert reported(agent, lambda step: step.ended_at is not None).signal == signal.SIGKILL


def test_a_step_survives_the_agent_and_ends_with_the_job(run: Run) -> None:
    first = run()
    begin(first, LIVES)
    reported(first, lambda step: step.ended_at is None)
    first.kill()
    second = run()
    assert reported(second, lambda step: step.name == "mine").ended_at is None, (
        "it is reported after the hello"
    )
    second.send(Stop(1, 1, grace_s=1.0))
    [step] = second.ended(1).steps
    assert (step.number, step.signal) == (0, signal.SIGTERM)


def test_a_step_whose_srun_died_without_an_agent_ends(run: Run) -> None:
    first = run()
    begin(first, f"import os, time\nif os.fork(): time.sleep(1000)\n{LIVES}")
    pid = reported(first, lambda step: step.ended_at is None).pid
    first.kill()
    os.kill(pid, signal.SIGKILL)
    assert reported(run(), lambda step: step.ended_at is not None).signal == signal.SIGKILL


def test_tasks_for_other_nodes_pass_through_the_agent(run: Run) -> None:
    agent = run()
    more = """
def send(kind, **fields):
    sock.sendall((json.dumps({"t": kind, **fields}) + "\\n").encode())
send("open_task", request=7, job=99, attempt=9, node="gpu02", command=["x"])
send("shell_input", request=7, data="aGk=")
send("shell_input", request=8, data="aGk=")
print(lines.readline(), lines.readline(), flush=True)
send("open_task", request=9, job=1, attempt=1, node="gpu02", command=["y"])
"""
    begin(agent, CLIENT + more + "import time; time.sleep(1000)")
    task = agent.until(lambda said: next((each for each in said if isinstance(each, OpenTask)), None))
    assert (task.job, task.attempt, task.node) == (1, 1, "gpu02"), "srun names no other job"
    typed = agent.until(lambda said: next((each for each in said if isinstance(each, ShellInput)), None))
    assert (typed.request, typed.data) == (task.request, "aGk=")
    agent.send(ShellOutput(task.request, "eW8="), ShellEnded(task.request, 4))
    second = agent.until(
        lambda said: next(
            (each for each in said if isinstance(each, OpenTask) and each.command == ("y",)), None
        )
    )
    text = agent.log(1).decode()
    assert all(part in text for part in ('"data":"eW8="', '"code":4', '"request":7'))
    assert sum(isinstance(each, ShellInput) for each in agent.received) == 1, "request 8 is nobody's"
    os.kill(reported(agent, lambda step: True).pid, signal.SIGKILL)
    closed = agent.until(lambda said: next((each for each in said if isinstance(each, CloseShell)), None))
    assert closed.request == second.request, "the task of a killed srun is ended"


def test_srun_is_read_again_when_the_controller_has_read_enough(run: Run) -> None:
    agent = run()
    progress = agent.spool / "progress"
    more = f"""
def send(kind, **fields):
    sock.sendall((json.dumps({{"t": kind, **fields}}) + "\\n").encode())
send("open_task", request=7, job=1, attempt=1, node="gpu02", command=["x"])
for _ in range(300):
    send("shell_input", request=7, data="A" * 30_000)
    open({str(progress)!r}, "a").write("x")
"""
    agent.start(1, sys.executable, "-c", CLIENT + more + "import time; time.sleep(1000)", where(agent))
    agent.started(1)
    with agent._received:
        # The test reads nothing now, so the pipe and the channel of the agent become full.
        eventually(lambda: progress.exists() and progress.stat().st_size > 12)
    agent.until(lambda said: sum(isinstance(each, ShellInput) for each in said) == 300)


def test_the_first_node_records_steps_of_other_nodes(run: Run) -> None:
    agent = run()
    begin(agent, "import time; time.sleep(1000)")
    agent.send(StepCall(3, 1, 1, Step(name="far")), StepCall(4, 1, 1, Step(7, ended_at=1.0)))

    def both(said: list[Frame]) -> list[StepNumber] | None:
        found = [each for each in said if isinstance(each, StepNumber)]
        return found if len(found) == 2 else None

    answers = agent.until(both)
    assert answers == [StepNumber(3, 0), StepNumber(4, error="job 1 has no step 7")]


def test_no_more_steps_than_allowed_are_recorded(run: Run) -> None:
    agent = run()
    begin(agent, "import time; time.sleep(1000)")
    agent.send(*(StepCall(number, 1, 1, Step()) for number in range(MAX_STEPS + 5)))
    agent.until(lambda said: sum(isinstance(each, StepNumber) for each in said) == MAX_STEPS + 5 or None)
    agent.send(Stop(1, 1, grace_s=1.0))
    assert len(agent.ended(1).steps) == MAX_STEPS


def test_no_number_is_given_twice_after_steps_that_are_not_recorded(run: Run) -> None:
    first = run()
    begin(first, "import time; time.sleep(1000)")
    first.send(*(StepCall(number, 1, 1, Step()) for number in range(MAX_STEPS + 5)))
    first.until(lambda said: StepNumber(MAX_STEPS + 4, MAX_STEPS + 4) in said)
    first.kill()
    second = run()
    second.send(StepCall(1, 1, 1, Step()), StepCall(2, 1, 1, Step(MAX_STEPS + 4, ended_at=1.0)))
    second.until(lambda said: StepNumber(2, MAX_STEPS + 4) in said)
    new = next(each for each in second.received if isinstance(each, StepNumber) and each.request == 1)
    assert new.number > MAX_STEPS + 4
    second.send(Stop(1, 1, grace_s=1.0))
    assert len(second.ended(1).steps) == MAX_STEPS


def test_cancelling_a_step_tells_its_srun_and_names_the_user(run: Run) -> None:
    agent = run()
    begin(agent, CLIENT + "print(lines.readline(), flush=True)\n")
    reported(agent, lambda step: True)
    agent.send(Signal(1, 1, "KILL", SignalTo.STEPS, 0, "ada"))
    [step] = agent.ended(1).steps
    assert step.cancelled_by == "ada"
    assert json.loads(agent.log(1).decode().splitlines()[-2])["t"] == "signal"


def connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    folder, name = os.path.split(path)
    directory = os.open(folder, os.O_PATH)
    # Without a timeout of its own, because connect() with one fails while the queue of the listener is full.
    sock.connect(f"/proc/self/fd/{directory}/{name}")
    os.close(directory)
    sock.settimeout(30)
    return sock


def refused(path: str, *frames: Frame) -> bool:
    """Return whether the agent closes the connection without an answer."""
    with connected(path) as sock:
        sock.sendall(b"".join(map(pack, frames)))
        try:
            return sock.recv(1_000) == b""
        except ConnectionResetError:
            return True


def test_connections_that_prove_nothing_do_not_keep_srun_out(run: Run) -> None:
    agent = run()
    began = agent.spool / "go"
    begin(agent, f"import os, time\nwhile not os.path.exists({str(began)!r}): time.sleep(0.05)\n" + ENDS)
    with ExitStack() as stack:
        held = [stack.enter_context(connected(where(agent))) for _ in range(600)]
        began.touch()
        [step] = agent.ended(1).steps
        assert (step.name, step.code) == ("mine", 3)
        assert held[0].recv(1) == b"", "the oldest connection is closed"


@pytest.fixture
def mark(run: Run) -> tuple[AgentProcess, str]:
    """An agent with a running job, and the mark of the job."""
    agent = run()
    begin(agent, "import os, time; print(os.environ['CORRAL_MARK'], flush=True); time.sleep(1000)")
    return agent, eventually(lambda: agent.log(1).decode().strip())


def test_a_process_outside_of_the_job_is_refused_even_with_its_mark(mark: tuple[AgentProcess, str]) -> None:
    agent, text = mark
    assert text == mark_code((agent.spool / "key").read_text(), "1.1", os.geteuid())
    assert refused(where(agent), StepHello("1.1", text), StepCall(1, 1, 1, Step()))


def test_a_wrong_mark_and_a_missing_hello_are_refused(mark: tuple[AgentProcess, str]) -> None:
    agent, text = mark
    assert refused(where(agent), StepHello("1.1", "0" * 64), StepCall(1, 1, 1, Step()))
    assert refused(where(agent), StepHello("2.1", text), StepCall(1, 1, 1, Step()))
    assert refused(where(agent), StepCall(1, 1, 1, Step()))


@users.as_other_users
def test_another_user_cannot_use_the_mark_of_a_job(run: Run) -> None:
    """A child of the job with another uid is in the job's process tree, and knows the mark."""
    agent = run(run_as_self=False)
    ada, eve = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("other users can run no Python here")
    agent.start(1, python, "-c", LIVES, where(agent), user=ada.pw_name)
    agent.started(1)
    assert reported(agent, lambda step: True).name == "mine", "the user of the job may"
    environ = Path(f"/proc/{reported(agent, lambda step: True).pid}/environ").read_bytes().split(b"\0")
    text = next(each for each in environ if each.startswith(b"CORRAL_MARK=")).decode()
    done = subprocess.run(
        [python, "-c", CLIENT, where(agent)],
        cwd="/",
        env={"CORRAL_MARK": text.partition("=")[2]},
        user=eve.pw_uid,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "", done


def test_the_socket_is_where_only_the_agent_can_replace_it(run: Run) -> None:
    agent = run()
    eventually(lambda: os.path.exists(where(agent)))
    folder = os.stat(os.path.dirname(where(agent)))
    assert folder.st_uid == os.geteuid()
    assert not folder.st_mode & 0o022


def test_the_socket_is_removed_with_its_agent(run: Run) -> None:
    """After kill -9 of the agent, the socket stays until another one finds that no process listens on it."""
    agent = run()
    eventually(lambda: os.path.exists(where(agent)))
    agent.disconnect()
    agent.wait_exit()
    assert not os.path.exists(where(agent))
    killed = run()
    eventually(lambda: os.path.exists(where(killed)))
    killed.kill()
    folder = os.path.dirname(where(killed))
    with closing(listening_socket.bind(f"{folder}/new-{os.getpid()}.sock")):
        assert os.path.exists(where(killed)), "its agent may come back"
        old = time.time() - 7_200
        os.utime(where(killed), (old, old))
        os.utime(f"{folder}/new-{os.getpid()}.sock", (old, old))
        with closing(listening_socket.bind(f"{folder}/other-{os.getpid()}.sock")):
            names = set(os.listdir(folder))
    assert {f"new-{os.getpid()}.sock", f"other-{os.getpid()}.sock"} <= names, "they are in use"
    assert os.path.basename(where(killed)) not in names
    for name in ("new", "other"):
        listening_socket.remove(f"{folder}/{name}-{os.getpid()}.sock")
