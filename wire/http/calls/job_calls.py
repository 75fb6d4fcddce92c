"""The calls about jobs and workloads: submit, show, change, output and commands in running jobs."""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import Any, Iterable, Iterator, Mapping, Optional

from wire.agent.orders import SignalTo
from wire.api.forecasts import Explanation, WhatIf, WhatIfAnswer
from wire.api.job_table import JobTable
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobList,
    JobsAnswer,
    JobsOrder,
    JobView,
    KeepRequest,
    LogMatch,
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
from wire.api.service.job_stats import JobStats
from wire.http.calls.api_calls import AGAIN, KEYED, ONCE, ApiCalls, JobName, Query, quoted, target_of
from wire.job.spec import JobSpec
from wire.job.steps import Step
from wire.names import JobState
from wire.workload.bodies import (
    WorkloadAnswer,
    WorkloadList,
    WorkloadPreview,
    WorkloadRequest,
    WorkloadRetry,
    WorkloadView,
)
from wire.workload.spec import WorkloadSpec

LOG_SEARCH_S = 30.0
"""Additional seconds to wait for the answer to a search in a log, because an agent reads the whole log."""


class JobCalls(ApiCalls):
    def submit(self, spec: JobSpec, *, key: str = "", as_user: str = "") -> Submitted:
        """Queue a job or an array. If a request is repeated with the same `key`, the job is queued only
        once.
        """
        request = SubmitRequest(spec, key or uuid.uuid4().hex, as_user)
        return self._post(Submitted, "/v1/jobs", request, KEYED)

    def sbatch(self, request: SbatchRequest) -> Submitted:
        """Queue a batch script with #SBATCH lines. If the connection is lost, a request without a key is not
        sent again.
        """
        return self._post(Submitted, "/v1/slurm/sbatch", request, KEYED if request.key else ONCE)

    def preview(self, spec: JobSpec, *, as_user: str = "") -> JobSpec:
        """Return the JobSpec that `submit` would queue, with default values filled in. Nothing is queued."""
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

    def job_table(
        self,
        columns: Iterable[str],
        *,
        jobs: Iterable[str] = (),
        labels: Mapping[str, str] = MappingProxyType({}),
        since: Optional[int] = None,
    ) -> JobTable:
        """Return a table with these columns of the jobs in `jobs`. If `jobs` is empty, return all jobs that
        have not ended; with `since` (seconds since 1970), also jobs that ended at this time or later.
        `labels` leaves only jobs with all these labels.
        """
        query: Query = [("column", name) for name in columns]
        query += [("job", job) for job in jobs]
        query += [("label", f"{key}={value}") for key, value in labels.items()]
        query += [] if since is None else [("since", since)]
        return self._get(JobTable, "/v1/job-table", query)

    def job(self, job: JobName) -> JobDetail:
        """Return one job, by its id, or by the id of an array element, such as 7_3."""
        return self._get(JobDetail, f"/v1/jobs/{quoted(job)}")

    def job_stats(self, job: JobName) -> JobStats:
        """Return the resources that the last attempt of a job requested, and the resources that it used."""
        return self._get(JobStats, f"/v1/jobs/{quoted(job)}/stats")

    def explain(self, job: JobName, *, within_s: Optional[float] = None) -> Explanation:
        """Return the reason why a job waits, and the forecast of its start. The controller computes for at
        most `within_s` seconds; None means the controller's default.
        """
        query: Query = [("within", within_s)] if within_s is not None else []
        return self._get(Explanation, f"/v1/jobs/{quoted(job)}/explain", query, more_s=within_s or 0.0)

    def what_if(
        self, changes: WhatIf, *, within_s: Optional[float] = None, only_first: bool = False
    ) -> WhatIfAnswer:
        """Return the effect that changes would have. Nothing is changed. The controller computes for at most
        `within_s` seconds; None means the controller's default. With `only_first` the controller stops when
        the forecast covers the next 24 hours and the starts of the first 200 jobs.
        """
        query: Query = [("within", within_s)] if within_s is not None else []
        query += [("part", "first")] if only_first else []
        target, more_s = target_of("/v1/what-if", query), within_s or 0.0
        return self._post(WhatIfAnswer, target, changes, AGAIN, question=True, more_s=more_s)

    def cancel(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/cancel")

    def change(self, job: JobName, changes: Mapping[str, Any]) -> JobView:
        """Change fields of a job's JobSpec. `changes` maps field names to JSON values."""
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/set", JobChange(changes))

    def signal(self, job: JobName, signal: str, to: SignalTo = SignalTo.HANDLERS) -> JobView:
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/signal", SignalRequest(signal, to))

    def signal_step(self, job: JobName, step: int, signal: str, *, cancel: bool = False) -> JobView:
        """Send a signal to the tasks of a step."""
        request = SignalRequest(signal, SignalTo.STEPS, step, cancel)
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/signal", request)

    def record_step(self, job: JobName, step: Step) -> int:
        """Record a step that has begun (its number is -1) or ended. Return the number of the step."""
        return self._post(StepRecorded, f"/v1/jobs/{quoted(job)}/steps", StepRequest(step)).number

    def checkpoint(self, job: JobName) -> JobView:
        """Let a running job save a checkpoint. The job continues."""
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/checkpoint")

    def hold(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/hold")

    def release(self, job: JobName) -> JobView:
        return self._post(JobView, f"/v1/jobs/{quoted(job)}/release")

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
        return self._transport.listen(target_of(f"/v1/jobs/{quoted(job)}/logs", query), silence_s)

    def search_log(
        self, job: JobName, text: str, *, stream: str = "stdout", offset: int = 0, back: bool = False
    ) -> LogMatch:
        """Search the output of the last attempt for a text, from byte `offset` on; with `back`, towards the
        beginning. `offset` -1 means the end.
        """
        query: Query = [("text", text), ("stream", stream), ("offset", offset)]
        query += [("back", 1)] if back else []
        return self._get(LogMatch, f"/v1/jobs/{quoted(job)}/logs/search", query, more_s=LOG_SEARCH_S)

    def open_shell(self, job: JobName, request: ShellRequest) -> str:
        """Run a command in the allocation of a running job. Return the id of the session. The caller must
        soon call read_shell, because the controller closes a session whose output is not read.
        """
        return self._post(ShellOpened, f"/v1/jobs/{quoted(job)}/shells", request).shell

    def read_shell(self, shell: str) -> Iterator[ShellSaid]:
        """Yield the output of a `corral exec` command. The last item is the end of the command."""
        return self._lines(ShellSaid, f"/v1/shells/{quoted(shell)}")

    def write_shell(self, shell: str, message: ShellGiven) -> None:
        """Send `message` to a `corral exec` command. The message has input, the end of the input, or a new
        size of the terminal window.
        """
        self._post(ShellOpened, f"/v1/shells/{quoted(shell)}/input", message)

    def submit_workload(self, spec: WorkloadSpec, *, key: str = "", as_user: str = "") -> WorkloadAnswer:
        """Queue all jobs of a workload, or none. If a request is repeated with the same `key`, the jobs are
        queued only once.
        """
        request = WorkloadRequest(spec, key or uuid.uuid4().hex, as_user)
        return self._post(WorkloadAnswer, "/v1/workloads", request, KEYED)

    def preview_workload(self, spec: WorkloadSpec, *, as_user: str = "") -> WorkloadPreview:
        """Return the jobs that `submit_workload` would queue, with default values filled in. Nothing is
        queued.
        """
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
        return self._get(WorkloadView, f"/v1/workloads/{quoted(workload)}")

    def cancel_workload(self, workload: JobName) -> WorkloadAnswer:
        """Cancel all jobs of a workload that have not ended."""
        return self._post(WorkloadAnswer, f"/v1/workloads/{quoted(workload)}/cancel")

    def retry_workload(self, workload: JobName, *, cancelled: bool = False) -> WorkloadAnswer:
        """Queue new jobs in place of the failed jobs of a workload, and in place of jobs that were cancelled
        because other jobs of the workload failed. With `cancelled`, also replace jobs that users have
        cancelled.
        """
        return self._post(WorkloadAnswer, f"/v1/workloads/{quoted(workload)}/retry", WorkloadRetry(cancelled))
