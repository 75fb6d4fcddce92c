"""API bodies for notifications, and the words that rules and users write for the kinds of notices."""

from __future__ import annotations

from typing import Final, Mapping

from wire.dataclass import dataclass

JOB_WORDS: Final[Mapping[str, str]] = {
    "mine.started": "a job was placed on its nodes and starts there",
    "mine.ended": "a job has ended: completed, failed or cancelled",
    "mine.failed": "a job has failed",
    "mine.requeued": "a job has left its nodes and waits in the queue again",
    "mine.preempted": "a job was preempted by another job",
    "mine.warned": "a job will be stopped soon, at its time limit or because of a drain",
    "mine.unhealthy": "the health checks of a job fail",
    "mine.dependency": "a dependency of a job can never be met",
    "idle": "all GPUs of a job are idle",
    "wait.long": "a job has waited much longer than usual",
    "deadline.at-risk": "a job is expected to miss its deadline",
    "efficiency": "every Monday: what the jobs of a user requested in the last week, and what they used",
}
"""The kinds of notices about a job, each with its words. A rule sends such a notice to the user of the job,
unless the rule has other recipients. Users may also choose kinds for their own jobs.
"""

CLUSTER_WORDS: Final[Mapping[str, str]] = {
    "gpu.out": "a GPU gets no more jobs: suspect, cordoned or lost",
    "node.away": "the connection to the agent of a node is lost",
    "node.down": "a node has not reported for too long and counts as down",
    "service.unhealthy": "a replica of a service has become unhealthy",
    "quota.80": "a user, project or queue uses 80 % of a hard limit",
    "quota.100": "a user, project or queue uses the whole of a hard limit",
    "budget.80": "a project has used 80 % of its budget for the month",
    "budget.100": "a project has used its whole budget for the month",
    "cycle.slow": "a scheduling cycle took longer than [notify] slow_cycle_s",
    "plugin.failed": "a plugin has failed",
    "off-queue": "a user uses a GPU without a job",
}
"""The kinds of notices about the cluster, each with its words. Operators get these notices."""

WORDS: Final[Mapping[str, str]] = {**JOB_WORDS, **CLUSTER_WORDS}

DIGESTS: Final = ("1h", "1d", "weekly")
"""How often a digest is sent: every full hour, every day, or every Monday."""


@dataclass(frozen=True)
class SinkView:
    """A sink: a service that delivers messages, such as a mail server. `target` is the host of the service,
    without path and secrets.

    `delivered` and `failed` count deliveries since the start of the controller.
    """

    name: str
    kind: str
    target: str
    waiting: int
    dead: int
    delivered: int
    failed: int
    problem: str = ""
    """The reason why the last delivery failed; empty after a successful delivery."""


@dataclass(frozen=True)
class RuleView:
    """A rule: the notices that a sink gets. `to` has the recipients. If `to` is empty, notices about a job go
    to the user of the job, and all others to the address in the settings of the sink.
    """

    name: str
    when: tuple[str, ...]
    sink: str
    to: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    every: str = ""
    quiet: tuple[str, ...] = ()
    urgent: bool = False


@dataclass(frozen=True)
class NotifyView:
    """The sinks and the rules of notifications."""

    sinks: tuple[SinkView, ...]
    rules: tuple[RuleView, ...]


@dataclass(frozen=True)
class NotifySettings:
    """The notices that a user wants, and where they are sent: to a mail address, to an ntfy topic, or to
    both.

    `when` has words of JOB_WORDS. `every` is the interval of digests, one of DIGESTS; if it is empty, each
    notice is sent at once. `quiet` is a time of day, such as "22:00-07:00", in which no message is sent.
    """

    when: tuple[str, ...] = ()
    mail: str = ""
    ntfy: str = ""
    every: str = ""
    quiet: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotifySettingsView:
    """The notice settings of the requesting user, and the sinks that deliver to this user."""

    user: str
    settings: NotifySettings
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True)
class MessageView:
    """A message in the outbox. It waits until the time `due` for its first delivery or for another try after
    a failure, or it is a dead letter (`dead`).
    """

    id: str
    sink: str
    to: str
    user: str
    words: tuple[str, ...]
    subject: str
    made_at: float
    due: float
    tries: int
    dead: bool
    error: str = ""


@dataclass(frozen=True)
class OutboxView:
    """Messages of the outbox, the oldest first, and the numbers of all waiting messages and of all dead
    letters.
    """

    messages: tuple[MessageView, ...]
    waiting: int
    dead: int
    at: float


@dataclass(frozen=True)
class SinkTest:
    """A request to send a test message to a sink. `to` is the recipient. If `to` is empty, the message goes
    to the user that sends the request, or, if the sink has no address of this user, to the address in the
    settings of the sink.
    """

    sink: str
    to: str = ""


@dataclass(frozen=True)
class SinkTestAnswer:
    """The result of a test message. `error` is empty if the sink accepted the message."""

    sink: str
    to: str
    id: str
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class RetryRequest:
    """A request to deliver messages of the outbox again now: the messages with these ids, or, with `all`, all
    dead letters and all messages that wait after a failure.
    """

    ids: tuple[str, ...] = ()
    all: bool = False


@dataclass(frozen=True)
class RetryAnswer:
    """The ids of the messages that are delivered again."""

    ids: tuple[str, ...]
