"""The agent at work: what happens goes into `attempts`, what comes out is done, in that order."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Optional

from agent import containment, environment, instructions, lease, record, tree
from agent.attempts import UNFIT, Attempts
from agent.cgroups import Cgroups
from agent.channel import Channel, Gone
from agent.containers import Runtime
from agent.cores import Cores
from agent.cradle import Cradle
from agent.gpus import Gpus
from agent.host import Host
from agent.instructions import Instruction
from agent.job import complain
from agent.launch import Launch
from agent.logs import POLL_S, Logs
from agent.loop import Loop
from agent.meter import Meter
from agent.orders import Accounts, CannotRun, Preparation
from agent.record import Unreadable
from agent.saves import Saves
from agent.scratch import Area
from agent.shells import CannotOpen, Shells
from agent.spool import Found, Key, Spool, key_of, name_of
from agent.watched import PIDFD, Watched
from wire.frames import (
    AgentFrame,
    AttemptStatus,
    CheckGpu,
    Checkpoint,
    CloseShell,
    Go,
    GpuReport,
    GpuSample,
    Hello,
    Leave,
    Note,
    OpenShell,
    Ping,
    Pong,
    ReadLog,
    Report,
    ResetGpu,
    ResizeShell,
    Settle,
    ShellInput,
    ShellTaken,
    Signal,
    Start,
    Stop,
    StopReading,
)
from wire.policy import JobPolicy

AUDIT_S = 60.0 if PIDFD else 1.0
RETRY_S = 5.0
NURSERY_PAUSE_S = 0.1
NURSERY_YOUNG_S = 1.0
NURSERY_TRIES = 20
_FIFO_READ = 1 << 16


class Node:
    """Everything the agent does, from its first look at the spool to its end."""

    def __init__(
        self,
        spool: Spool,
        channel: Channel,
        accounts: Accounts,
        host: Host,
        gpus: Gpus,
        keep: int,
        policy: JobPolicy,
        cgroups: Cgroups,
        offered: int,
        runtime: Optional[Runtime] = None,
        area: Optional[Area] = None,
    ) -> None:
        self.loop = Loop()
        self.spool = spool
        self.channel = channel
        self.gpus = gpus
        self.attempts = Attempts(keep)
        self.meter = Meter(spool.place)
        self.proven: set[Key] = set()
        self.cores = Cores(host, policy.bind, offered, self.attempts.over)
        self.area = area or Area("", "none")
        self.preparation = Preparation(accounts, self.cores, cgroups, policy, runtime, self.area)
        self.saves = Saves(self.loop, policy.checkpoint_look_s, self.attempts.keys, self._saving, self._saved)
        self.logs = Logs(spool, self.attempts.over, channel)
        self.shells = Shells(self.loop, channel, self._prepare_shell, self.attempts.over)
        self.polling = False
        self.unfit = ""
        """Why no attempt can begin here."""
        self.cradle = Cradle(spool.fifo, spool.root / "nursery.log")
        self.nursery_since = time.monotonic()
        self.stillborn = 0
        self.to_watch: dict[Key, int] = {}
        self.watched: dict[Key, Watched] = {}
        self.unfinished = b""
        self._doing: dict[type, Callable[[Any], None]] = {
            instructions.Keep: self._keep,
            instructions.KeepEnded: self._keep_ended,
            instructions.HandOver: self._hand_over,
            instructions.Watch: self._watch_soon,
            instructions.Halt: self._halt,
            instructions.Release: self._release,
            instructions.GiveUp: self._give_up,
            instructions.PutAway: self._put_away,
            instructions.Forget: lambda each: spool.forget(each.key),
            instructions.Tell: lambda each: channel.send(Report(self.meter.billed(each.report.status))),
        }
        self._obeying: dict[type, Callable[[Any], None]] = {
            Start: lambda order: self._do(self.attempts.start(order, time.time())),
            Stop: lambda stop: self._do(self.attempts.stop(stop, time.time())),
            Go: lambda go: self._do(self.attempts.go(go)),
            Signal: self._signal,
            Note: self._note,
            Settle: lambda settle: self._do(self.attempts.settle(settle)),
            ReadLog: self.logs.read,
            CheckGpu: lambda each: gpus.check(each.uuid, each.after_s),
            ResetGpu: lambda each: gpus.reset(each.uuid, each.command, each.after_s),
            StopReading: lambda each: self.logs.stop(each.request),
            OpenShell: self.shells.open,
            ShellInput: self.shells.write,
            ShellTaken: self.shells.take,
            ResizeShell: self.shells.resize,
            CloseShell: self.shells.close,
            Ping: self._answer,
            Leave: self._leave,
        }

    def adopt(self) -> None:
        """Take over what earlier agents left, and what of it lives though somebody has removed its record."""
        for lost in map(key_of, tree.named(str(self.spool.root))):
            if lost is not None and not self.spool.knows(lost):
                self.spool.set_aside(lost, "its directory is gone")
        for found in self.spool.settled():
            self.attempts.adopt(found, settled=True)
        for found in self.spool.unsettled():
            key = (found.status.job, found.status.attempt)
            holder = self.spool.holder(key)
            self.attempts.adopt(self._trusted(key, found), holder)
            if holder is not None:
                with suppress(OSError):
                    self.cores.adopt(key, sorted(os.sched_getaffinity(holder)))

    def serve(self, hello: Hello) -> None:
        """Say hello, resume, and go on until the controller is gone."""
        self.channel.send(hello)
        self._do(self.attempts.resume())
        self.loop.read(self.spool.hints, self._hear)
        self.loop.read(self.channel.source, self._receive)
        self.loop.read(self.cradle.fileno(), self._nursery_ended)
        self.loop.after(AUDIT_S, self._audit)
        self.saves.watch()
        self.gpus.watch(self.loop, self.attempts.holders, self._tell_of_gpus, self._measure)
        try:
            while True:
                self._turn()
        except Gone:
            self.shells.close_all()

    def _signal(self, told: Signal) -> None:
        """Not written down: whoever sends a signal sees what it does, and can send another."""
        holder = self.spool.holder((told.job, told.attempt))
        if holder is not None:
            number = signal.Signals[f"SIG{told.signal}"].value
            order, below = self.attempts.order((told.job, told.attempt)), tree.descendants(holder)
            below = containment.inside(below) if order is not None and order.image else below
            tree.send(tree.listening(below, number), number)

    def _note(self, note: Note) -> None:
        key = (note.job, note.attempt)
        if self.attempts.running(key) is not None:
            complain(self.spool.place(key), note.text)

    def _prepare_shell(self, key: Key, command: tuple[str, ...], term: str) -> Launch:
        order, holder = self.attempts.running(key), self.spool.holder(key)
        if order is None or holder is None:
            raise CannotOpen(f"attempt {key[1]} of job {key[0]} does not run here")
        try:
            launch = self.preparation.shell(key, self.spool.place(key), order, command, term)
        except CannotRun as error:
            raise CannotOpen(str(error)) from None
        launch.cpus = sorted(os.sched_getaffinity(holder))
        return launch

    def _turn(self) -> None:
        self.logs.pump()
        if self.logs.following and not self.polling:
            self.polling = True
            self.loop.after(POLL_S, self._poll_logs)
        self._watch()
        self.cradle.flush()
        self.loop.write(self.cradle.fileno(), self.cradle.flush if self.cradle.waiting else None)
        self.channel.flush()
        if self.unfit and not self.channel.waiting:
            # What runs goes on; the next agent looks whether this one's trouble is over.
            print(f"agent: it cannot run jobs: {self.unfit}", file=sys.stderr)
            raise Gone
        self.loop.write(self.channel.sink, self.channel.flush if self.channel.waiting else None)
        self.loop.turn(sleep=self.channel.busy or not self.logs.ready)

    # --- what happens ---

    def _receive(self) -> None:
        for frame in self.channel.receive():
            obey = self._obeying.get(type(frame))
            if obey is None:
                print(f"agent: passed over a {type(frame).__name__} frame", file=sys.stderr)
            else:
                obey(frame)

    def _answer(self, ping: Ping) -> None:
        if ping.heard is not None:
            try:
                self.spool.renew(ping.heard)
            except OSError as error:  # leases run out then, which is what they are for
                print(f"agent: leases cannot be renewed: {error}", file=sys.stderr)
        self.channel.send(Pong(ping.beat, lease.clock()))

    def _leave(self, _: Leave) -> None:
        raise Gone

    def _hear(self) -> None:
        """Hints on the FIFO; one that arrives garbled is no loss, the record has it."""
        data = self.unfinished + os.read(self.spool.hints, _FIFO_READ)
        *lines, self.unfinished = data.split(b"\n")
        for line in lines:
            name, _, checked = line.partition(b" ")
            key = key_of(name.decode("ascii", "replace"))
            try:
                if key is not None:
                    self._do(self.attempts.hear(key, record.fact(checked)))
            except Unreadable:
                continue

    def _examine(self, key: Key) -> None:
        """A supervisor is gone, or should have been heard of: what does the spool say?"""
        if self.attempts.over(key) is not False:
            return
        try:
            found = self._trusted(key, self.spool.read(key))
            holder = self.spool.holder(key)
        except OSError as error:
            print(f"agent: the record of {name_of(key)} cannot be read or mended: {error}", file=sys.stderr)
            self.loop.after(RETRY_S, partial(self._examine, key))
            return
        self._do(self.attempts.lost_sight(key, found, holder))

    def _trusted(self, key: Key, found: Found) -> Found:
        """As found; or, if the record is not what was written, as one to be ended and reported lost."""
        if not found.unreadable:
            return found
        print(f"agent: the record of {name_of(key)} is unreadable: {found.unreadable}", file=sys.stderr)
        supervisor = self.spool.holder(key)
        if supervisor is not None:
            os.kill(supervisor, signal.SIGKILL)  # nobody could make use of what it will record
        return self.spool.set_aside(key, found.unreadable)

    def _audit(self) -> None:
        """Once in a while: has everything that needs a supervisor the one we watch?"""
        with suppress(OSError):  # no descriptor is free: next time
            for key, pid in self.attempts.supervisors():
                if self.spool.holder(key) != pid:
                    self._unwatch(key)
                    self._examine(key)
        self.loop.after(AUDIT_S, self._audit)

    def _nursery_ended(self) -> None:
        young = time.monotonic() - self.nursery_since < NURSERY_YOUNG_S
        self.stillborn = self.stillborn + 1 if young else 0
        if self.stillborn > NURSERY_TRIES:
            log = self.spool.root / "nursery.log"
            print(f"agent: supervisors cannot be started; {log} says why", file=sys.stderr)
            raise Gone
        print("agent: the nursery was lost; a new one is started", file=sys.stderr)
        self.loop.read(self.cradle.fileno(), None)
        self.loop.write(self.cradle.fileno(), None)
        self.cradle.bury()
        time.sleep(NURSERY_PAUSE_S)  # so that one that cannot live does not eat a core
        try:
            self.cradle = Cradle(self.spool.fifo, self.spool.root / "nursery.log")
        except OSError as error:
            print(f"agent: supervisors cannot be started: {error}", file=sys.stderr)
            raise Gone from None
        self.nursery_since = time.monotonic()
        self.loop.read(self.cradle.fileno(), self._nursery_ended)
        self._do(self.attempts.lost_nursery())

    def unsettled(self) -> tuple[AttemptStatus, ...]:
        """What a hello tells of attempts."""
        return tuple(map(self.meter.billed, self.attempts.unsettled()))

    def _measure(self, samples: list[GpuSample]) -> None:
        self.meter.read(self.attempts.holders(), samples, time.monotonic())

    def _put_away(self, put_away: instructions.PutAway) -> None:
        self.spool.settle(put_away.key)
        self.meter.forget(put_away.key)
        self.proven.discard(put_away.key)

    def _saving(self, key: Key) -> Optional[Launch]:
        order = self.attempts.running(key)
        if order is None or not environment.saves(order):
            return None
        try:
            return self.preparation.saving(order, self.spool.place(key))
        except CannotRun:  # its user is gone meanwhile
            return None

    def _saved(self, key: Key, checkpoint: Checkpoint) -> None:
        self._do(self.attempts.saved(key, checkpoint))

    def _tell_of_gpus(self, frame: AgentFrame) -> None:
        """Readings are not worth keeping for a controller that does not listen; health is."""
        if not (self.channel.busy and isinstance(frame, GpuReport)):
            self.channel.send(frame)

    def _poll_logs(self) -> None:
        self.polling = False
        self.logs.poll()

    # --- what is done ---

    def _do(self, wanted: list[Instruction]) -> None:
        for instruction in wanted:
            try:
                self._doing[type(instruction)](instruction)
            except OSError as error:  # somebody else's hand in the spool, or a full disk
                print(f"agent: {type(instruction).__name__} failed: {error}", file=sys.stderr)
                if isinstance(instruction, (instructions.Halt, instructions.Release)):
                    self.loop.after(RETRY_S, partial(self._do, [instruction]))  # nobody says it again

    def _keep(self, keep: instructions.Keep) -> None:
        key = (keep.order.job, keep.order.attempt)
        try:
            self.spool.keep(key, keep.order)
        except OSError as error:
            why = f"the order cannot be written to the spool {self.spool.root}: {error.strerror}"
            self._do(self.attempts.not_kept(key, time.time(), why))
            self.unfit = why

    def _keep_ended(self, keep: instructions.KeepEnded) -> None:
        status = keep.status
        line = record.ended(status.ended_at or time.time(), None, None, why=status.why)
        self.spool.keep((status.job, status.attempt), None, line)

    def _hand_over(self, wanted: instructions.HandOver) -> None:
        key, place = wanted.key, self.spool.place(wanted.key)
        if wanted.after_s:
            self.loop.after(wanted.after_s, partial(self._hand_over, instructions.HandOver(key)))
            return
        if self.attempts.over(key) is not False:
            return  # ended or forgotten while this was waiting
        order = self.attempts.order(key)
        if order is not None and order.gpus and key not in self.proven and not self.attempts.started(key):
            self.gpus.prove([hold.uuid for hold in order.gpus], partial(self._proved, key))
            return
        try:
            launch = self.preparation.launch(key, place, self.attempts.order(key))
        except CannotRun as error:
            if self._conclude(key, f"launch_failed: {error}"):
                return
            launch = self.preparation.launch(key, place, None)
        self.cradle.hand_over(launch)

    def _proved(self, key: Key, why: str) -> None:
        """Its GPUs are clean; or they are not, and it never begins here."""
        if not why:
            self.proven.add(key)
            self._hand_over(instructions.HandOver(key))
        elif self.attempts.over(key) is False and not self._conclude(key, f"gpu_held: {why}"):
            self._examine(key)

    def _give_up(self, give_up: instructions.GiveUp) -> None:
        word, _, rest = give_up.why.partition(": ")
        self.unfit = rest if word == UNFIT else self.unfit
        if not self._conclude(give_up.key, give_up.why):
            self._examine(give_up.key)

    def _conclude(self, key: Key, why: str) -> bool:
        """End what no supervisor has taken up."""
        ended = record.ended(time.time(), None, None, why=why)
        if not self.spool.conclude(key, ended):
            return False
        self._do(self.attempts.hear(key, record.fact(ended.rstrip(b"\n"))))
        return True

    def _halt(self, halt: instructions.Halt) -> None:
        key = (halt.stop.job, halt.stop.attempt)
        if self.attempts.over(key) is not False:
            return  # before it could be written down
        try:
            self.spool.keep_stop(halt.stop)
        finally:
            self._watch()
            watched = self.watched.get(key)
            if watched is not None:
                watched.wake()

    def _release(self, release: instructions.Release) -> None:
        if self.attempts.over(release.key) is not False:
            return
        self.spool.keep_go(release.key)
        self._watch()
        watched = self.watched.get(release.key)
        if watched is not None:
            watched.wake()

    def _watch_soon(self, watch: instructions.Watch) -> None:
        """Most attempts of a second's length end in the same turn and need no watching."""
        self.to_watch[watch.key] = watch.pid

    def _watch(self) -> None:
        due, self.to_watch = self.to_watch, {}
        for key, pid in due.items():
            self._unwatch(key)
            if self.attempts.over(key) is not False:
                continue
            try:
                watched = self.watched[key] = Watched(pid)
            except ProcessLookupError:
                self.loop.after(0.0, partial(self._examine, key))
                continue
            if watched.descriptor is not None:
                self.loop.read(watched.descriptor, partial(self._supervisor_ended, key))

    def _supervisor_ended(self, key: Key) -> None:
        self._unwatch(key)
        self._examine(key)

    def _unwatch(self, key: Key) -> None:
        watched = self.watched.pop(key, None)
        if watched is not None and watched.descriptor is not None:
            self.loop.read(watched.descriptor, None)
            os.close(watched.descriptor)
