"""Which messages the events of a commit cause: rules, owners, digests, quiet hours, limits, mail of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from controller.config import load_text
from controller.core.model.inputs import agent_inputs, controller_inputs, policy_inputs
from controller.core.model.rows import NoteRow
from controller.notify.messages import Message
from controller.notify.notifier import Notifier
from controller.notify.rules import NotifyRules
from controller.store.usage import UsageSum
from tests.engine_harness import EngineHarness, spec
from wire.cluster.quota import Limits, Quota
from wire.notify import NotifySettings

SINKS = """
[notify.sinks.mail]
kind = "smtp"
host = "localhost"
sender = "corral@example.org"
domain = "example.org"
max_per_hour = 3
[notify.sinks.ops]
kind = "webhook"
url = "http://localhost/"
[notify.rules.failed]
when = ["mine.failed", "mine.ended"]
sink = "mail"
"""
MONDAY_NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


class Commits:
    """An engine whose events are passed to a notifier, as the controller does in each commit."""

    def __init__(self, text: str = SINKS, **limits: object) -> None:
        self.harness = EngineHarness(**limits) if limits else EngineHarness()
        self.harness.now = MONDAY_NOON
        self.harness.join("n1", gpus=8)
        self.written: list[NoteRow] = []
        self.weeks: dict[str, list[UsageSum]] = {}
        self.notifier = Notifier(
            load_text(text, "scheduler.toml"),
            "store",
            lambda: self.harness.now,
            self.write,
            lambda: self.harness.state,
            self.week_of,
        )
        self._seen = len(self.harness.events)
        self.rows: list[NoteRow] = []

    async def write(self, rows: Sequence[NoteRow]) -> None:
        """Keep the rows in memory, because these tests need no database."""
        self.written += rows

    async def week_of(self, since: float, until: float, user: str) -> list[UsageSum]:
        """Return the usage that the test has set: of all users, or of the jobs of one user."""
        assert until - since == 7 * 86_400
        return self.weeks[user]

    def commit(self) -> list[Message]:
        """Commit the events since the last call, and return their messages."""
        events, before = self.harness.events[self._seen :], {*self.notifier.outbox.waiting}
        self.rows = self.notifier.prepare(self.harness.state, self._seen, events)
        self._seen += len(events)
        self.notifier.committed()
        return [each for name, each in self.notifier.outbox.waiting.items() if name not in before]

    def fail(self, *, user: str = "ada", **more: object) -> None:
        """Run a job that fails."""
        job = self.harness.submit(spec(1, **more), user)
        self.harness.tick()
        self.harness.start(job)
        self.harness.exit(job, 3)


def test_the_owner_gets_one_notice_of_a_failed_job_in_the_row_of_the_commit() -> None:
    commits = Commits()
    commits.fail()
    [message] = commits.commit()
    assert (message.sink, message.to, message.user) == ("mail", "ada@example.org", "ada")
    assert message.words == ("mine.failed",)
    [row] = commits.rows
    assert (row.kind, row.name) == ("outbox", message.id)
    again = Commits()
    again.notifier.load([row])
    assert again.notifier.outbox.waiting == {message.id: message}


def test_a_failed_commit_sends_nothing() -> None:
    commits = Commits()
    commits.fail()
    assert commits.notifier.prepare(commits.harness.state, 1, commits.harness.events)
    commits.notifier.load([])
    commits.notifier.committed()
    assert not commits.notifier.outbox.waiting


@pytest.mark.parametrize(
    ("filters", "user", "matches"),
    [
        ('users = ["ada"]', "ada", True),
        ('users = ["ben"]', "ada", False),
        ('projects = ["default"]', "ada", True),
        ('projects = ["vision"]', "ada", False),
        ('queues = ["night"]', "ada", False),
    ],
)
def test_filters_of_a_rule(filters: str, user: str, matches: bool) -> None:
    commits = Commits(f"{SINKS}{filters}\n")
    commits.fail(user=user)
    assert bool(commits.commit()) is matches


def test_notices_above_the_limit_of_an_hour_come_together_at_its_end() -> None:
    commits = Commits()
    for _ in range(5):
        commits.fail()
        commits.commit()
    outbox, now = commits.notifier.outbox, commits.harness.now
    for _ in range(3):
        message = outbox.take("mail", now)
        assert message is not None
        outbox.delivered(message)
    assert outbox.take("mail", now) is None
    due = outbox.next_due("mail")
    assert due == MONDAY_NOON + 3_600
    joined = outbox.take("mail", due)
    assert joined is not None
    assert [each.job for each in joined.notices] == ["4", "5"]
    assert [*outbox.waiting] == [joined.id]


def test_messages_wait_in_quiet_hours_unless_the_rule_is_urgent() -> None:
    for urgent, wait_s in (("false", 2 * 3_600), ("true", 0)):
        commits = Commits(f'[notify]\nquiet = ["11:00-14:00"]\n{SINKS}urgent = {urgent}\n')
        commits.fail()
        [message] = commits.commit()
        assert message.due == MONDAY_NOON + wait_s


@pytest.mark.parametrize(
    ("every", "due"),
    [
        ("1h", datetime(2026, 11, 16, 13, tzinfo=UTC)),
        ("1d", datetime(2026, 11, 17, 8, tzinfo=UTC)),
        ("weekly", datetime(2026, 11, 23, 8, tzinfo=UTC)),
    ],
)
def test_time_of_the_next_digest(every: str, due: datetime) -> None:
    rules = NotifyRules(load_text(SINKS, "scheduler.toml"))
    assert rules.next_digest(every, MONDAY_NOON) == due.timestamp()
    assert rules.next_digest(every, due.timestamp()) > due.timestamp()


async def test_settings_of_a_user_have_their_own_address() -> None:
    commits = Commits()
    await commits.notifier.set_settings("ada", NotifySettings(("mine.started",), "ada@home.example"))
    commits.fail()
    started, failed = commits.commit()[0].notices
    assert (started.word, failed.word) == ("mine.started", "mine.failed")
    assert {each.to for each in commits.notifier.outbox.waiting.values()} == {"ada@home.example"}
    commits.fail(user="ben")
    assert [each.to for each in commits.commit()] == ["ben@example.org"]


def test_mail_of_an_array_comes_once_for_all_elements() -> None:
    commits = Commits(SINKS.partition("[notify.rules")[0])
    harness = commits.harness
    mail = {"mail_user": "boss@example.org", "mail_types": ("BEGIN", "END", "FAIL")}
    harness.submit(spec(1, array="0-2", **mail))
    harness.tick()
    [begun] = commits.commit()
    assert [each.job for each in begun.notices] == ["1_0"]
    for job, code in ((1, 0), (3, 5), (2, 0)):
        harness.now += 1
        harness.start(job)
        harness.exit(job, code)
    [ended] = commits.commit()
    assert (ended.to, [each.job for each in ended.notices]) == ("boss@example.org", ["1_1"])
    harness.submit(spec(1, array="0-2", mail_types=("BEGIN", "ARRAY_TASKS")))
    harness.tick()
    [each] = commits.commit()
    assert (each.to, len(each.notices)) == ("ada@example.org", 3)


def test_one_notice_for_each_step_of_a_quota() -> None:
    commits = Commits(f'{SINKS}[notify.rules.quota]\nwhen = ["quota.80", "quota.100"]\nsink = "ops"\n')
    harness = commits.harness
    harness.tell(policy_inputs.SetQuota("project", "default", Quota(Limits(gpus=5)), "root"))
    found = []
    for _ in range(5):
        job = harness.submit(spec(1))
        harness.tick()
        harness.start(job)
        found.append([each.notices[0].word for each in commits.commit()])
    assert found == [[], [], [], ["quota.80"], ["quota.100"]]
    stored = [row for row in commits.rows if row.kind == "notify-quota"]
    assert [row.body for row in stored] == ["100"]

    # At 4 of 5 again there is no further notice, also after a restart; below 60 % the notices begin again.
    commits.notifier.load(stored)
    harness.exit(5)
    harness.submit(spec(1))
    harness.tick()
    assert not [each for each in commits.commit() if each.sink == "ops"]
    for job in (1, 2, 3, 4):
        harness.exit(job)
    harness.submit(spec(4))
    assert not [each for each in commits.commit() if each.sink == "ops"]
    harness.tick()
    assert [each.notices[0].word for each in commits.commit() if each.sink == "ops"] == ["quota.100"]


def test_a_full_outbox_drops_and_counts() -> None:
    commits = Commits(f"[notify]\nmax_waiting = 1\n{SINKS}")
    for _ in range(3):
        commits.fail()
        commits.commit()
    assert (len(commits.notifier.outbox.waiting), commits.notifier.dropped) == (1, 2)


def test_a_notice_of_a_failed_job_has_the_remedy_of_its_failure_class() -> None:
    commits = Commits()
    harness = commits.harness
    job = harness.submit(spec(1, name="{x}"))
    harness.tick()
    harness.start(job)
    harness.exit(job, 1, failure="gpu_out_of_memory")
    [message] = commits.commit()
    [notice] = message.notices
    assert notice.text == (
        "Job 1 ({x}) failed on n1 after 0s: its program ended with exit code 1. By its output, a GPU had too "
        "little memory."
    )
    assert notice.next_step.startswith("Use a smaller batch")
    assert notice.next_step.endswith("See more: corral logs 1")


def test_a_restart_of_the_controller_is_no_loss_of_nodes() -> None:
    commits = Commits(f'{SINKS}[notify.rules.nodes]\nwhen = ["node.away"]\nsink = "ops"\n')
    commits.harness.tell(controller_inputs.ControllerStarted(("n1",)))
    assert commits.commit() == []
    commits.harness.join("n1", gpus=8)
    commits.harness.tell(agent_inputs.LinkWentDown("n1", "connection reset"))
    [message] = commits.commit()
    assert message.subject == "node n1 is away"
