"""A real agent process; the test sends it the frames of a controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agent.attempts.attempt_record import lock_holder
from tests import groups
from tests.limits import PATIENCE_S
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import ReadLog, Start
from wire.agent.reports import AttemptStatus, Hello, LogChunk, Pong, Report
from wire.agent.steps import socket_path

HERE = Path(__file__).parent.parent.parent
F = TypeVar("F")


class AgentProcess:
    """An agent and all frames that it sent."""

    def __init__(
        self,
        spool: Path,
        *options: str,
        python: str = sys.executable,
        prefix: tuple[str, ...] = (),
        run_as_self: bool = True,
    ) -> None:
        self.spool = spool
        arguments = ["--name", "gpu01", "--spool", str(spool), "--gpus", "none", *options]
        self.process = subprocess.Popen(
            [*prefix, python, "-m", "agent", *arguments, *(["--run-as-self"] if run_as_self else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=HERE,
            env={**os.environ, "DAEMONS_SECRET": "leaked", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.received: list[Frame] = []
        self.stderr_text = ""
        self._received = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # --- sending ---

    def send(self, *frames: Frame) -> None:
        """Send frames to the agent."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(pack, frames)))
        self.process.stdin.flush()

    def start(self, job: int, *command: str, attempt: int = 1, **order: Any) -> Start:
        """Order an attempt."""
        order.setdefault("user", "somebody")
        frame = Start(job, attempt, command, cpu_milli=1000, memory_mib=100, **order)
        self.send(frame)
        return frame

    # --- receiving ---

    def until(self, found: Callable[[list[Frame]], F | None]) -> F:
        """Wait until `found` returns a result for the frames received so far."""
        deadline = time.monotonic() + PATIENCE_S
        with self._received:
            while True:
                answer = found(self.received)
                if answer is not None and answer is not False:
                    return answer
                assert not self._closed, f"the agent ended: {self.stderr_text or self.received[-3:]}"
                last = [str(frame)[:200] for frame in self.received[-5:]]
                assert self._received.wait(deadline - time.monotonic()), (
                    f"no such frame arrived; received {last}"
                )

    def hello(self) -> Hello:
        """The first frame."""
        return self.until(lambda said: next((each for each in said if isinstance(each, Hello)), None))

    def await_pong(self, beat: int) -> None:
        """Wait for the answer to a Ping."""
        self.until(lambda said: any(isinstance(each, Pong) and each.beat == beat for each in said))

    def reports(self, job: int, attempt: int = 1) -> list[AttemptStatus]:
        """The reports of an attempt so far."""
        with self._received:
            statuses = [each.status for each in self.received if isinstance(each, Report)]
        return [each for each in statuses if (each.job, each.attempt) == (job, attempt)]

    def started(self, job: int, attempt: int = 1) -> AttemptStatus:
        """Wait for the report that the attempt runs."""
        return self.until(lambda _: next((r for r in self.reports(job, attempt) if r.pid is not None), None))

    def ended(self, job: int, attempt: int = 1) -> AttemptStatus:
        """Wait for the report that the attempt has ended."""
        return self.until(
            lambda _: next((r for r in self.reports(job, attempt) if r.ended_at is not None), None)
        )

    def log(self, job: int, stream: str = "stdout", attempt: int = 1, **how: Any) -> bytes:
        """A whole log."""
        request = 1 + sum(isinstance(each, LogChunk) for each in self.received)
        request = request * 1000 + job
        self.send(ReadLog(request, job, attempt, stream, **how))

        def whole(said: list[Frame]) -> list[LogChunk] | None:
            chunks = [each for each in said if isinstance(each, LogChunk) and each.request == request]
            return chunks if chunks and chunks[-1].end else None

        chunks = self.until(whole)
        assert not chunks[-1].error, chunks[-1].error
        return b"".join(b64decode(chunk.data) for chunk in chunks)

    def supervisor(self, job: int, attempt: int = 1) -> int:
        """The pid of the supervisor."""
        pid = lock_holder(str(self.spool / "attempts" / f"{job}.{attempt}" / "record"))
        assert pid is not None
        return pid

    def fork_server(self) -> int:
        """The pid of the fork server."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(eventually(lambda: children.read_text().split())[0])

    # --- ending ---

    def kill(self) -> None:
        """kill -9, and wait for the exit."""
        self.process.kill()
        self.wait_exit()

    def disconnect(self) -> None:
        """Close the connection, as a controller that ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait_exit()

    def wait_exit(self) -> int:
        """Wait until the agent has exited. Returns its exit code."""
        code = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return code

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._received:
                self.received.append(unpack(line))
                self._received.notify_all()
        with self._received:
            self._closed = True
            self._received.notify_all()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr_text += line.decode("utf-8", "replace")


def alive(pid: int) -> bool:
    """Whether this process is alive. A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between the open and the read
        return False


def eventually(happened: Callable[[], F]) -> F:
    """Poll a condition until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = happened()
        if answer:
            return answer
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


def carriers(text: str, file: str = "environ") -> Iterator[int]:
    """Living processes with this text in their environment, or in another file of /proc/PID."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / file).read_bytes() and alive(int(folder.name)):
                yield int(folder.name)
        except OSError:
            continue


def remove_socket(spool: Path) -> None:
    """Remove the socket for srun that a killed agent has left. The sockets of agents that run as root are not
    in their spools.
    """
    Path(socket_path(str(spool), os.geteuid())).unlink(missing_ok=True)


def end_all(spool: Path) -> None:
    """End every process that belongs to this spool directory."""

    def sweep() -> bool:
        pids = [*carriers(f"CORRAL_SPOOL={spool}\0"), *carriers(f"CORRAL_SPOOL={spool}/")]
        pids += carriers(f"{spool}/attempts/", "cmdline")  # the task hosts
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not pids

    eventually(sweep)
    groups.remove("gpu01", spool)
    remove_socket(spool)
