"""The mail address of a job, and the events of the job about which mail is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

MAIL_TYPES = (
    *("BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "STAGE_OUT", "ARRAY_TASKS"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50"),
)
"""The events that users may choose, by their names in Slurm's option --mail-type."""
ALL_TYPES = ("BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "STAGE_OUT")
"""The events for which the word ALL stands, as in Slurm."""
_LONGEST_ADDRESS = 320


def mail_types(text: str) -> tuple[str, ...]:
    """Return the events in a text such as `END,FAIL`. ALL stands for several events, and NONE for no event.
    Raise ValueError for an unknown event.
    """
    found: dict[str, None] = {}
    for word in text.upper().replace(" ", "").split(","):
        if word == "NONE":
            found.clear()
        elif word == "ALL":
            found.update(dict.fromkeys(ALL_TYPES))
        elif word in MAIL_TYPES:
            found[word] = None
        else:
            raise ValueError(f"{word!r} is not an event; write ALL, NONE or {', '.join(MAIL_TYPES)}")
    return tuple(found)


def mail_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the mail settings of a JobSpec. Yield each mistake as (field name, sentence for users)."""
    if len(spec.mail_user) > _LONGEST_ADDRESS or not spec.mail_user.isprintable():
        yield "mail_user", f"must be printable and at most {_LONGEST_ADDRESS} characters"
    wrong = [each for each in spec.mail_types if each not in MAIL_TYPES]
    if wrong or len(set(spec.mail_types)) < len(spec.mail_types):
        yield "mail_types", f"may name each of {', '.join(MAIL_TYPES)} once"
