"""A standby server of PostgreSQL that lags behind is promoted under load, and the loss is accepted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from controller.store.maintenance.accepted_loss import accept_loss
from tests.limits import PATIENCE_S
from tests.oracle.oracle import Oracle
from tests.oracle.verdict import Broken
from tests.several_controllers import SeveralControllers, several_controllers
from tests.takeovers.audit import audited
from tests.takeovers.faults import Takeovers
from tests.takeovers.servers import with_standby

BEHIND = 100
"""The least number of journal entries that the promoted server lacks."""
RUN_AGAIN = re.compile(r"job \d+ succeeded in attempt \d+, and yet there is job \d+ attempt (\d+) ")


@dataclass(frozen=True)
class Promoted:
    """The outcome: the verdict, the number of lost entries and jobs, and the seconds from the first start
    after the accepted loss until a controller leads.
    """

    oracle: Oracle
    broken: list[Broken]
    stale: list[Broken]
    entries: int
    lost: int
    seconds: float


def promote(seed: int, nodes: Sequence[str], prepare: Callable[[SeveralControllers], None]) -> Promoted:
    """Run a cluster under load through these steps, let it finish, and verify it.

    1. The standby server receives nothing more, and the cluster writes BEHIND journal entries.
    2. The primary server is killed, and the standby server promoted. No controller may lead or acknowledge
       anything, and a controller that is started again must refuse the database.
    3. The loss is accepted. A controller leads, and the load goes on.
    """
    with with_standby() as server, several_controllers(server.new_database(), nodes) as system:
        prepare(system)
        oracle = Oracle(system.start())
        broken: list[Broken] = []
        with audited(system.store_url) as stale:
            takeovers = Takeovers(oracle, seed)
            with takeovers.load():
                system.until(lambda: len(oracle.ids) >= BEHIND // 10, "some jobs are acknowledged")
                system.until(server.receives, "the standby server receives the journal")
                server.lag()
                system.until(lambda: not server.receives(), "the standby server lags")
                begin = _last_entry(system.store_url)
                system.until(lambda: _last_entry(system.store_url) >= begin + BEHIND, "entries to lose")
            wrong = stale()
            # Only the load has ended: jobs still run when the server changes.
            written = _last_entry(system.store_url)
            server.promote()
        url = system.store_url.replace(f"host={server.directory}", f"host={server.standby}")
        system.move_database(url)
        broken += _refused(system, oracle)
        kept = _jobs(url)
        entries = written - _last_entry(url)
        accept_loss(url)
        lost = [job for job in oracle.ids if job not in kept]
        began = time.monotonic()
        system.begin()
        system.leader()
        seconds = time.monotonic() - began
        system.until(lambda: all(map(system.answers, system.members)), "all answer")
        with takeovers.load():
            more = len(oracle.ids) + 10
            system.until(lambda: len(oracle.ids) >= more, "jobs are acknowledged after the loss")
        given = oracle.ids
        broken += [Broken("A", f"id {job} was given again") for job in {*given} if given.count(job) > 1]
        oracle.acknowledged = [each for each in oracle.acknowledged if each[0] not in lost]
        broken += [each for each in oracle.verify() if not _is_accepted(each)]
        return Promoted(oracle, broken, wrong, entries, len(lost), seconds)


def _refused(system: SeveralControllers, oracle: Oracle) -> list[Broken]:
    """Wait until no controller runs, and start each once more. Return what was wrong."""
    before = len(oracle.ids)
    broken = []
    for again in (False, True):
        if again:
            system.begin()
        for member in system.members:
            assert member.process is not None
            if member.process.wait(PATIENCE_S) == 0:
                broken.append(Broken("A", f"{member.name} did not refuse the database"))
            log = member.log.read_text(errors="replace")
            # At first a controller may end because the other one has led for a moment before it refused.
            if again and not re.search("went back in time|no longer contains entry", log):
                broken.append(Broken("A", f"{member.name} does not say that entries are lost: {log[-500:]}"))
    if len(oracle.ids) != before:
        broken.append(Broken("A", "a job was acknowledged before the loss was accepted"))
    return broken


def _is_accepted(each: Broken) -> bool:
    """Whether a broken guarantee follows from the accepted loss: a job whose success was lost runs again."""
    again = RUN_AGAIN.search(each.how)
    return each.promise == "C" and again is not None and int(again[1]) > 1_000


def _last_entry(url: str) -> int:
    return _number(url, "SELECT coalesce(max(seq), 0) FROM journal")[0]


def _jobs(url: str) -> set[int]:
    return {*_number(url, "SELECT id FROM jobs")}


def _number(url: str, query: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query.encode())]
