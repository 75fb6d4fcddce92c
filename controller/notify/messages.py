"""Notices and messages. A notice is a sentence about one event. A message contains the notices of one
delivery to one recipient.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTE = "outbox"
"""The `kind` column of the database rows of messages."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence about something that has happened, and the next step for the reader.

    `word` is the kind of the notice, such as mine.failed (see wire.notify.WORDS). The fields `job`, `user`,
    `project`, `queue` and `node` name what the notice is about. A field is empty if the notice is not about
    such an object.
    """

    word: str
    at: float
    subject: str
    text: str
    next_step: str = ""
    """A sentence with the command that shows more."""
    job: str = ""
    """The display id of a job, such as 7 or 12_3."""
    user: str = ""
    project: str = ""
    queue: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One or more notices for one recipient. A message is a row of the database until its delivery."""

    id: str
    sink: str
    notices: tuple[Notice, ...]
    made_at: float
    due: float
    """The message is not sent before this time, in seconds since 1970."""
    to: str = ""
    """The mail address or topic of the recipient. Empty for a sink that sends all messages to the
    same place.
    """
    user: str = ""
    """The user that gets the message; empty if the recipient is not a user."""
    bundle: str = ""
    """The name of the bundle of this message. All due messages of one bundle are joined into one message.
    Empty: the message is sent alone.
    """
    more: int = 0
    """The number of notices that were left out, because the message had too many."""
    tries: int = 0
    error: str = ""
    """The reason why the last try to deliver the message failed; empty if no try failed."""
    dead: bool = False
    """True if the controller no longer tries to deliver the message."""

    @property
    def subject(self) -> str:
        """Return the subject line. For one notice it is the subject of this notice. For several it is the
        number of notices and the subject of the first.
        """
        if len(self.notices) == 1 and not self.more:
            return self.notices[0].subject
        return f"{len(self.notices) + self.more} notices, the first: {self.notices[0].subject}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the kinds (such as mine.failed) of the notices, each kind once."""
        return tuple(dict.fromkeys(each.word for each in self.notices))


def text_of(message: Message, link: str = "") -> str:
    """Return the message as plain text: a paragraph for each notice, with its next step.

    `link` is the address of a web page about a job, in which {job} stands for the job's display id (17 or
    12_3). Empty: no link.
    """
    parts = []
    for notice in message.notices:
        lines = [notice.text]
        if notice.next_step:
            lines.append(notice.next_step)
        if link and notice.job:
            lines.append(link.replace("{job}", notice.job))
        parts.append("\n".join(lines))
    if message.more:
        parts.append(f"{message.more} more notices are left out. See them with: corral events")
    return "\n\n".join(parts) + "\n"
