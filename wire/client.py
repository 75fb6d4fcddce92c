"""The API client, on the standard library. One Client per thread; CLI and TUI know no other way in."""

from __future__ import annotations

import os
import urllib.parse
import uuid
from typing import Any, Iterable, Iterator, Mapping, Optional, TypeVar, Union

from wire import places
from wire.api.cluster import ClusterView, EventList, Health, StreamBatch
from wire.api.forecasts import Explanation, WhatIf, WhatIfAnswer
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobList,
    JobsAnswer,
    JobsOrder,
    JobView,
    PreemptAction,
    ShellGiven,
    ShellOpened,
    ShellRequest,
    ShellSaid,
    SignalRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.moves import Rebalanced, RebalanceRequest, RebalanceView
from wire.api.nodes import GpuList, HostKey, NodeAction, NodeList, NodeMarks, NodeRequest, NodeView, Preflight
from wire.api.reports import EstimateReport, StintList, UsageList
from wire.api.tenants import (
    LicenceList,
    ProfileList,
    ProfileView,
    QuotaChange,
    QuotaList,
    QuotaView,
    ReservationList,
    ReservationView,
    ReserveRequest,
    ShareList,
    ShareWeight,
)
from wire.codec import dumps, encode
from wire.quota import Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec
from wire.transport import Refused, Transport, Unreachable
from wire.words import JobState

__all__ = ["Client", "JobName", "Refused", "Unreachable"]

T = TypeVar("T")
JobName = Union[str, int]
Query = list[tuple[str, Any]]

SILENCE_S = 15.0
"""A stream without a word for so long (three heartbeats) is lost."""

_ONCE: tuple[float, ...] = ()
_AGAIN = (0.0,)
_KEYED = (0.0, 0.2, 1.0, 2.0)


class Client:
    """What the controller can be asked. Every call may raise Unreachable or Refused."""

    def __init__(self, url: str = "", *, timeout_s: float = 30.0, token: str = "") -> None:
        self.url = url or places.find_url()
        self._timeout_s = timeout_s
        self._transport = Transport(self.url, timeout_s, token or os.environ.get("CORRAL_TOKEN", ""))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def submit(self, spec: JobSpec, *, key: str = "", as_user: str = "") -> Submitted:
        """Queue a job or an array; the key makes it one job however often the request must be sent."""
        request = SubmitRequest(spec, key or uuid.uuid4().hex, as_user)
        return self._post(Submitted, "/v1/jobs", request, _KEYED)

    def jobs(
        self,
        *,
        states: Iterable[JobState] = (),
        user: str = "",
        profile: str = "",
        after: int = 0,
        limit: int = 1000,
        history: bool = False,
    ) -> JobList:
        """One page of jobs by id; `next` of the answer is the `after` of the next page.

        With `history` newest first, and all that ever were.
        """
        query: Query = [("state", state.value) for state in states]
        query += [("user", user)] if user else []
        query += [("profile", profile)] if profile else []
        query += [("history", 1)] if history else []
        return self._get(JobList, "/v1/jobs", [*query, ("after", after), ("limit", limit)])

    def job(self, job: JobName) -> JobDetail:
        """One job by id or array label such as 7_3."""
        return self._get(JobDetail, f"/v1/jobs/{_quoted(job)}")

    def explain(self, job: JobName) -> Explanation:
        """Why a job is where it is, and when it starts at the latest."""
        return self._get(Explanation, f"/v1/jobs/{_quoted(job)}/explain")

    def what_if(self, asked: WhatIf) -> WhatIfAnswer:
        """What would change; nothing does."""
        return self._post(WhatIfAnswer, "/v1/what-if", asked)

    def cancel(self, job: JobName) -> JobView:
        """End a job, whatever it is doing."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/cancel")

    def change(self, job: JobName, changes: Mapping[str, Any]) -> JobView:
        """Change what a job asks for: fields of its JobSpec as JSON has them."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/set", JobChange(changes))

    def signal(self, job: JobName, signal: str) -> JobView:
        """Tell the processes of a running job something."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/signal", SignalRequest(signal))

    def hold(self, job: JobName) -> JobView:
        """Keep a queued job from starting."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/hold")

    def release(self, job: JobName) -> JobView:
        """Let a held job start again."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/release")

    def preempt(self, job: JobName, *, hold: bool = False) -> JobView:
        """End the attempt of a job, and queue it again in its old place."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/preempt", PreemptAction(hold))

    def order(self, order: JobsOrder) -> JobsAnswer:
        """One action on many jobs, in one request; what is refused for one is done for the others."""
        return self._post(JobsAnswer, "/v1/jobs/orders", order)

    def logs(
        self,
        job: JobName,
        *,
        stream: str = "stdout",
        follow: bool = False,
        offset: int = 0,
        node: str = "",
    ) -> Iterator[bytes]:
        """The output of a job piece by piece; a negative offset counts from the end."""
        query: Query = [("stream", stream), ("offset", offset)]
        query += [("node", node)] if node else []
        query += [("follow", 1)] if follow else []
        # A job may be silent for days: while following, only the end of the connection ends the wait.
        silence_s = None if follow else self._timeout_s
        return self._transport.listen(_target(f"/v1/jobs/{_quoted(job)}/logs", query), silence_s)

    def open_shell(self, job: JobName, asked: ShellRequest) -> str:
        """Run a command in a running job's allocation; read it soon, or it is ended."""
        return self._post(ShellOpened, f"/v1/jobs/{_quoted(job)}/shells", asked).shell

    def read_shell(self, shell: str) -> Iterator[ShellSaid]:
        """What the command writes, its end last."""
        rest = b""
        for piece in self._transport.listen(f"/v1/shells/{_quoted(shell)}", None):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield self._transport.understand(ShellSaid, line)

    def write_shell(self, shell: str, given: ShellGiven) -> None:
        """Hand it input."""
        self._post(ShellOpened, f"/v1/shells/{_quoted(shell)}/input", given)

    def nodes(self) -> NodeList:
        """All nodes by name."""
        return self._get(NodeList, "/v1/nodes")

    def node(self, name: str) -> NodeView:
        """One node."""
        return self._get(NodeView, f"/v1/nodes/{_quoted(name)}")

    def gpus(self) -> GpuList:
        """All GPUs by node and index."""
        return self._get(GpuList, "/v1/gpus")

    def drain(self, name: str, why: str = "") -> NodeView:
        """Let a node finish what it runs and take nothing new."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/drain", NodeAction(why))

    def resume(self, name: str) -> NodeView:
        """Let a drained node take work again."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/resume", NodeAction())

    def quotas(self) -> QuotaList:
        """Everybody with a quota or with jobs: what holds, and what is used."""
        return self._get(QuotaList, "/v1/quotas")

    def set_quota(self, scope: str, name: str, quota: Quota) -> QuotaView:
        """Lay limits over what holds for a user, project or queue."""
        return self._post(QuotaView, f"/v1/quotas/{_quoted(scope)}/{_quoted(name)}/set", QuotaChange(quota))

    def unset_quota(self, scope: str, name: str) -> QuotaView:
        """Let what the configuration states hold again."""
        return self._post(QuotaView, f"/v1/quotas/{_quoted(scope)}/{_quoted(name)}/unset")

    def profiles(self) -> ProfileList:
        """Who decides for which jobs, on which nodes and how."""
        return self._get(ProfileList, "/v1/profiles")

    def profile(self, name: str) -> ProfileView:
        """One of them."""
        return self._get(ProfileView, f"/v1/profiles/{_quoted(name)}")

    def reservations(self) -> ReservationList:
        """All that are to come or on, the next first."""
        return self._get(ReservationList, "/v1/reservations")

    def reservation(self, name: str) -> ReservationView:
        """One reservation."""
        return self._get(ReservationView, f"/v1/reservations/{_quoted(name)}")

    def reserve(self, spec: ReservationSpec, *, anyway: bool = False) -> ReservationView:
        """Keep nodes for a time."""
        return self._post(ReservationView, "/v1/reservations", ReserveRequest(spec, anyway))

    def rebalance(self) -> RebalanceView:
        """What could be moved now and what for, and the latest moves."""
        return self._get(RebalanceView, "/v1/rebalance")

    def run_rebalance(self, proposal: str = "") -> Rebalanced:
        """Do one proposal, or whatever can be proposed."""
        return self._post(Rebalanced, "/v1/rebalance/run", RebalanceRequest(proposal))

    def cancel_reservation(self, name: str) -> ReservationView:
        """Keep them no longer; it is shown as it was."""
        return self._post(ReservationView, f"/v1/reservations/{_quoted(name)}/cancel")

    def preflight(self, request: NodeRequest) -> Preflight:
        """Ask a host everything before it joins, or afterwards."""
        return self._post(Preflight, "/v1/preflight", request)

    def add_node(self, request: NodeRequest) -> NodeView:
        """A node at a host; another way to it if it is there already."""
        return self._post(NodeView, "/v1/nodes", request)

    def trust(self, name: str, host_key: str) -> NodeView:
        """Pin a host key."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/trust", HostKey(host_key))

    def remove_node(self, name: str) -> NodeView:
        """No such node any more; what it was."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/remove", NodeAction())

    def licences(self) -> LicenceList:
        """What the cluster has so many of, and who holds it."""
        return self._get(LicenceList, "/v1/licences")

    def shares(self) -> ShareList:
        """Who may have how much, and who had it."""
        return self._get(ShareList, "/v1/shares")

    def set_share(self, change: ShareWeight) -> ShareList:
        """Give an organisation, a project or a `project/user` another weight, or limits."""
        return self._post(ShareList, "/v1/shares", change)

    def mark(self, name: str, marks: NodeMarks) -> NodeView:
        """Set labels and taints of a node, or take them away."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/marks", marks)

    def declare_lost(self, name: str) -> NodeView:
        """Vouch that nothing runs on a node any more."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/lost", NodeAction())

    def cordon_gpu(self, name: str, gpu: int, why: str = "") -> NodeView:
        """Let one GPU of a node take nothing new."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/gpus/{gpu}/cordon", NodeAction(why))

    def resume_gpu(self, name: str, gpu: int) -> NodeView:
        """Let a GPU take work again, once it has passed a look."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/gpus/{gpu}/resume", NodeAction())

    def usage(self, by: str, since: int, until: Optional[int] = None) -> UsageList:
        """What jobs made of GPUs in a window, by user, project, queue or job."""
        window = [("by", by), ("since", since)]
        return self._get(UsageList, "/v1/usage", window + ([("until", until)] if until is not None else []))

    def stints(self, since: int, until: Optional[int] = None) -> StintList:
        """Who worked on GPUs past the queue in a window."""
        window = [("since", since)] + ([("until", until)] if until is not None else [])
        return self._get(StintList, "/v1/usage/off-queue", window)

    def estimates(self) -> EstimateReport:
        """How good the estimates of run times were."""
        return self._get(EstimateReport, "/v1/reports/estimates")

    def cluster(self) -> ClusterView:
        """The cluster in one glance."""
        return self._get(ClusterView, "/v1/cluster")

    def health(self) -> Health:
        """Whether the controller is well, and who it takes us for."""
        return self._get(Health, "/v1/health")

    def events(self, *, after: int = 0, limit: int = 1000, job: Optional[int] = None) -> EventList:
        """One page of the journal behind position `after`."""
        query: Query = [("after", after), ("limit", limit)]
        return self._get(EventList, "/v1/events", query + ([("job", job)] if job is not None else []))

    def stream(self, after: Optional[int] = None, *, rows: bool = True) -> Iterator[Optional[StreamBatch]]:
        """Commits as they happen, behind `after` or from now on; None is a heartbeat."""
        query: Query = [("rows", int(rows))]
        query += [("after", after)] if after is not None else []
        for data in _sent_events(self._transport.listen(_target("/v1/stream", query), SILENCE_S)):
            yield None if data is None else self._transport.understand(StreamBatch, data)

    def close(self) -> None:
        """Let go of all connections; a thread waiting in `stream` or `logs` is woken by Unreachable."""
        self._transport.close()

    def _get(self, kind: type[T], path: str, query: Iterable[tuple[str, Any]] = ()) -> T:
        return self._transport.understand(
            kind, self._transport.ask("GET", _target(path, query), None, _AGAIN)
        )

    def _post(self, kind: type[T], path: str, body: Any = None, pauses: tuple[float, ...] = _ONCE) -> T:
        data = None if body is None else dumps(encode(body)).encode("utf-8", "surrogatepass")
        return self._transport.understand(kind, self._transport.ask("POST", path, data, pauses))


def _sent_events(pieces: Iterator[bytes]) -> Iterator[Optional[bytes]]:
    """The data of server-sent events; None for a comment, which is how a heartbeat travels."""
    rest = b""
    data: list[bytes] = []
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, colon, value = line.rstrip(b"\r").partition(b":")
            if name == b"data":
                data.append(value[1:] if value.startswith(b" ") else value)
            elif not name and colon:
                yield None
            elif not name and data:
                yield b"\n".join(data)
                data = []


def _target(path: str, query: Iterable[tuple[str, Any]]) -> str:
    text = urllib.parse.urlencode(list(query))
    return f"{path}?{text}" if text else path


def _quoted(name: JobName) -> str:
    return urllib.parse.quote(str(name), safe="", errors="surrogatepass")
