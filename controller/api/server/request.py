"""The request object that handlers get (`Call`), and the classes of routes and query parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

from aiohttp import web

from controller.access.audit_log import AuditLog
from controller.api.server.access import EXEC, USE_SHELL, Caller, Need, Owner, Role, refusal
from controller.api.server.errors import Rejected, rejected
from controller.api.server.identity import Identity
from controller.core.cluster.node import Node
from controller.core.model.decision.decision import Refusal, no_such_job, no_such_node
from controller.core.model.inputs.input import Input, Requester
from controller.core.model.job import Job
from controller.core.state.job_and_node_rows import load_job
from controller.daemon import Daemon
from controller.reload import ConfigReload
from wire.job.arrays import array_indices

if TYPE_CHECKING:
    from controller.api.server.event_stream import EventStreams


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter of a route: its name, the function that parses its text (`read`), its default, and
    its JSON schema.
    """

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None
    many: bool = False
    required: bool = False
    """True if the route needs this parameter. The handler, and not this class, refuses a request without
    it.
    """

    def value(self, texts: list[str]) -> Any:
        """Parse the texts of this parameter in a URL. Raise Rejected if a text cannot be parsed, or if a
        single-valued parameter occurs twice.
        """
        if self.many:
            return tuple(self._read(text) for text in texts)
        if len(texts) > 1:
            raise rejected("invalid", f"is given {len(texts)} times; write it once", self.name)
        return self._read(texts[0]) if texts else self.default

    def _read(self, text: str) -> Any:
        try:
            return self.read(text)
        except ValueError as error:
            raise rejected("invalid", str(error), self.name) from None


def integer(name: str, about: str, low: int, high: int, default: int | None = None) -> Parameter:
    """Return a query parameter whose value is a whole number from `low` to `high`."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and low <= int(text) <= high):
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(name, about, schema, read, default)


def seconds(name: str, about: str, low: float, high: float, default: float | None = None) -> Parameter:
    """Return a query parameter whose value is a number of seconds from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = float(text) if len(text) < 20 and text.isascii() else low - 1
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"must be a number of seconds from {low:g} to {high:g}")
        return value

    return Parameter(name, about, {"type": "number", "minimum": low, "maximum": high}, read, default)


def choice(name: str, about: str, words: tuple[str, ...], default: str | None = None) -> Parameter:
    """Return a query parameter whose value is one of `words`. Without a default, the parameter may occur
    several times in a URL."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return Parameter(name, about, {"type": "string", "enum": list(words)}, read, default, default is None)


def flag(name: str, about: str, default: bool = False) -> Parameter:
    """Return a query parameter whose value is 1 or 0."""

    def read(text: str) -> bool:
        if text not in ("0", "1"):
            raise ValueError("must be 1 or 0")
        return text == "1"

    return Parameter(name, about, {"type": "integer", "enum": [0, 1]}, read, default)


def string(name: str, about: str) -> Parameter:
    """Return a query parameter whose value is any printable text."""

    def read(text: str) -> str:
        if not text.isprintable():
            raise ValueError("must be printable")
        return text

    return Parameter(name, about, {"type": "string"}, read, "")


def strings(name: str, about: str) -> Parameter:
    """Return a query parameter that may occur several times, each time with any printable text."""
    return replace(string(name, about), many=True, default=None)


@dataclass(frozen=True)
class Route:
    """One route of the API. The routing table and the OpenAPI document are built from all routes.

    Other properties come from the handler function. The type of the function's second parameter is the
    request body. Its return type is the answer body. The first line of its docstring is the description of
    the route.
    """

    method: str
    path: str
    needs: Need
    """The right that the caller needs. It is checked before the handler is called."""
    handle: Callable[..., Awaitable[Any]]
    media: str = ""
    """The media type of an answer that is not an object of wire.api."""
    query: tuple[Parameter, ...] = ()
    status: int = 200
    refuses: tuple[int, ...] = ()
    """The HTTP statuses of refusals that are special to this route. The OpenAPI document adds the statuses
    that every route can have, and the statuses that follow from the path and body.
    """
    of_leader: bool = False
    """True if only the leader can answer a GET, because the answer comes from an agent. All other methods
    also need the leader.
    """
    slow: bool = False
    """True if the answer takes long, or waits for another host or process. The limit of RequestTurns does not
    apply to slow routes.
    """

    @property
    def about(self) -> str:
        """Return the description of the route: the first line of the handler's docstring."""
        return (self.handle.__doc__ or "").partition("\n")[0]

    @cached_property
    def body(self) -> type[Any] | None:
        """Return the class of the request body; None if the route takes no body."""
        kinds = [kind for name, kind in get_type_hints(self.handle).items() if name != "return"]
        return kinds[1] if len(kinds) > 1 else None

    @cached_property
    def answer(self) -> type[Any]:
        kind: type[Any] = get_type_hints(self.handle)["return"]
        return kind


@dataclass(slots=True)
class Call:
    """A request, with the objects that a handler needs for the answer."""

    daemon: Daemon
    reload: ConfigReload
    identity: Identity
    streams: EventStreams
    request: web.BaseRequest
    caller: Caller
    path: Mapping[str, str]
    audit: AuditLog
    authority: bytes = b""
    """The certificate of the controller's own authority; empty if there is none."""
    address: str = ""
    """The address of the client; empty on the unix socket."""
    query: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asker(self) -> Requester:
        """Return the caller in the form that the engine needs to check [access.limits] and the members of
        [projects]."""
        caller = self.caller
        return Requester(caller.user, caller.operates, caller.role is Role.ADMIN, caller.projects)

    async def permit(self, need: Need, job: Job | None = None) -> None:
        """Raise Rejected if the caller lacks the right `need`. With `job`, the caller must have the right for
        this job.

        For USE_SHELL, the caller that has opened the shell must also have the right EXEC for its job, because
        a reload of scheduler.toml may have taken this right away.
        """
        if need is USE_SHELL:
            opener, shell = self.streams.shells.get(self.path["shell"], ("", None))
            if shell is not None and opener == self.caller.user:
                need, job = EXEC, self.daemon.state.jobs.get(shell.order.job)
        if job is None:
            refused = refusal(need, self.caller)
        else:
            privileged = await self.identity.privileged_user(job.user)
            owner = Owner(job.user, privileged, job.spec.project)
            refused = refusal(need, self.caller, owner, job.label)
        if refused is not None:
            raise Rejected(refused)

    async def may(self, need: Need, job: Job) -> bool:
        privileged = await self.identity.privileged_user(job.user)
        owner = Owner(job.user, privileged, job.spec.project)
        return refusal(need, self.caller, owner) is None

    async def job(self) -> Job:
        """Return the job that the URL names, from memory or the store. Raise Rejected if there is no such
        job."""
        await self.daemon.settled()
        return await self.find(self.path["job"])

    async def find(self, label: str) -> Job:
        """Return the job with this display id (17 or 12_3) from memory or the store. Raise Rejected if there
        is no such job.
        """
        job = self.daemon.state.find(label) or await self.stored(label)
        if job is None:
            raise Rejected(no_such_job(repr(label)))
        return job

    async def ended_of_array(self, array: int) -> list[Job]:
        """Return the ended elements of a job array from the store. Return an empty list if all elements of
        the array are in memory.
        """
        known = self.daemon.state.arrays.get(array, {})
        one = next(iter(known.values()), None)
        if one is not None and len(known) == len(array_indices(self.daemon.state.jobs[one].spec.array or "")):
            return []
        rows = await self.daemon.read(lambda: self.daemon.store.jobs_of_array(array))
        return [job for job in map(load_job, rows) if job.state.terminal]

    async def stored(self, label: str) -> Job | None:
        """Return the job with this display id (17 or 12_3) from the store; None if the store has no such
        job.
        """
        head, bar, tail = label.partition("_")
        if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (head, tail or "0")):
            return None
        store = self.daemon.store
        if not bar:
            row = await self.daemon.read(lambda: store.job(int(head)))
            return None if row is None else load_job(row)
        rows = await self.daemon.read(lambda: store.jobs_of_array(int(head)))
        return next((job for job in map(load_job, rows) if job.label == label), None)

    async def node(self) -> Node:
        """Return the node that the URL names. Raise Rejected if there is no such node."""
        await self.daemon.settled()
        node = self.daemon.state.nodes.get(self.path["node"])
        if node is None:
            raise Rejected(no_such_node(self.path["node"]))
        return node

    async def ask(self, given: Input) -> tuple[int, ...]:
        """Pass a command, such as Cancel, to the engine and return the job ids in the reply. Raise Rejected
        if the engine refuses the command.
        """
        reply = await self.daemon.ask(given)
        if isinstance(reply, Refusal):
            raise Rejected(reply)
        return reply.jobs
