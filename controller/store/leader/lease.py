"""The lease of the leader: takes it, renews it in a thread of its own, and says until when this controller
may act.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from controller.store.leader import rows
from controller.store.leader.holder import has_ended
from controller.store.leader.rows import LeaderRow
from wire import VERSION

T = TypeVar("T")
LEASE_S = 6.0
RENEW_S = 2.0
RETRY_S = 1.0
"""Seconds until a failed renewal is tried again."""
SLOW_S = 0.5
"""If a query of the server's clock takes at least this many seconds, its answer is too inexact and is
ignored, unless it is the first answer.
"""

log = logging.getLogger("corral.leader")


def boot_time_s() -> float:
    """Return the seconds since the host booted, including the time in suspend. No user can change this
    clock.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The right of one controller to decide and to write, for LEASE_S seconds at a time.

    1. `take` writes the name of this process into the row of the leader, if the lease of the former leader
       has ended by the database's clock, or if the former leader ran on this host and its process has ended.
       It first ends the sessions of the former leader, which may be in the middle of a commit. Each time
       another process takes the row, the epoch grows by 1.
    2. A thread renews the lease every RENEW_S seconds, on a connection that serves nothing else. A renewal
       needs the same holder and the same epoch.
    3. `may_act` is true until two thirds of the lease are over, counted from the moment before the last
       successful renewal was sent, by the clock of this host. So this controller stops before another
       controller can take over.
    4. `prove` is the first statement of each transaction that writes. It fails if the epoch has changed, and
       keeps the epoch from changing until the transaction ends. 5. `close` ends the lease at once, so that
       another controller need not wait for its end.

    Invariant: rows are written only under the newest epoch, whatever the clocks show (4). Orders are sent
    only by a controller whose lease has not ended, if the database's clock runs at most 1.5 times as fast as
    that of the controller's host (3). Cost: two updates and one query of the clock every 2 s; one more
    statement in each commit.

    Example: controller A renews at 12:00:00 and is stopped by SIGSTOP at 12:00:01. B takes the lease at
    12:00:06 with epoch 8. A continues at 12:00:20. Since 12:00:04 `may_act` of A is false, so A sends
    nothing, and the commit that A had begun fails, because the epoch is 8 and not 7.
    """

    def __init__(
        self,
        engine: Engine,
        holder: str,
        *,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.holder = holder
        self.address = ""
        """The URL at which clients reach this controller. The next renewal writes it to the database."""
        self.epoch = 0
        """The epoch in which this controller leads or has led; 0 before it has led."""
        self.seq = 0
        """The number of the newest journal entry that this controller has written or followed."""
        self.accepted = ""
        """The last accepted loss of journal entries (`corral admin accept-loss`), as it was when this
        controller became the leader; empty if there was none.
        """
        self._engine = engine
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._clock = clock
        self._acts_until = float("-inf")
        self._measured: tuple[float, float] | None = None
        """The clock of the database server, and that of this host at the same moment; None before the first
        measurement.
        """
        self._line: Connection | None = None
        self._turn = threading.Lock()
        """Held while the connection `_line` is used."""
        self._ended = False
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def may_act(self) -> bool:
        """Return whether this controller leads, and may send orders and begin commits."""
        return self._clock() < self._acts_until

    def begin(self) -> None:
        """Start the thread that reports this controller to the database, and renews the lease while it
        leads.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="leader-lease", daemon=True)
            self._thread.start()

    def report_soon(self) -> None:
        """Renew the lease and report now, without waiting for the end of the pause."""
        self._soon.set()

    def leader(self) -> LeaderRow | None:
        """Return the row of the leader; None if no controller has ever led. Raise DBAPIError if
        the database does not answer.
        """
        return self._use(rows.read)

    def take(self) -> bool:
        """Become the leader if no other controller leads. Return whether this controller leads now. Raise
        DBAPIError if the database does not answer.
        """
        return self._use(self._take)

    def prove(self, transaction: Connection) -> bool:
        """Return whether the epoch of this controller is still the newest. Call this first in the
        transaction.
        """
        return rows.prove(transaction, self.holder, self.epoch, self._lease_s / 2)

    def keep(self) -> bool:
        """Renew the lease after a failure. Return False if another controller has led since, even if that
        controller no longer leads: the state of this controller is then outdated. Raise DBAPIError if the
        database does not answer.
        """
        return self._use(self._keep)

    def time_s(self) -> float:
        """Return the present time of the database server in seconds since 1970: the time that was measured
        last, plus the seconds since then. A wrong or changed system time of this host has no effect.
        """
        server_s, measured_at = self._measured or (time.time(), self._clock())
        return server_s + self._clock() - measured_at

    def stop_acting(self) -> None:
        """Make `may_act` false until `take` or `keep` has succeeded again."""
        self._acts_until = float("-inf")

    def give_up(self) -> None:
        """End the lease after a failed take-over, so that this or another controller can become the leader.
        If the database does not answer, the lease is not renewed and ends by itself.
        """
        self.stop_acting()
        with suppress(DBAPIError):
            self._use(lambda line: rows.release(line, self.holder, self.epoch))

    def close(self) -> None:
        """End the thread. If this controller leads, end its lease, so that another controller can lead at
        once.
        """
        if self._ended:
            return
        self._ended = True
        self._soon.set()
        self.stop_acting()
        if self._thread is not None:
            self._thread.join()
        with suppress(DBAPIError):
            if self.epoch:
                self._use(lambda line: rows.release(line, self.holder, self.epoch))
            self._use(lambda line: rows.forget(line, self.holder))
        with self._turn:
            self._drop()
        self._engine.dispose()

    def _keep(self, line: Connection) -> bool:
        began = self._clock()
        kept = rows.renew(line, self.holder, self.epoch, self.address, self._lease_s)
        if kept:
            self._acts_until = began + self._lease_s * 2 / 3
        return kept

    def _take(self, line: Connection) -> bool:
        self._measure(line)
        if self.epoch and self._keep(line):
            return True
        leads = rows.read(line)
        if leads is not None and leads.holder == self.holder and not self.epoch:
            # This process has the lease but no epoch, because the answer to an earlier take() was lost.
            self.epoch = leads.epoch
            return self._take(line)
        ended = leads.holder if leads is not None and has_ended(leads.holder) else ""
        if leads is not None and leads.left_s > 0 and not ended:
            return False
        former = rows.former_version(line)
        if former:
            log.error("a controller of an earlier version (%s) uses the database; stop it", former)
            return False
        if leads is not None and leads.holder:
            rows.end_sessions(line, leads.holder)
        began = self._clock()
        epoch = rows.take(line, self.holder, self.address, self._lease_s, ended)
        if epoch is None:
            return False
        self.epoch = epoch
        self.accepted = leads.accepted if leads is not None else ""
        self._acts_until = began + self._lease_s * 2 / 3
        return True

    def _run(self) -> None:
        pause = 0.0
        while not self._ended:
            self._soon.wait(pause)
            self._soon.clear()
            pause = self._renew_s
            try:
                self._use(self._renew)
            except DBAPIError as error:
                log.warning("the lease cannot be renewed: %s", str(error.orig).partition("\n")[0])
                pause = min(RETRY_S, self._renew_s)

    def _renew(self, line: Connection) -> None:
        began = self._clock()
        # Do not renew after stop_acting(), because this controller must first load its state again.
        if self.epoch and self._acts_until > float("-inf"):
            if rows.renew(line, self.holder, self.epoch, self.address, self._lease_s):
                if self._acts_until > float("-inf"):
                    self._acts_until = began + self._lease_s * 2 / 3
            else:
                self.stop_acting()
        self._measure(line)
        rows.report(line, self.holder, self.address, VERSION, self.seq)

    def _measure(self, line: Connection) -> None:
        """Measure the clock of the database server. Ignore a slow answer if the clock is known."""
        before = self._clock()
        server_s = rows.clock_s(line)
        after = self._clock()
        if self._measured is None or after - before < SLOW_S:
            self._measured = server_s, (before + after) / 2

    def _use(self, work: Callable[[Connection], T]) -> T:
        """Call `work` with the connection of the lease. If the connection has been lost since the last call,
        call `work` once more with a new connection.
        """
        with self._turn:
            kept = self._line is not None
            try:
                return self._once(work)
            except DBAPIError as error:
                if not kept or not error.connection_invalidated:
                    raise
                return self._once(work)

    def _once(self, work: Callable[[Connection], T]) -> T:
        try:
            if self._line is None:
                self._line = self._engine.connect()
            return work(self._line)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.invalidate()
            line.close()
