"""Decides which caller may do what. docs/access.md is generated from this module and the routes.

1. Each route declares the right that its caller needs (`Need`). A route cannot be built without one.
2. `controller/api/server/app.py` calls `refusal()` before reading the body of a request.
3. If the request is about one job, the rights also depend on the user of the job (`Owner`).
4. A read-only session has only the rights that change nothing (`Need.changes`), also if its user is an admin.
5. A request with a token has at most the abilities of the token (`Need.can`). Its role is lowered to the
   highest role that these abilities need (`within`). If the token names projects, the request may only
   concern jobs of these projects.
6. An operator of a project ([projects.NAME] operators) has some rights of operators for the jobs of the
   project (`Need.of_project`). Rights by which the caller could act as the job's user are not among them.

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


RANKS = {role: rank for rank, role in enumerate(Role)}


class Ability(enum.Enum):
    """The abilities that a token can have (`corral token create --can`). Each route needs one of them."""

    READ = "read"
    OUTPUT = "output"
    SUBMIT = "submit"
    CHANGE = "change"
    EXEC = "exec"
    OPERATE = "operate"
    ADMIN = "admin"


ALL = frozenset(Ability)
_ROLE_OF = {Ability.READ: Role.VIEWER, Ability.OPERATE: Role.OPERATOR, Ability.ADMIN: Role.ADMIN}
"""The role that a token needs for an ability, if it is not the role user."""


def lower(one: Role, other: Role) -> Role:
    """Return the role with fewer rights."""
    return min(one, other, key=RANKS.__getitem__)


@dataclass(frozen=True, slots=True)
class Caller:
    """The user that sent a request, and the user's role. `read_only` is True for a request of a read-only
    session: a request with the read token, or with the header `Corral-Scope: read`.
    """

    user: str
    role: Role
    read_only: bool = False
    token: str = ""
    """The id of the token that the request was sent with; empty on the unix socket. The ids `token` and
    `token.read` stand for the tokens in the files of these names in the state directory.
    """
    can: frozenset[Ability] = ALL
    projects: frozenset[str] | None = None
    """The token is valid for the jobs of these projects. None means all projects."""
    operated: frozenset[str] = frozenset()
    """The projects of which the user is an operator."""
    robot: str = ""
    makes_tokens: bool = True
    """False if the request was sent with a token that may not create further tokens."""

    @property
    def name(self) -> str:
        """Return the name of the caller for the audit log: the user, or `robot:NAME`."""
        return f"robot:{self.robot}" if self.robot else self.user

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
    project: str = ""


class Who(enum.Enum):
    """The groups of callers to which a route can be restricted, such as all operators, or the user of the job
    in the URL.
    """

    PUBLIC = "every client, also without a token"
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
    of_project: bool = False
    """True if operators of the job's project have the right, too."""
    of_tokens: bool = False
    """True if the route is about tokens. Only a caller without a token, or with a token of the kind SESSION,
    may use the route."""
    ability: Ability | None = None
    """The ability that a token needs for the route; None for the usual ability of `who`."""

    @property
    def can(self) -> Ability:
        """Return the ability that a token needs for the route."""
        return self.ability or _ABILITY_OF[self.who]


_ABILITY_OF = {
    Who.PUBLIC: Ability.READ,
    Who.ANYONE: Ability.READ,
    Who.SUBMITTER: Ability.SUBMIT,
    Who.OWNER: Ability.CHANGE,
    Who.OPERATOR: Ability.OPERATE,
    Who.ADMIN: Ability.ADMIN,
    Who.OPENER: Ability.EXEC,
}


def _owner(
    doing: str, *, changes: bool = True, of_project: bool = False, ability: Ability | None = None
) -> Need:
    return Need(Who.OWNER, doing, True, changes, of_project, ability=ability)


def operator(doing: str, *, changes: bool = True) -> Need:
    """Return the right for a route that only operators and admins may use. `doing` is the verb for error
    messages."""
    return Need(Who.OPERATOR, doing, changes=changes)


def admin(doing: str, *, changes: bool = True) -> Need:
    """Return the right for a route that only admins may use. `doing` is the verb for error messages."""
    return Need(Who.ADMIN, doing, changes=changes)


PUBLIC = Need(Who.PUBLIC, changes=False)
ANYONE = Need(Who.ANYONE, changes=False)
TOKENS = Need(Who.ANYONE, "create or revoke tokens", of_tokens=True)
LIST_TOKENS = Need(Who.ANYONE, "list tokens", changes=False, of_tokens=True)
SUBMIT = Need(Who.SUBMITTER, "submit")
PREVIEW = Need(Who.SUBMITTER, "submit", changes=False)
NOTIFY_ME = Need(Who.SUBMITTER, "have notifications sent", ability=Ability.CHANGE)
CHANGE_JOBS = Need(Who.SUBMITTER, "change jobs", ability=Ability.CHANGE)
"""The right for a request about many jobs. The handler also checks the caller's right for each of these
jobs.
"""
CANCEL, HOLD, RELEASE = (_owner(doing, of_project=True) for doing in ("cancel", "hold", "release"))
SET = _owner("change")
REQUEUE = _owner("requeue", of_project=True)
RETRY = _owner("retry")
SIGNAL = _owner("send signals to", of_project=True)
CHECKPOINT = _owner("save checkpoints of", of_project=True)
KEEP = _owner("keep", of_project=True)
EXEC = _owner("run commands in", ability=Ability.EXEC)
READ_OUTPUT = _owner("read the output of", changes=False, ability=Ability.OUTPUT)
READ_SPEC = _owner("read the environment of", changes=False, ability=Ability.OUTPUT)
PREEMPT = Need(Who.OPERATOR, "preempt", of_job=True, of_project=True)
USE_SHELL = Need(Who.OPENER, "use shells")
"""The right to read from and write to a command of `corral exec`. Only the user that started the command has
this right, and only while the user may run commands in the job (Call.permit). To any other caller the handler
answers that the command does not exist.
"""

NO_CALLER = Caller("", Role.VIEWER, read_only=True, can=frozenset({Ability.READ}), makes_tokens=False)
"""The caller of a public route, which may have sent no token."""

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
    refused = _token_refusal(need, caller, owner)
    if refused is not None:
        return refused
    if need.who in (Who.PUBLIC, Who.ANYONE, Who.OPENER) or caller.role is Role.ADMIN:
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
    operates = caller.operates or _operates_project(need, caller, owner)
    if need.who is Who.OPERATOR and not operates:
        return Refusal("not_allowed", f"only operators may {what}", hint=OPERATORS)
    if owner is None:
        return None
    if not operates and (caller.role is Role.VIEWER or caller.user != owner.user):
        return Refusal("not_allowed", f"only {owner.user} and operators may {what}", "job")
    if owner.privileged and caller.user != owner.user:
        message = f"only {owner.user} and admins may {what}: it runs with the rights of {owner.user}"
        return Refusal("not_allowed", message, "job", ADMINS)
    return None


def _operates_project(need: Need, caller: Caller, owner: Owner | None) -> bool:
    """Return whether the caller has the right as an operator of the job's project. Without a job, return
    whether the caller can have the right for some job.
    """
    if not need.of_project or caller.role is Role.VIEWER:
        return False
    return bool(caller.operated) if owner is None else owner.project in caller.operated


def _token_refusal(need: Need, caller: Caller, owner: Owner | None) -> Refusal | None:
    """Return the refusal if the token of the request does not have the ability or the project, or if the
    route is about tokens and the token may not create any; otherwise None.
    """
    if need.can not in caller.can:
        has = ", ".join(ability.value for ability in Ability if ability in caller.can) or "nothing"
        hint = f"It can: {has}. 'corral token create --can {need.can.value}' makes another token."
        doing = need.doing or "read"
        return Refusal("not_allowed", f"this token may not {doing}: it cannot {need.can.value}", hint=hint)
    if need.of_tokens and not caller.makes_tokens:
        hint = "Use the unix socket or ssh://."
        return Refusal("not_allowed", f"a token may not {need.doing}", hint=hint)
    if caller.projects is None:
        return None
    there = ", ".join(sorted(caller.projects))
    if need.who in (Who.OPERATOR, Who.ADMIN) and not need.of_job:
        message = f"this token may not {need.doing}: it is only for jobs of project {there}"
        return Refusal("not_allowed", message)
    if owner is None or owner.project in caller.projects:
        return None
    return Refusal("not_allowed", f"this token is only for jobs of project {there}", "job")


def within(caller: Caller, can: frozenset[Ability], projects: frozenset[str] | None) -> Caller:
    """Return the caller with at most these abilities and projects. If `projects` is None, the projects stay
    as they are.

    The role becomes the highest role that the abilities need. So a token of root that can only submit does
    not have the other rights of root, such as priorities above the ceilings.
    """
    can = caller.can & can
    highest = max(
        (_ROLE_OF.get(ability, Role.USER) for ability in can), key=RANKS.__getitem__, default=Role.VIEWER
    )
    if projects is not None and caller.projects is not None:
        projects = caller.projects & projects
    operated = caller.operated if Ability.CHANGE in can else frozenset()
    return replace(
        caller,
        role=lower(caller.role, highest),
        can=can,
        projects=caller.projects if projects is None else projects,
        operated=operated,
    )


@dataclass(frozen=True, slots=True)
class TokenWish:
    """The abilities and projects of a token that a caller wants to create."""

    can: frozenset[Ability]
    projects: frozenset[str] | None


def abilities_of(role: Role) -> frozenset[Ability]:
    """Return the abilities that a caller with this role has."""
    return frozenset(ability for ability in Ability if RANKS[_ROLE_OF.get(ability, Role.USER)] <= RANKS[role])


def new_token_refusal(caller: Caller, wish: TokenWish) -> Refusal | None:
    """Return the refusal if the caller may not create a token with these abilities and projects. A caller can
    give no ability and no project that the caller does not have.
    """
    missing = wish.can - (caller.can & abilities_of(caller.role))
    if missing:
        names = ", ".join(ability.value for ability in Ability if ability in missing)
        return Refusal("not_allowed", f"you may not give a token what you cannot do: {names}", "can")
    if caller.projects is not None and wish.projects is not None and not wish.projects <= caller.projects:
        there = ", ".join(sorted(caller.projects))
        return Refusal("not_allowed", f"your session is only for jobs of project {there}", "projects")
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
