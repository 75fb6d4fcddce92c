"""Decides which caller may do what. docs/access.md is generated from this module and the routes.

1. Each route declares the right that its caller needs (`Need`). A route cannot be built without one.
2. `controller/api/server/app.py` calls `refusal()` before reading the body of a request.
3. If the request is about one job, the rights also depend on the user of the job (`Owner`).
4. A read-only session has only the rights that change nothing (`Need.changes`), also if its user is an admin.

A caller with the role viewer can see jobs and never change them. A job of root or of the controller's user
runs with the rights of that user. An operator that edits such a job, or runs a command in such a job, would
get these rights. Therefore only an admin may do so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace

from controller.core.model.decision.decision import Refusal
from wire.cluster.hosts import HostSpec


class Role(enum.Enum):
    """The roles of callers, from the fewest rights to the most."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user that sent a request, and the user's role. `read_only` is True for a request of a read-only
    session: a request with the read token, or with the header `Corral-Scope: read`.
    """

    user: str
    role: Role
    read_only: bool = False

    @property
    def operates(self) -> bool:
        """Return whether the caller is an operator or an admin."""
        return self.role in (Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Owner:
    """The user of the job that a request is about. `privileged` is True if this user is root or the user that
    runs the controller."""

    user: str
    privileged: bool = False


class Who(enum.Enum):
    """The groups of callers to which a route can be restricted, such as all operators, or the user of the job
    in the URL.
    """

    ANYONE = "every role"
    SUBMITTER = "users, operators and admins"
    OWNER = "the job's user, operators and admins"
    OPERATOR = "operators and admins"
    ADMIN = "admins"
    OPENER = "the caller that opened the shell"


@dataclass(frozen=True, slots=True)
class Need:
    """The right that a route requires from its caller. `doing` is a verb such as "preempt" for the error
    message "only operators may preempt"."""

    who: Who
    doing: str = ""
    of_job: bool = False
    """True if the right depends on the job that the URL names."""
    changes: bool = True
    """True if the route changes something. A read-only session may not use the route."""


def _owner(doing: str, *, changes: bool = True) -> Need:
    return Need(Who.OWNER, doing, of_job=True, changes=changes)


def operator(doing: str, *, changes: bool = True) -> Need:
    """Return the right for a route that only operators and admins may use. `doing` is the verb for error
    messages."""
    return Need(Who.OPERATOR, doing, changes=changes)


def admin(doing: str, *, changes: bool = True) -> Need:
    """Return the right for a route that only admins may use. `doing` is the verb for error messages."""
    return Need(Who.ADMIN, doing, changes=changes)


ANYONE = Need(Who.ANYONE, changes=False)
SUBMIT = Need(Who.SUBMITTER, "submit")
PREVIEW = Need(Who.SUBMITTER, "submit", changes=False)
NOTIFY_ME = Need(Who.SUBMITTER, "have notifications sent")
CHANGE_JOBS = Need(Who.SUBMITTER, "change jobs")
"""The right for a request about many jobs. The handler also checks the caller's right for each of these
jobs.
"""
CANCEL, HOLD, RELEASE = _owner("cancel"), _owner("hold"), _owner("release")
SET = _owner("change")
REQUEUE = _owner("requeue")
RETRY = _owner("retry")
SIGNAL = _owner("send signals to")
CHECKPOINT = _owner("save checkpoints of")
KEEP = _owner("keep")
EXEC = _owner("run commands in")
READ_OUTPUT = _owner("read the output of", changes=False)
READ_SPEC = _owner("read the environment of", changes=False)
PREEMPT = Need(Who.OPERATOR, "preempt", of_job=True)
USE_SHELL = Need(Who.OPENER, "use shells")
"""The right to read from and write to a command of `corral exec`. Only the user that started the command has
this right. The handler checks this; to any other caller it answers that the command does not exist.
"""

OPERATORS = "Operators are root, the controller's own user, and [access] operators in scheduler.toml."
ADMINS = "Admins are root and the controller's own user."
SESSION = (
    "Use the token in <state_dir>/token, and no header 'Corral-Scope: read' (--read-only of corral tui)."
)

SCOPE_HEADER = "Corral-Scope"
SCOPES = ("read", "write")
"""The values of the header `Corral-Scope`. With `read`, the request may change nothing. The header can only
take rights away: `write` does not give a read token the right to change something.
"""

HOST_FIELDS = ("identity", "python", "spool", "scratch_dir", "run_as_self")
"""Host settings that only an admin may set: the SSH key, the Python program and the directories of the agent,
and whether jobs run as the agent's user.
"""


def in_scope(caller: Caller, scope: str) -> Caller | Refusal:
    """Return the caller with the rights that the header `Corral-Scope` of the request leaves. Return a
    refusal if the value of the header is unknown. `scope` is empty if the request has no such header.
    """
    if scope not in ("", *SCOPES):
        return Refusal("invalid", f"must be one of {', '.join(SCOPES)}", SCOPE_HEADER)
    return replace(caller, read_only=True) if scope == "read" else caller


def refusal(need: Need, caller: Caller, owner: Owner | None = None, job: str = "") -> Refusal | None:
    """Return the refusal if the caller does not have the right `need` of a route, and None if the caller may
    use the route.

    For a request about one job, `owner` is the job's user and `job` the job's display id (17 or 12_3).
    """
    if caller.read_only and need.changes:
        return Refusal("not_allowed", f"this session is read-only and may not {need.doing}", hint=SESSION)
    if need.who in (Who.ANYONE, Who.OPENER) or caller.role is Role.ADMIN:
        return None
    if need.who is Who.ADMIN:
        return Refusal("not_allowed", f"only admins may {need.doing}", hint=ADMINS)
    if need.who is Who.SUBMITTER:
        if caller.role is Role.VIEWER:
            return Refusal(
                "not_allowed", f"only operators may {need.doing} here", hint="[access] others is 'view'."
            )
        return None
    what = f"{need.doing} job {job}" if job else f"{need.doing} jobs" if need.of_job else need.doing
    if need.who is Who.OPERATOR and not caller.operates:
        return Refusal("not_allowed", f"only operators may {what}", hint=OPERATORS)
    if owner is None:
        return None
    if not caller.operates and (caller.role is Role.VIEWER or caller.user != owner.user):
        return Refusal("not_allowed", f"only {owner.user} and operators may {what}", "job")
    if owner.privileged and caller.user != owner.user:
        message = f"only {owner.user} and admins may {what}: it runs with the rights of {owner.user}"
        return Refusal("not_allowed", message, "job", ADMINS)
    return None


def host_refusal(caller: Caller, wanted: HostSpec, present: HostSpec | None) -> Refusal | None:
    """Return the refusal if the caller may not add or change a host with these settings, and None otherwise.

    `wanted` is the requested host entry, and `present` the current one, or None for a new node. Only an admin
    may set the HOST_FIELDS. Other callers may send the values that an admin has set, but only with the same
    SSH address, because a key or program for one host must not be used on another host.
    """
    if caller.role is Role.ADMIN:
        return None
    if present is not None and present.ssh != wanted.ssh:
        present = None
    usual = {each.name: each.default for each in fields(HostSpec)}
    for name in HOST_FIELDS:
        allowed = usual[name] if present is None else getattr(present, name)
        if getattr(wanted, name) != allowed:
            hint = f"Leave {name} out, or set it in scheduler.toml. {ADMINS}"
            return Refusal("not_allowed", f"only admins may set {name} of a host", f"host.{name}", hint)
    return None


def submit_refusal(caller: Caller, user: str, privileged: bool) -> Refusal | None:
    """Return the refusal if the caller may not submit a job as `user`, and None otherwise.

    `privileged` is True if `user` is root or the controller's user.
    """
    if user == caller.user:
        return None
    if not caller.operates:
        return Refusal("not_allowed", "only operators may submit as another user", "as_user", OPERATORS)
    if privileged and caller.role is not Role.ADMIN:
        return Refusal("not_allowed", f"only admins may submit as {user}", "as_user", ADMINS)
    return None
