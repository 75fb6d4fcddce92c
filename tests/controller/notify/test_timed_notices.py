"""Notices that a time causes: parts of the time limit that a job has used, and the efficiency of a week."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.core.model.inputs import job_inputs
from controller.core.model.rows import NoteRow
from controller.notify.limit_mails import LIMIT_NOTE
from controller.notify.messages import Message
from controller.notify.weekly_efficiency import WEEKLY_NOTE
from controller.store.errors import StoreUnavailable
from controller.store.usage import UsageSum
from tests.controller.notify.test_notifier import MONDAY_NOON, SINKS, Commits
from tests.engine_harness import spec
from wire.notify import NotifySettings

HOUR = 3_600.0
WEEK = 7 * 24 * HOUR
ALL_PARTS = ("TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90")


class Timed(Commits):
    """An engine with a notifier that also sends what is due."""

    def run_job(self, *mail_types: str, **more: object) -> int:
        job = self.harness.submit(spec(1, time_limit_s=HOUR, mail_types=mail_types, **more))
        self.harness.tick()
        self.harness.start(job)
        self.commit()
        return job

    async def due_at(self, at: float) -> list[str]:
        """Return the subjects of the messages that are sent at this time."""
        self.harness.now = at
        before = {*self.notifier.outbox.waiting}
        await self.notifier.send_due()
        return [each.subject for name, each in self.notifier.outbox.waiting.items() if name not in before]

    def restarted(self) -> Timed:
        """The same engine with a new notifier, which has read the rows that were written."""
        again = Timed()
        again.harness, again._seen = self.harness, self._seen
        last = {(row.kind, row.name): row for row in [*self.written, *self.rows] if row.kind != "outbox"}
        again.notifier.load(last.values())
        return again


async def test_mail_comes_when_a_job_has_used_a_part_of_its_time_limit() -> None:
    timed = Timed()
    timed.run_job(*ALL_PARTS)
    start = timed.harness.now
    assert await timed.due_at(start + 0.49 * HOUR) == []
    assert await timed.due_at(start + 0.5 * HOUR) == ["job 1 has used 50 % of its time limit"]
    assert await timed.due_at(start + 0.79 * HOUR) == []
    again = timed.restarted()
    assert await again.due_at(start + 0.79 * HOUR) == [], "a restart repeats no mail"
    assert await again.due_at(start + 0.95 * HOUR) == ["job 1 has used 90 % of its time limit"]
    [message] = again.notifier.outbox.waiting.values()
    assert (message.sink, message.to) == ("mail", "ada@example.org")
    assert "; 3m00s are left. Ask for more time: corral job set 1 --time TIME" in _text(message)
    again.harness.exit(1)
    again.commit()
    assert NoteRow(LIMIT_NOTE, "1", None) in again.rows


async def test_parts_move_with_the_limit_and_begin_again_with_an_attempt() -> None:
    timed = Timed()
    job = timed.run_job("TIME_LIMIT_90")
    start = timed.harness.now
    timed.harness.tell(job_inputs.Edit(job, "root", {"time_limit_s": 2 * HOUR}))
    timed.commit()
    assert await timed.due_at(start + 0.9 * HOUR) == []
    assert len(await timed.due_at(start + 1.8 * HOUR)) == 1
    timed.harness.tell(job_inputs.Requeue(job, "ada"))
    timed.harness.exit(job, None, signal=15, why="requeued")
    timed.harness.tick()
    timed.harness.start(job)
    timed.commit()
    assert await timed.due_at(timed.harness.now + 1.7 * HOUR) == []
    assert len(await timed.due_at(timed.harness.now + 0.2 * HOUR)) == 1


async def test_an_array_gets_one_mail_for_each_part() -> None:
    for types, count in ((("TIME_LIMIT_50",), 1), (("TIME_LIMIT_50", "ARRAY_TASKS"), 3)):
        timed = Timed()
        first = timed.run_job(*types, array="0-2")
        for other in (first + 1, first + 2):
            timed.harness.start(other)
        timed.commit()
        sent = await timed.due_at(timed.harness.now + 0.6 * HOUR)
        assert len(sent) == 1, "one message to one address"
        [message] = timed.notifier.outbox.waiting.values()
        assert len(message.notices) == count
        deleted = []
        for element in range(first, first + 3):
            timed.harness.exit(element)
            timed.commit()
            deleted += [row.name for row in timed.rows if row.kind == LIMIT_NOTE and row.body is None]
        assert len(deleted) == count


async def test_a_mail_that_cannot_be_written_is_sent_later() -> None:
    timed = Timed()
    timed.run_job("TIME_LIMIT_50")
    start, write = timed.harness.now, timed.notifier._write

    async def fail(_rows: Sequence[NoteRow]) -> None:
        raise StoreUnavailable("the disk is full", "free space")

    timed.notifier._write = fail
    with pytest.raises(StoreUnavailable):
        await timed.due_at(start + 0.6 * HOUR)
    timed.notifier._write = write
    assert len(await timed.due_at(start + 0.6 * HOUR)) == 1


async def test_each_user_gets_a_notice_about_the_last_week_on_monday() -> None:
    timed = Timed(SINKS + '[notify.rules.weekly]\nwhen = ["efficiency"]\nsink = "mail"\n')
    timed.weeks[""] = [usage("ada", 3, 100.0, 40.0), usage("ben", 1, 8.0, 8.0)]
    timed.weeks["ada"] = [usage("7", 1, 60.0, 59.99), usage("8_1", 1, 40.0, 1.0)]
    timed.weeks["ben"] = [usage("9", 1, 8.0, 8.0)]
    assert await timed.due_at(MONDAY_NOON) == [], "the first week is not over"
    assert await timed.due_at(MONDAY_NOON + WEEK - 5 * HOUR) == []
    again = timed.restarted()
    again.notifier.reconfigure(timed.notifier._config)
    again.weeks = timed.weeks
    assert len(await again.due_at(MONDAY_NOON + WEEK)) == 2, "late, and not left out"
    assert NoteRow(WEEKLY_NOTE, "last", repr(MONDAY_NOON + WEEK - 4 * HOUR)) in again.written
    assert await again.due_at(MONDAY_NOON + WEEK) == []
    ada, ben = again.notifier.outbox.waiting.values()
    assert (ada.to, ben.to) == ("ada@example.org", "ben@example.org")
    assert (
        "In the last 7 days 3 jobs of yours held 100.0 GPU-hours. The GPUs were busy for 40 % of the "
        "measured time; 60.0 GPU-hours were idle. They used 2.0 of 10.0 allocated CPU-hours (20 %). Jobs "
        "with the most idle GPU-hours: 8_1 (39.0)."
    ) in _text(ada)
    assert "corral job stats 8_1" in _text(ada)
    assert "idle GPU-hours:" not in _text(ben)


async def test_a_user_may_ask_for_the_weekly_notice() -> None:
    timed = Timed()
    timed.weeks[""], timed.weeks["ada"] = [usage("ada", 1, 5.0, 1.0), usage("ben", 1, 5.0, 1.0)], []
    timed.weeks["ben"] = []
    await timed.notifier.set_settings("ada", NotifySettings(("efficiency",), mail="a@example.org"))
    assert await timed.due_at(MONDAY_NOON) == []
    assert len(await timed.due_at(MONDAY_NOON + WEEK)) == 1
    assert [each.to for each in timed.notifier.outbox.waiting.values()] == ["a@example.org"]


def usage(name: str, jobs: int, gpu_h: float, busy_h: float) -> UsageSum:
    return UsageSum(
        name, jobs, gpu_h * HOUR, gpu_h * HOUR, busy_h * HOUR, 0.0, 2 * HOUR, 10 * HOUR, 0.0, 90, 1, 1
    )


def _text(message: Message) -> str:
    return " ".join(f"{each.text} {each.next_step}" for each in message.notices)
