"""The client of the HTTP API that the CLI and the TUI use. Each thread needs its own Client."""

from __future__ import annotations

import urllib.parse
import uuid
from typing import Any, Iterable, Iterator, Mapping, Optional, TypeVar, Union

from wire.agent.orders import SignalTo
from wire.api.forecasts import Explanation, Plan, WhatIf, WhatIfAnswer
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobList,
    JobsAnswer,
    JobsOrder,
    JobView,
    KeepRequest,
    SbatchRequest,
    ShellGiven,
    ShellOpened,
    ShellRequest,
    ShellSaid,
    SignalRequest,
    StepRecorded,
    StepRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.nodes import (
    GpuList,
    HostKey,
    NodeAction,
    NodeDrain,
    NodeList,
    NodeMarks,
    NodeRequest,
    NodeView,
    Preflight,
)
from wire.api.policy.licences import LicenceList
from wire.api.policy.profiles import ProfileList, ProfileView
from wire.api.policy.queues import QueueList
from wire.api.policy.quotas import QuotaChange, QuotaList, QuotaView
from wire.api.policy.rebalance import Rebalanced, RebalanceRequest, RebalanceView
from wire.api.policy.reservations import ReservationList, ReservationView, ReserveRequest
from wire.api.policy.scheduler import SchedulerView, TopologyView, Triggered
from wire.api.policy.services import ScaleRequest, ServiceList, ServiceView
from wire.api.policy.shares import ShareList, ShareWeight
from wire.api.service.cluster import ClusterView, EventList, Health, PulseView, StreamBatch
from wire.api.service.config import ConfigAnswer, ConfigRequest, ConfigView, QuotaSync
from wire.api.service.job_stats import JobStats
from wire.api.service.reports import (
    BudgetReport,
    EstimateReport,
    FairnessReport,
    MonthReport,
    SlaReport,
    StintList,
    UsageList,
    WasteReport,
)
from wire.api.service.store import Compacted, CompactRequest, VerifyLine
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.codec import dumps, encode
from wire.http.opening import open_transport
from wire.http.transport import Refused, Unreachable
from wire.job.spec import JobSpec
from wire.job.steps import Step
from wire.names import JobState
from wire.notify import (
    NotifySettings,
    NotifySettingsView,
    NotifyView,
    OutboxView,
    RetryAnswer,
    RetryRequest,
    SinkTest,
    SinkTestAnswer,
)
from wire.workload.bodies import (
    WorkloadAnswer,
    WorkloadList,
    WorkloadPreview,
    WorkloadRequest,
    WorkloadRetry,
    WorkloadView,
)
from wire.workload.spec import WorkloadSpec

__all__ = ["Client", "JobName", "Refused", "Unreachable"]

T = TypeVar("T")
JobName = Union[str, int]
Query = list[tuple[str, Any]]

SILENCE_S = 15.0
"""A stream counts as lost after this many seconds without data. In this time, three heartbeats should have
arrived.
"""

_ONCE: tuple[float, ...] = ()
_AGAIN = (0.0,)
_KEYED = (0.0, 0.2, 1.0, 2.0)


class Client:
    """Sends requests to the controller, with one method for each endpoint of the API. Each method raises
    Unreachable or Refused.
    """

    def __init__(self, url: str = "", *, timeout_s: float = 30.0, token: str = "") -> None:
        self._transport = open_transport(url, timeout_s=timeout_s, token=token)
        self.url = self._transport.url
        self._timeout_s = timeout_s

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def submit(self, spec: JobSpec, *, key: str = "", as_user: str = "") -> Submitted:
        """Queue a job or an array. If a request is repeated with the same `key`, the job is queued only
        once.
        """
        request = SubmitRequest(spec, key or uuid.uuid4().hex, as_user)
        return self._post(Submitted, "/v1/jobs", request, _KEYED)

    def sbatch(self, request: SbatchRequest) -> Submitted:
        """Queue a batch script with #SBATCH lines. If the connection is lost, a request without a key is not
        sent again.
        """
        return self._post(Submitted, "/v1/slurm/sbatch", request, _KEYED if request.key else _ONCE)

    def preview(self, spec: JobSpec, *, as_user: str = "") -> JobSpec:
        """Return the JobSpec that a submit would queue, with default values filled in. Nothing is queued."""
        return self._post(JobSpec, "/v1/jobs/preview", SubmitRequest(spec, "", as_user))

    def jobs(
        self,
        *,
        states: Iterable[JobState] = (),
        user: str = "",
        profile: str = "",
        after: int = 0,
        limit: int = 1000,
        history: bool = False,
        folded: bool = False,
        places: bool = False,
    ) -> JobList:
        """Return one page of jobs, ordered by id. To get the next page, call this method with `after` set to
        the value `next` of the answer.

        With `history` the pages also have old jobs that only the store still contains, and the newest job is
        first. With `folded` the jobs of each workload and array are one row in `groups`. With `places` the
        first page has the places of waiting jobs in the queue.
        """
        query: Query = [("state", state.value) for state in states]
        query += [("user", user)] if user else []
        query += [("profile", profile)] if profile else []
        query += [("history", 1)] if history else []
        query += [("folded", 1)] if folded else []
        query += [("places", 1)] if places else []
        return self._get(JobList, "/v1/jobs", [*query, ("after", after), ("limit", limit)])

    def job(self, job: JobName) -> JobDetail:
        """Return one job, by its id, or by the id of an array element, such as 7_3."""
        return self._get(JobDetail, f"/v1/jobs/{_quoted(job)}")

    def job_stats(self, job: JobName) -> JobStats:
        """Return what the last attempt of a job requested and used."""
        return self._get(JobStats, f"/v1/jobs/{_quoted(job)}/stats")

    def explain(self, job: JobName, *, within_s: Optional[float] = None) -> Explanation:
        """Return the reason why a job waits, and its latest start. `within_s` is the number of seconds that
        the controller may compute.
        """
        query: Query = [("within", within_s)] if within_s is not None else []
        return self._get(Explanation, f"/v1/jobs/{_quoted(job)}/explain", query, more_s=within_s or 0.0)

    def what_if(
        self, changes: WhatIf, *, within_s: Optional[float] = None, only_first: bool = False
    ) -> WhatIfAnswer:
        """Return the effect that changes would have. Nothing is changed. `within_s` is how many seconds the
        controller may compute. With `only_first` the answer covers only the next 24 hours and 200 jobs.
        """
        query: Query = [("within", within_s)] if within_s is not None else []
        query += [("part", "first")] if only_first else []
        target, more_s = _target("/v1/what-if", query), within_s or 0.0
        return self._post(WhatIfAnswer, target, changes, _AGAIN, question=True, more_s=more_s)

    def config(self) -> ConfigView:
        return self._get(ConfigView, "/v1/config")

    def apply_config(self, request: ConfigRequest) -> ConfigAnswer:
        """Apply a configuration, or, if `request.dry_run` is True, only return what the configuration would
        change.
        """
        return self._post(ConfigAnswer, "/v1/config", request)

    def cancel(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/cancel")

    def change(self, job: JobName, changes: Mapping[str, Any]) -> JobView:
        """Change fields of a job's JobSpec. `changes` maps field names to JSON values."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/set", JobChange(changes))

    def signal(self, job: JobName, signal: str, to: SignalTo = SignalTo.HANDLERS) -> JobView:
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/signal", SignalRequest(signal, to))

    def signal_step(self, job: JobName, step: int, signal: str, *, cancel: bool = False) -> JobView:
        """Send a signal to the tasks of a step."""
        request = SignalRequest(signal, SignalTo.STEPS, step, cancel)
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/signal", request)

    def record_step(self, job: JobName, step: Step) -> int:
        """Record a step that begins or has ended. Return its number."""
        return self._post(StepRecorded, f"/v1/jobs/{_quoted(job)}/steps", StepRequest(step)).number

    def checkpoint(self, job: JobName) -> JobView:
        """Let a running job save a checkpoint. The job continues."""
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/checkpoint")

    def hold(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/hold")

    def release(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{_quoted(job)}/release")

    def keep(self, job: JobName, request: KeepRequest) -> JobView:
        """Keep a running job for a time although its GPUs are idle."""
        return self._post(JobView, f"/v1/jobs/{job}/keep", request)

    def order(self, order: JobsOrder) -> JobsAnswer:
        """Carry out one action on many jobs. If the controller refuses the action for one job, the other jobs
        are still changed.
        """
        return self._post(JobsAnswer, "/v1/jobs/orders", order)

    def logs(
        self,
        job: JobName,
        *,
        stream: str = "stdout",
        follow: bool = False,
        offset: int = 0,
        node: str = "",
        attempt: int = 0,
    ) -> Iterator[bytes]:
        """Yield the output of an attempt in pieces. `attempt` 0 means the last attempt. A negative `offset`
        counts from the end of the log.
        """
        query: Query = [("stream", stream), ("offset", offset)]
        query += [("node", node)] if node else []
        query += [("attempt", attempt)] if attempt else []
        query += [("follow", 1)] if follow else []
        # Set no time limit while the log is followed, because a job may write no output for days.
        silence_s = None if follow else self._timeout_s
        return self._transport.listen(_target(f"/v1/jobs/{_quoted(job)}/logs", query), silence_s)

    def open_shell(self, job: JobName, request: ShellRequest) -> str:
        """Run a command in the allocation of a running job. Return the id of the session. The caller must
        soon call read_shell, because the controller closes a session whose output is not read.
        """
        return self._post(ShellOpened, f"/v1/jobs/{_quoted(job)}/shells", request).shell

    def read_shell(self, shell: str) -> Iterator[ShellSaid]:
        """Yield the output of a `corral exec` command. The last item is the end of the command."""
        return self._lines(ShellSaid, f"/v1/shells/{_quoted(shell)}")

    def write_shell(self, shell: str, message: ShellGiven) -> None:
        """Send `message` to a `corral exec` command. The message has input, the end of the input, or a new
        size of the terminal window.
        """
        self._post(ShellOpened, f"/v1/shells/{_quoted(shell)}/input", message)

    def nodes(self) -> NodeList:
        return self._get(NodeList, "/v1/nodes")

    def node(self, name: str) -> NodeView:
        return self._get(NodeView, f"/v1/nodes/{_quoted(name)}")

    def gpus(self) -> GpuList:
        return self._get(GpuList, "/v1/gpus")

    def drain(
        self, name: str, why: str = "", empty_by: Optional[float] = None, dry_run: bool = False
    ) -> NodeView:
        """Drain a node: the node gets no new jobs, and running jobs continue. With `empty_by` (seconds since
        1970), jobs that end before this time may still start. Jobs that still run at this time are moved or
        ended.
        """
        body = NodeDrain(why, empty_by, dry_run)
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/drain", body)

    def resume(self, name: str) -> NodeView:
        """Let a drained node get new jobs again."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/resume", NodeAction())

    def quotas(self) -> QuotaList:
        """Return the limits and the usage of all users, projects and queues that have a quota or jobs."""
        return self._get(QuotaList, "/v1/quotas")

    def quota(self, scope: str, name: str) -> QuotaView:
        """Return the limits and the usage of one user, project or queue."""
        return self._get(QuotaView, f"/v1/quotas/{_quoted(scope)}/{_quoted(name)}")

    def sync_quotas(self) -> QuotaSync:
        """Let the controller read the quotas from their source again, and apply the changed ones."""
        return self._post(QuotaSync, "/v1/quotas/sync")

    def scheduler(self) -> SchedulerView:
        """Return the scheduling policy, the numbers of jobs, and the latest scheduling cycle."""
        return self._get(SchedulerView, "/v1/scheduler")

    def plan(self, horizon_s: float, within_s: Optional[float] = None) -> Plan:
        """Return the jobs that are expected to run in the next `horizon_s` seconds, with their times and
        nodes.
        """
        query: Query = [("horizon", horizon_s)]
        query += [("within", within_s)] if within_s is not None else []
        return self._get(Plan, "/v1/plan", query, within_s or 0.0)

    def pulse(self, ring: str = "minutes", after: int = 0) -> PulseView:
        """Return figures of the cluster: for each second of the last 10 minutes if `ring` is `seconds`,
        otherwise for each minute of the last day.
        """
        return self._get(PulseView, "/v1/pulse", [("ring", ring), ("after", after)])

    def trigger(self) -> Triggered:
        """Let the controller run a scheduling cycle at once."""
        return self._post(Triggered, "/v1/scheduler/trigger")

    def topology(self) -> TopologyView:
        """Return the network switches, and the topology of each node."""
        return self._get(TopologyView, "/v1/topology")

    def set_quota(self, scope: str, name: str, quota: Quota) -> QuotaView:
        return self._post(QuotaView, f"/v1/quotas/{_quoted(scope)}/{_quoted(name)}/set", QuotaChange(quota))

    def unset_quota(self, scope: str, name: str) -> QuotaView:
        """Remove the limits of a user, project or queue that `set_quota` has set. The limits in the
        configuration apply again.
        """
        return self._post(QuotaView, f"/v1/quotas/{_quoted(scope)}/{_quoted(name)}/unset")

    def profiles(self) -> ProfileList:
        return self._get(ProfileList, "/v1/profiles")

    def profile(self, name: str) -> ProfileView:
        return self._get(ProfileView, f"/v1/profiles/{_quoted(name)}")

    def reservations(self) -> ReservationList:
        """Return the current and future reservations, ordered by start time."""
        return self._get(ReservationList, "/v1/reservations")

    def reservation(self, name: str) -> ReservationView:
        return self._get(ReservationView, f"/v1/reservations/{_quoted(name)}")

    def reserve(self, spec: ReservationSpec, *, anyway: bool = False) -> ReservationView:
        """Reserve nodes. Without `anyway`, the controller refuses the reservation if jobs may still run on
        its nodes at its start.
        """
        return self._post(ReservationView, "/v1/reservations", ReserveRequest(spec, anyway))

    def rebalance(self) -> RebalanceView:
        return self._get(RebalanceView, "/v1/rebalance")

    def run_rebalance(self, proposal: str = "") -> Rebalanced:
        """Carry out the proposal with this id, which moves jobs. If `proposal` is empty, carry out all
        proposals.
        """
        return self._post(Rebalanced, "/v1/rebalance/run", RebalanceRequest(proposal))

    def cancel_reservation(self, name: str) -> ReservationView:
        """Cancel a reservation and return its last state."""
        return self._post(ReservationView, f"/v1/reservations/{_quoted(name)}/cancel")

    def preflight(self, request: NodeRequest) -> Preflight:
        """Check whether a host can run an agent, before or after the host is added as a node."""
        return self._post(Preflight, "/v1/preflight", request)

    def add_node(self, request: NodeRequest) -> NodeView:
        """Add a node. If the node exists, change the settings of its connection."""
        return self._post(NodeView, "/v1/nodes", request)

    def trust(self, name: str, host_key: str) -> NodeView:
        """Replace the pinned SSH host key of a node by `host_key`."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/trust", HostKey(host_key))

    def remove_node(self, name: str) -> NodeView:
        """Remove a node and return its last state."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/remove", NodeAction())

    def submit_workload(self, spec: WorkloadSpec, *, key: str = "", as_user: str = "") -> WorkloadAnswer:
        """Queue all jobs of a workload, or none. If a request is repeated with the same `key`, the jobs are
        queued only once.
        """
        request = WorkloadRequest(spec, key or uuid.uuid4().hex, as_user)
        return self._post(WorkloadAnswer, "/v1/workloads", request, _KEYED)

    def preview_workload(self, spec: WorkloadSpec, *, as_user: str = "") -> WorkloadPreview:
        """Return the jobs that a submit would queue, with default values filled in. Nothing is queued."""
        return self._post(WorkloadPreview, "/v1/workloads/preview", WorkloadRequest(spec, "", as_user))

    def workloads(
        self, *, user: str = "", everything: bool = False, after: int = 0, limit: int = 1000
    ) -> WorkloadList:
        """Return the workloads with jobs that have not ended; with `everything`, all workloads. Return at
        most `limit` workloads, with ids above `after`.
        """
        query: Query = [("user", user), ("all", int(everything)), ("after", after), ("limit", limit)]
        return self._get(WorkloadList, "/v1/workloads", query)

    def workload(self, workload: JobName) -> WorkloadView:
        """Return one workload with its tasks."""
        return self._get(WorkloadView, f"/v1/workloads/{_quoted(workload)}")

    def cancel_workload(self, workload: JobName) -> WorkloadAnswer:
        """Cancel all jobs of a workload that have not ended."""
        return self._post(WorkloadAnswer, f"/v1/workloads/{_quoted(workload)}/cancel")

    def retry_workload(self, workload: JobName, *, cancelled: bool = False) -> WorkloadAnswer:
        """Queue new jobs in place of failed jobs, and in place of jobs that were cancelled because others
        failed. With `cancelled`, jobs that users have cancelled also run again.
        """
        return self._post(
            WorkloadAnswer, f"/v1/workloads/{_quoted(workload)}/retry", WorkloadRetry(cancelled)
        )

    def services(self) -> ServiceList:
        """Return all services with their replicas."""
        return self._get(ServiceList, "/v1/services")

    def service(self, name: str) -> ServiceView:
        """Return one service with its replicas."""
        return self._get(ServiceView, f"/v1/services/{_quoted(name)}")

    def restart_service(self, name: str) -> ServiceView:
        """Restart all replicas of a service, one after the other. Return the service."""
        return self._post(ServiceView, f"/v1/services/{_quoted(name)}/restart")

    def scale_service(self, name: str, replicas: Optional[int]) -> ServiceView:
        """Set the number of replicas of a service, and return the service. If `replicas` is None, the number
        in scheduler.toml applies again.
        """
        return self._post(ServiceView, f"/v1/services/{_quoted(name)}/scale", ScaleRequest(replicas))

    def queues(self) -> QueueList:
        """Return all queues, with their policies and the resources that their jobs use."""
        return self._get(QueueList, "/v1/queues")

    def licences(self) -> LicenceList:
        """Return all licences, with the jobs that hold each licence."""
        return self._get(LicenceList, "/v1/licences")

    def shares(self) -> ShareList:
        return self._get(ShareList, "/v1/shares")

    def set_share(self, change: ShareWeight) -> ShareList:
        """Change the weight or the limits of an organisation, a project or a user (`project/user`)."""
        return self._post(ShareList, "/v1/shares", change)

    def notify(self) -> NotifyView:
        """Return the sinks (services that deliver messages) and the rules of notifications."""
        return self._get(NotifyView, "/v1/notify")

    def notify_settings(self) -> NotifySettingsView:
        """Return which notices the caller gets, and at which addresses."""
        return self._get(NotifySettingsView, "/v1/notify/me")

    def set_notify_settings(self, settings: NotifySettings) -> NotifySettingsView:
        """Set which notices the caller gets, and at which addresses."""
        return self._post(NotifySettingsView, "/v1/notify/me", settings)

    def outbox(self) -> OutboxView:
        """Return the messages of the outbox: waiting messages, and dead letters (messages that were given
        up).
        """
        return self._get(OutboxView, "/v1/notify/outbox")

    def retry_messages(self, request: RetryRequest) -> RetryAnswer:
        """Try now to deliver messages of the outbox again."""
        return self._post(RetryAnswer, "/v1/notify/retry", request)

    def test_sink(self, request: SinkTest) -> SinkTestAnswer:
        """Send a test message to a sink, and return whether the sink accepted the message."""
        return self._post(SinkTestAnswer, "/v1/notify/test", request, more_s=300.0)

    def mark(self, name: str, marks: NodeMarks) -> NodeView:
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/marks", marks)

    def declare_lost(self, name: str) -> NodeView:
        """Declare a node lost: the node does not report, and no job runs on the node any more. The jobs of
        the node can then be queued again.
        """
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/lost", NodeAction())

    def cordon_gpu(self, name: str, gpu: str, why: str = "") -> NodeView:
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/gpus/{_quoted(gpu)}/cordon", NodeAction(why))

    def resume_gpu(self, name: str, gpu: str) -> NodeView:
        """Let a cordoned GPU get jobs again. The GPU must pass a check first."""
        return self._post(NodeView, f"/v1/nodes/{_quoted(name)}/gpus/{_quoted(gpu)}/resume", NodeAction())

    def usage(self, by: str, since: int, until: Optional[int] = None) -> UsageList:
        """Return the GPU usage between `since` and `until`, in seconds since 1970. `by` is user, project,
        queue or job: the answer has the usage of each user, of each project, and so on. Without `until`, the
        usage up to now is returned.
        """
        window = [("by", by), ("since", since)]
        return self._get(UsageList, "/v1/usage", window + ([("until", until)] if until is not None else []))

    def budgets(self) -> BudgetReport:
        """Return the use of each project with a budget in the present month."""
        return self._get(BudgetReport, "/v1/reports/budgets")

    def verify(self) -> Iterator[VerifyLine]:
        return self._lines(VerifyLine, "/v1/store/verify")

    def compact(self, request: CompactRequest) -> Compacted:
        return self._post(Compacted, "/v1/store/compact", request)

    def stints(self, since: int, until: Optional[int] = None) -> StintList:
        """Return the GPU use by processes that no job started, between `since` and `until`, in seconds since
        1970.
        """
        window = [("since", since)] + ([("until", until)] if until is not None else [])
        return self._get(StintList, "/v1/usage/off-queue", window)

    def estimates(self) -> EstimateReport:
        return self._get(EstimateReport, "/v1/reports/estimates")

    def fairness(self, by: str, since: int) -> FairnessReport:
        """Return for each project or user the used GPU-hours and the GPU-hours of its entitlement, since the
        time `since` (seconds since 1970). `by` is project or user.
        """
        return self._get(FairnessReport, "/v1/reports/fairness", [("by", by), ("since", since)])

    def month(self, month: str = "", by: str = "project", only: Mapping[str, str] = {}) -> MonthReport:
        """Return the use of one month by project, user or queue. `only` restricts the report to one project,
        one user or one queue.
        """
        return self._get(MonthReport, "/v1/reports/month", [("month", month), ("by", by), *only.items()])

    def sla(self, since: int) -> SlaReport:
        """Return, for each queue with a wait target, the fraction of its jobs since the time `since` that
        started within the target.
        """
        return self._get(SlaReport, "/v1/reports/sla", [("since", since)])

    def waste(self, since: int) -> WasteReport:
        """Return the idle GPU-hours by cause, and the GPU-hours of lost work, since the time `since` (seconds
        since 1970).
        """
        return self._get(WasteReport, "/v1/reports/waste", [("since", since)])

    def cluster(self) -> ClusterView:
        return self._get(ClusterView, "/v1/cluster")

    def health(self) -> Health:
        """Return the health of the controller, with the name and the role of this user."""
        return self._get(Health, "/v1/health")

    def events(self, *, after: int = 0, limit: int = 1000, job: Optional[int] = None) -> EventList:
        """Return one page of the journal: at most `limit` events after the entry with the number `after`.
        With `job`, only events of this job are returned.
        """
        query: Query = [("after", after), ("limit", limit)]
        return self._get(EventList, "/v1/events", query + ([("job", job)] if job is not None else []))

    def stream(
        self, after: Optional[int] = None, *, rows: bool = True, pulse: bool = False
    ) -> Iterator[Optional[StreamBatch]]:
        """Yield a StreamBatch for each commit to the journal after entry `after`. If `after` is None, yield
        only new commits. Yield None for each heartbeat. With `rows`, a batch also has the new state of the
        jobs and nodes that its events change. With `pulse`, a sample of the cluster's figures comes every
        second.
        """
        query: Query = [("rows", int(rows))]
        query += [("pulse", 1)] if pulse else []
        query += [("after", after)] if after is not None else []
        for data in _sent_events(self._transport.listen(_target("/v1/stream", query), SILENCE_S)):
            yield None if data is None else self._transport.decode_answer(StreamBatch, data)

    def close(self) -> None:
        """Close all connections. A thread that waits in `stream` or `logs` then gets Unreachable."""
        self._transport.close()

    def _lines(self, kind: type[T], path: str) -> Iterator[T]:
        """Yield the decoded JSON objects of an answer that has one object on each line."""
        rest = b""
        for piece in self._transport.listen(path, None):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield self._transport.decode_answer(kind, line)

    def _get(self, kind: type[T], path: str, query: Iterable[tuple[str, Any]] = (), more_s: float = 0.0) -> T:
        target = _target(path, query)
        answer = self._transport.ask("GET", target, None, _AGAIN, question=True, more_s=more_s)
        return self._transport.decode_answer(kind, answer)

    def _post(
        self,
        kind: type[T],
        path: str,
        body: Any = None,
        pauses: tuple[float, ...] = _ONCE,
        *,
        question: bool = False,
        more_s: float = 0.0,
    ) -> T:
        data = None if body is None else dumps(encode(body)).encode("utf-8", "surrogatepass")
        answer = self._transport.ask("POST", path, data, pauses, question=question, more_s=more_s)
        return self._transport.decode_answer(kind, answer)


def _sent_events(pieces: Iterator[bytes]) -> Iterator[Optional[bytes]]:
    """Yield the data of each server-sent event. Yield None for each comment line, which is a heartbeat."""
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
