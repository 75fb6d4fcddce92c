"""Options for the name of a job, its project, queue and priority, and for mail about the job."""

from __future__ import annotations

from cli.spec.submit_options import value_texts
from cli.spec.submit_options.job_option import SUM, SWITCH, JobOption
from wire import amounts
from wire.job.mail import mail_types
from wire.names import priority_name

ROWS: tuple[JobOption, ...] = (
    JobOption("name", "Name of the job. Default: the name of the program or script.", metavar="NAME"),
    JobOption(
        "project", "Project that the job is billed to. Default: the project 'default'.", metavar="NAME"
    ),
    JobOption("queue", "Queue that the job waits in. Default: the queue 'default'.", metavar="NAME"),
    JobOption(
        "reservation",
        "Reservation of nodes, from the list of 'corral reserve list'. The job runs only on the nodes of "
        "this reservation, and starts only while the reservation is active.",
        metavar="NAME",
        title="reservation",
    ),
    JobOption(
        "profile",
        "Scheduler profile of the job, from the list of 'corral profiles'. Default: the first "
        "profile that accepts the job's user, project or queue.",
        metavar="NAME",
        title="profile",
    ),
    JobOption(
        "priority",
        "Priority class (CRITICAL, HIGH, NORMAL, LOW, BATCH or SCAVENGER), or a number from 0 (lowest) "
        "to 100. Default: NORMAL.",
        metavar="CLASS",
        read=amounts.priority,
        show=lambda value: [priority_name(value)],
    ),
    JobOption(
        "label",
        "Label of the job. The options --near, --apart and --over of other jobs select jobs by label. "
        "May be repeated.",
        "labels",
        metavar="KEY=VALUE",
        read=amounts.pair,
        title="labels",
        **SUM,
    ),
    JobOption(
        "comment",
        "Note about the job, shown by 'corral job show'.",
        "comment",
        metavar="TEXT",
        title="comment",
    ),
    JobOption(
        "mail_user",
        "Address for mail about the job. Default: the user that submits the job.",
        metavar="ADDRESS",
        title="mail to",
    ),
    JobOption(
        "mail_type",
        "Events about which mail is sent, separated by commas: BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, "
        "TIME_LIMIT_90, TIME_LIMIT_80, TIME_LIMIT_50, INVALID_DEPEND, ARRAY_TASKS, ALL or NONE. "
        "Default: NONE.",
        "mail_types",
        metavar="EVENTS",
        read=mail_types,
        show=value_texts.commas,
        title="mail",
    ),
    JobOption("hold", "Hold the job, so that it does not start before 'corral job release'.", **SWITCH),
)
