"""The calls about the policy: quotas, shares, reservations, profiles, services and rebalancing."""

from __future__ import annotations

from typing import Optional

from wire.api.forecasts import Plan
from wire.api.policy.licences import LicenceList
from wire.api.policy.profiles import ProfileList, ProfileView
from wire.api.policy.projects import ProjectList, ProjectView
from wire.api.policy.queues import QueueList
from wire.api.policy.quotas import QuotaChange, QuotaList, QuotaView
from wire.api.policy.rebalance import Rebalanced, RebalanceRequest, RebalanceView
from wire.api.policy.reservations import ReservationList, ReservationView, ReserveRequest
from wire.api.policy.scheduler import SchedulerView, TopologyView, Triggered
from wire.api.policy.services import ScaleRequest, ServiceList, ServiceView
from wire.api.policy.shares import ShareList, ShareWeight
from wire.api.service.config import QuotaSync
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.http.calls.api_calls import ApiCalls, Query, quoted


class PolicyCalls(ApiCalls):
    def quotas(self) -> QuotaList:
        """Return the limits and the usage of all users, projects and queues that have a quota or jobs."""
        return self._get(QuotaList, "/v1/quotas")

    def quota(self, scope: str, name: str) -> QuotaView:
        """Return the limits and the usage of one user, project or queue."""
        return self._get(QuotaView, f"/v1/quotas/{quoted(scope)}/{quoted(name)}")

    def sync_quotas(self) -> QuotaSync:
        """Let the controller read the quotas from their source again, and apply those that have changed."""
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

    def trigger(self) -> Triggered:
        """Let the controller run a scheduling cycle at once."""
        return self._post(Triggered, "/v1/scheduler/trigger")

    def topology(self) -> TopologyView:
        """Return the network switches, and the topology of each node."""
        return self._get(TopologyView, "/v1/topology")

    def set_quota(self, scope: str, name: str, quota: Quota) -> QuotaView:
        return self._post(QuotaView, f"/v1/quotas/{quoted(scope)}/{quoted(name)}/set", QuotaChange(quota))

    def sync_quota(self, scope: str, name: str) -> QuotaView:
        """Let the controller read the limits of a project from the execution engine that sets them."""
        return self._post(QuotaView, f"/v1/quotas/{quoted(scope)}/{quoted(name)}/sync")

    def unset_quota(self, scope: str, name: str) -> QuotaView:
        """Remove the limits of a user, project or queue that `set_quota` has set. The limits in the
        configuration apply again.
        """
        return self._post(QuotaView, f"/v1/quotas/{quoted(scope)}/{quoted(name)}/unset")

    def profiles(self) -> ProfileList:
        return self._get(ProfileList, "/v1/profiles")

    def profile(self, name: str) -> ProfileView:
        return self._get(ProfileView, f"/v1/profiles/{quoted(name)}")

    def reservations(self) -> ReservationList:
        """Return the current and future reservations, ordered by start time."""
        return self._get(ReservationList, "/v1/reservations")

    def reservation(self, name: str) -> ReservationView:
        return self._get(ReservationView, f"/v1/reservations/{quoted(name)}")

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
        return self._post(ReservationView, f"/v1/reservations/{quoted(name)}/cancel")

    def services(self) -> ServiceList:
        """Return all services with their replicas."""
        return self._get(ServiceList, "/v1/services")

    def service(self, name: str) -> ServiceView:
        """Return one service with its replicas."""
        return self._get(ServiceView, f"/v1/services/{quoted(name)}")

    def restart_service(self, name: str) -> ServiceView:
        """Restart all replicas of a service in turn, as its `max_unavailable` allows. Return the service."""
        return self._post(ServiceView, f"/v1/services/{quoted(name)}/restart")

    def scale_service(self, name: str, replicas: Optional[int]) -> ServiceView:
        """Set the number of replicas of a service, and return the service. If `replicas` is None, the number
        in scheduler.toml applies again.
        """
        return self._post(ServiceView, f"/v1/services/{quoted(name)}/scale", ScaleRequest(replicas))

    def queues(self) -> QueueList:
        """Return all queues, with their policies and the resources that their jobs use."""
        return self._get(QueueList, "/v1/queues")

    def projects(self) -> ProjectList:
        """Return all declared projects, and all other projects that have had jobs."""
        return self._get(ProjectList, "/v1/projects")

    def project(self, name: str) -> ProjectView:
        """Return one project with its members, share, quota and budget."""
        return self._get(ProjectView, f"/v1/projects/{quoted(name)}")

    def licences(self) -> LicenceList:
        """Return all licences, with the jobs that hold each licence."""
        return self._get(LicenceList, "/v1/licences")

    def shares(self) -> ShareList:
        return self._get(ShareList, "/v1/shares")

    def set_share(self, change: ShareWeight) -> ShareList:
        """Change the weight or the limits of an organisation, a project or a user (`project/user`)."""
        return self._post(ShareList, "/v1/shares", change)
