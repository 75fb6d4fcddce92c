"""The calls about the controller itself: configuration, events, notifications, reports and the store."""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, Optional

from wire.api.service.cluster import ClusterView, EventList, GpuLoadView, Health, PulseView, StreamBatch
from wire.api.service.config import ConfigAnswer, ConfigRequest, ConfigSettings, ConfigView, PolicyExplanation
from wire.api.service.controllers import ControllersView
from wire.api.service.reports import (
    BudgetReport,
    EstimateReport,
    FairnessReport,
    MonthReport,
    NodesReport,
    SlaReport,
    StintList,
    UsageList,
    WasteReport,
)
from wire.api.service.store import Compacted, CompactRequest, VerifyLine
from wire.http.calls.api_calls import ApiCalls, Query, target_of
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

SILENCE_S = 15.0
"""A stream counts as lost after this many seconds without data. The controller sends a heartbeat every 5 s.
"""


class ServiceCalls(ApiCalls):
    def config_keys(self) -> ConfigSettings:
        """Return all keys of the configuration in effect, each with the place where it was set."""
        return self._get(ConfigSettings, "/v1/config/keys")

    def explain_policy(self, scope: str = "", name: str = "") -> PolicyExplanation:
        """Return an explanation, in sentences, of the scheduling policy for one user, project or queue. If
        `scope` is empty, return the explanation for the cluster and for all projects and queues.
        """
        return self._get(
            PolicyExplanation, "/v1/config/explain", [("scope", scope), ("name", name)] if scope else []
        )

    def config(self) -> ConfigView:
        return self._get(ConfigView, "/v1/config")

    def apply_config(self, request: ConfigRequest) -> ConfigAnswer:
        """Apply a configuration, or, if `request.dry_run` is True, only return what the configuration would
        change.
        """
        return self._post(ConfigAnswer, "/v1/config", request)

    def pulse(self, ring: str = "minutes", after: int = 0) -> PulseView:
        """Return figures of the cluster: for each second of the last 10 minutes if `ring` is `seconds`, for
        each minute of the last day if it is `minutes`.
        """
        return self._get(PulseView, "/v1/pulse", [("ring", ring), ("after", after)])

    def gpu_loads(
        self, *, nodes: Iterable[str] = (), jobs: Iterable[int] = (), points: int = 8
    ) -> GpuLoadView:
        """Return the loads of the GPUs of these nodes, and the mean loads of these jobs, over the last 10
        minutes.
        """
        query: Query = [("node", node) for node in nodes]
        query += [("job", job) for job in jobs]
        return self._get(GpuLoadView, "/v1/pulse/gpus", [*query, ("points", points)])

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
        """Ask the controller to deliver the selected messages of the outbox again at once."""
        return self._post(RetryAnswer, "/v1/notify/retry", request)

    def test_sink(self, request: SinkTest) -> SinkTestAnswer:
        """Send a test message to a sink, and return whether the sink accepted the message."""
        return self._post(SinkTestAnswer, "/v1/notify/test", request, more_s=300.0)

    def usage(
        self, by: str, since: int, until: Optional[int] = None, only: Mapping[str, str] = {}
    ) -> UsageList:
        """Return the GPU usage between `since` and `until`, in seconds since 1970. `by` is user, project,
        queue or job: the answer has the usage of each user, of each project, and so on. Without `until`, the
        usage up to now is returned. `only` selects jobs, for example {"project": "vision"}.
        """
        query: Query = [("by", by), ("since", since), *only.items()]
        return self._get(UsageList, "/v1/usage", query + ([("until", until)] if until is not None else []))

    def budgets(self) -> BudgetReport:
        """Return the usage of each project with a budget in the present month."""
        return self._get(BudgetReport, "/v1/reports/budgets")

    def controllers(self) -> ControllersView:
        """Return the controllers of the cluster, and which of them leads."""
        return self._get(ControllersView, "/v1/controllers")

    def verify(self) -> Iterator[VerifyLine]:
        return self._lines(VerifyLine, "/v1/store/verify")

    def compact(self, request: CompactRequest) -> Compacted:
        return self._post(Compacted, "/v1/store/compact", request)

    def stints(self, since: int, until: Optional[int] = None) -> StintList:
        """Return the GPU usage by processes that no job started, between `since` and `until`, in seconds
        since 1970.
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
        """Return the usage of one month by project, user or queue. `only` restricts the report to one
        project, user or queue, for example {"project": "vision"}.
        """
        return self._get(MonthReport, "/v1/reports/month", [("month", month), ("by", by), *only.items()])

    def nodes_report(self, since: int) -> NodesReport:
        """Return how the jobs on each node have ended since the time `since` (seconds since 1970), compared
        with the same jobs on other nodes.
        """
        return self._get(NodesReport, "/v1/reports/nodes", [("since", since)])

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
        """Return the health of the controller, with the name and the role of the user of this client."""
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
        for data in _sent_events(self._transport.listen(target_of("/v1/stream", query), SILENCE_S)):
            yield None if data is None else self._transport.decode_answer(StreamBatch, data)


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
