"""One request on its way to a handler, and how routes say what they take and give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from controller.api.errors import Rejected
from controller.api.identity import Caller, Identity, forbidden
from controller.core.inputs import Input, Refusal
from controller.core.jobs import Job
from controller.core.nodes import Node
from controller.core.records import job_of
from controller.daemon import Daemon
from wire.spec import array_indices

if TYPE_CHECKING:
    from controller.api.stream import Streams


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter: how it is read, and its JSON schema."""

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None
    many: bool = False

    def value(self, texts: list[str]) -> Any:
        """What was sent; a parameter that stands once wins nothing by standing twice."""
        if self.many:
            return tuple(self._read(text) for text in texts)
        if len(texts) > 1:
            raise Rejected(Refusal("invalid", f"is there {len(texts)} times", self.name))
        return self._read(texts[0]) if texts else self.default

    def _read(self, text: str) -> Any:
        try:
            return self.read(text)
        except ValueError as error:
            raise Rejected(Refusal("invalid", str(error), self.name)) from None


def whole(name: str, about: str, low: int, high: int, default: int | None = None) -> Parameter:
    """A whole number between two others."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19 and low <= int(text) <= high):
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(name, about, schema, read, default)


def choice(name: str, about: str, words: tuple[str, ...], default: str | None = None) -> Parameter:
    """One of a few words; without a default, as many of them as you like."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return Parameter(name, about, {"type": "string", "enum": list(words)}, read, default, default is None)


def flag(name: str, about: str, default: bool = False) -> Parameter:
    """1 or 0."""

    def read(text: str) -> bool:
        if text not in ("0", "1"):
            raise ValueError("must be 1 or 0")
        return text == "1"

    return Parameter(name, about, {"type": "integer", "enum": [0, 1]}, read, default)


def word(name: str, about: str) -> Parameter:
    """A name."""

    def read(text: str) -> str:
        if not text.isprintable():
            raise ValueError("must be printable")
        return text

    return Parameter(name, about, {"type": "string"}, read, "")


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked: the routing table and the OpenAPI document are made of these."""

    method: str
    path: str
    handle: Callable[[Call], Awaitable[Any]]
    answer: type[Any] | str
    """A class of wire.api, or a media type."""
    body: type[Any] | None = None
    query: tuple[Parameter, ...] = ()
    status: int = 200
    refuses: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        """What it does: the first line of its handler's docstring."""
        return (self.handle.__doc__ or "").partition("\n")[0]


@dataclass(slots=True)
class Call:
    """A request with what the handler needs: who asks, what for, and of whom."""

    daemon: Daemon
    identity: Identity
    streams: Streams
    request: web.BaseRequest
    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None

    def need_operator(self, what: str) -> None:
        """Refuse anybody who is not an operator."""
        if not self.caller.operates:
            raise Rejected(forbidden(what))

    async def job(self) -> Job:
        """The job that the path names, ended long ago or not; whoever asks may see it."""
        await self.daemon.settled()
        return await self.find(self.path["job"])

    async def find(self, label: str) -> Job:
        """The job of that label, ended long ago or not."""
        job = self.daemon.state.find(label) or await self.stored(label)
        if job is None:
            raise Rejected(
                Refusal(
                    "not_found",
                    f"there is no job {label!r}",
                    "job",
                    "'corral queue --all' shows what there is.",
                )
            )
        return job

    async def own_job(self, what: str) -> Job:
        """The job that the path names, if whoever asks may do more than see it."""
        job = await self.job()
        self.need_owner(job, what)
        return job

    def need_owner(self, job: Job, what: str) -> None:
        """Refuse whoever may only see the job."""
        if not self.caller.owns(job.user):
            message = f"only {job.user} and operators may {what} job {job.label}"
            raise Rejected(Refusal("not_allowed", message, "job"))

    async def ended_of_array(self, array: int) -> list[Job]:
        """The elements that have ended of an array, if the state has forgotten any; else nothing."""
        known = self.daemon.state.arrays.get(array, {})
        one = next(iter(known.values()), None)
        if one is not None and len(known) == len(array_indices(self.daemon.state.jobs[one].spec.array or "")):
            return []
        rows = await self.daemon.read(lambda: self.daemon.store.jobs_of_array(array))
        return [job for job in map(job_of, rows) if job.state.terminal]

    async def stored(self, label: str) -> Job | None:
        """The job of that label out of the store, however long ago it ended."""
        head, bar, tail = label.partition("_")
        if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (head, tail or "0")):
            return None
        store = self.daemon.store
        if not bar:
            row = await self.daemon.read(lambda: store.job(int(head)))
            return None if row is None else job_of(row)
        rows = await self.daemon.read(lambda: store.jobs_of_array(int(head)))
        return next((job for job in map(job_of, rows) if job.label == label), None)

    async def node(self) -> Node:
        """The node that the path names."""
        await self.daemon.settled()
        node = self.daemon.state.nodes.get(self.path["node"])
        if node is None:
            name = self.path["node"]
            raise Rejected(
                Refusal(
                    "not_found", f"there is no node {name!r}", "node", "'corral nodes' shows what there is."
                )
            )
        return node

    async def ask(self, given: Input) -> tuple[int, ...]:
        """Hand an input to the daemon; what it refuses is rejected here."""
        reply = await self.daemon.ask(given)
        if isinstance(reply, Refusal):
            raise Rejected(reply)
        return reply.jobs
