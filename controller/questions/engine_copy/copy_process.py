"""The engine copy: a process that repeats the controller's inputs, and forks a process to answer a question.

1. The controller forks the engine copy between two batches of inputs. The engine copy thus has the
   controller's engine with all its memory, including what is not in the journal: backfill reservations,
   recent requests of users, and which plugins failed.
2. After each commit, the controller sends its handled inputs. The engine is deterministic, so the same inputs
   at the same times lead to the same state. Controller and engine copy both compute a checksum over the
   events. If the checksums differ, the engine copy ends, and the controller forks a new one.
3. For each question, the engine copy forks a process, which may change its copy of the state. The answers of
   this process arrive through a pipe, and the engine copy passes these answers to the controller. Meanwhile
   the engine copy continues to repeat inputs.

The controller sends a question on the same connection as the inputs, so the answer takes all inputs into
account that were committed before the question. Cost: the engine copy needs as much CPU time as the
controller's engine, and with time about as much memory as the controller.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import traceback
from dataclasses import dataclass, field
from typing import NoReturn

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.events.event import Event
from controller.core.state.note_rows import clear_note_changes
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.engine_copy import RESERVE, EngineCopy, QuestionRefused
from controller.questions.engine_copy.forked_processes import (
    PIECE,
    detach,
    fork,
    leave_a_core,
    limit,
    rename,
    write_all,
)
from controller.questions.engine_copy.messages import (
    Committed,
    Declined,
    Ended,
    QuestionAsked,
    QuestionDropped,
    Unpacker,
    digest_of,
    pack,
    unpack,
)
from controller.questions.engine_copy.messages import QuestionAnswer as Answer

NICE, NICER = 5, 10
"""The niceness of the engine copy and of its forks, relative to the controller, so that the controller gets
CPU time first.
"""
DRIFTED = 3
"""The exit code of an engine copy whose state differs from the controller's state."""

log = logging.getLogger("corral.questions")


@dataclass(slots=True)
class AnswerProcess:
    """A process that answers a question, and the bytes of its next answer that have arrived."""

    pid: int
    number: int
    answers: Unpacker = field(default_factory=Unpacker)


def begin(line: socket.socket, engine: Engine, config: Config, seq: int, memory_mib: int) -> int:
    """Fork the engine copy (a separate process) and return its process id. The socket `line` connects the
    engine copy to the controller. The engine copy ends when the controller closes the socket.
    """
    pid = fork()
    if pid == 0:
        _run(line, engine, config, seq, memory_mib)
    return pid


def _run(line: socket.socket, engine: Engine, config: Config, seq: int, memory_mib: int) -> NoReturn:
    code = 1
    try:
        rename("corral-copy")
        detach(line.fileno())
        os.nice(NICE)
        line.setblocking(True)
        code = EngineCopyProcess(line, engine, config, seq, memory_mib).serve()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class EngineCopyProcess:
    """The main loop of the engine copy, a separate process. It applies the committed inputs to the copy, and
    starts a process for each question.
    """

    def __init__(
        self, line: socket.socket, engine: Engine, config: Config, seq: int, memory_mib: int
    ) -> None:
        self._line = line
        self._engine = engine
        self._config = config
        self._seq = seq
        self._memory_mib = memory_mib
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, AnswerProcess] = {}
        """The processes that answer questions, by the pipe from which their answers are read."""

    def serve(self) -> int:
        """Apply the inputs that the controller has committed, and answer its questions, until the controller
        closes the connection. Return the exit code of the process.
        """
        orders = Unpacker()
        self._selector.register(self._line, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fd != self._line.fileno():
                    self._pass_on(key.fd)
                    continue
                piece = self._line.recv(PIECE)
                if not piece:
                    return 0
                for message in orders.feed(piece):
                    if not self._take(unpack(message)):
                        return DRIFTED

    def _take(self, order: Committed | QuestionAsked | QuestionDropped) -> bool:
        """Handle a message from the controller. Return False if the engine copy must end, because its state
        differs from the controller's state.
        """
        match order:
            case Committed():
                return self._follow(order)
            case QuestionAsked():
                self._answer(order)
            case QuestionDropped(number):
                for process in self._processes.values():
                    if process.number == number:
                        os.killpg(process.pid, signal.SIGKILL)
        return True

    def _follow(self, landed: Committed) -> bool:
        events: list[Event] = []
        for given, now in landed.handled:
            events += self._engine.handle(given, now).events
        if events:  # Clear the lists of changes, as the controller does after a commit.
            clear_note_changes(self._engine.state)
            self._engine.state.forget_old()
            self._seq += len(events)
        if self._seq == landed.seq and digest_of(events) == landed.digest:
            return True
        log.error("the engine copy differs from the controller at entry %d: a new one is started", landed.seq)
        return False

    def _answer(self, question: QuestionAsked) -> None:
        ours, theirs = os.pipe()
        pid = fork()
        if pid == 0:
            self._work(question, theirs)
        os.close(theirs)
        # Set the child's process group in the parent too, because the parent may continue before the child
        # has set the group.
        os.setpgid(pid, pid)
        self._processes[ours] = AnswerProcess(pid, question.number)
        self._selector.register(ours, selectors.EVENT_READ)

    def _work(self, question: QuestionAsked, line: int) -> NoReturn:
        """Answer the question in this forked process, and exit. Write each answer to the file descriptor
        `line`.
        """
        spare_s = question.budget_s * RESERVE
        deadline = Deadline.after(question.budget_s - spare_s)
        try:
            os.setpgid(0, 0)
            rename("corral-question")
            detach(line)
            os.nice(NICER)
            leave_a_core()
            limit(question.budget_s + 1, self._memory_mib)
            engine_copy = EngineCopy(self._engine, self._config, self._seq, question.now, deadline, spare_s)
            try:
                for answer in question.work(engine_copy, *question.arguments):
                    write_all(line, pack(Answer(question.number, answer)))
            except QuestionRefused as refused:
                write_all(line, pack(Declined(question.number, refused.refusal)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _pass_on(self, pipe: int) -> None:
        process = self._processes[pipe]
        piece = os.read(pipe, PIECE)
        for message in process.answers.feed(piece):
            self._line.sendall(message)
        if piece:
            return
        self._selector.unregister(pipe)
        os.close(pipe)
        del self._processes[pipe]
        _, status = os.waitpid(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        failure = (
            ""
            if code == 0
            else f"killed by signal {-code}"
            if code < 0
            else "it failed because of a bug; see the controller's log"
        )
        self._line.sendall(pack(Ended(process.number, failure)))
