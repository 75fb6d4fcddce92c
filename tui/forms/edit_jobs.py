"""The form that changes jobs: priority, time limit, queue, project, begin time and name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tui.forms.form import Field, Form, FormContents, Typed, changed, read_fields
from wire import amounts
from wire.api.forecasts import JobEdit, WhatIf
from wire.api.jobs import JobsAnswer, JobsOrder, JobView
from wire.names import PRIORITIES, priority_name
from wire.text import counted, duration, printable


def edit_jobs(jobs: Sequence[JobView], clock: Callable[[], float]) -> Form[dict[str, object], JobsAnswer]:
    """Return the form that changes these jobs. A field shows its present value if all jobs have the same
    value, and is otherwise empty; the field for the begin time is always empty. Only fields that the user
    changes are sent. `clock` returns the time of the controller.
    """
    fields = (
        Field(
            "priority",
            "priority",
            "--priority",
            ", ".join(PRIORITIES).lower() + ", or 0 to 100",
            amounts.priority,
            _common([priority_name(job.priority).lower() for job in jobs]),
            picks="priority",
        ),
        Field(
            "time",
            "time_limit_s",
            "--time",
            "such as 2h30m",
            amounts.seconds,
            _common(["" if job.time_limit_s is None else duration(job.time_limit_s) for job in jobs]),
        ),
        Field("queue", "queue", "--queue", "", str, _common([job.queue for job in jobs]), picks="queue"),
        Field(
            "project",
            "project",
            "--project",
            "",
            str,
            _common([job.project for job in jobs]),
            picks="project",
        ),
        Field(
            "begin",
            "begin_at",
            "--begin",
            "not before: 18:00, 2h, 2030-05-01T08:00",
            lambda text: amounts.moment_or_delay(text, clock()),
        ),
        Field("name", "name", "--name", "", str, _common([job.name for job in jobs])),
    )
    labels = [job.label for job in jobs]

    def read(typed: Typed) -> FormContents[dict[str, object]]:
        texts = {field: text for field, text in changed(fields, typed).items() if text != "none"}
        values, wrong = read_fields(texts)
        return FormContents(values or None, wrong)

    def command(typed: Typed) -> str:
        flags = [
            flag
            for field, text in changed(fields, typed).items()
            if text != "none"
            for flag in field.flags(text)
        ]
        return " ".join(["corral job set", *(printable(label) for label in labels), *(flags or ["…"])])

    one = printable(f"{jobs[0].label} {jobs[0].name}", 40)
    return Form(
        f"Change {one if len(jobs) == 1 else counted(len(jobs), 'job')}",
        "Change",
        fields,
        read,
        command,
        lambda client, changes: client.order(JobsOrder("set", tuple(labels), changes=changes)),
        lambda changes: WhatIf(edit=tuple(JobEdit(job.id, changes) for job in jobs)),
    )


def _common(texts: Sequence[str]) -> str:
    """Return the text if all texts are equal; otherwise an empty text."""
    return texts[0] if len(set(texts)) == 1 else ""
