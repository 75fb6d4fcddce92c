"""Makes the links to hosts that are reached by SSH, with the settings that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.nodes.agent.arguments import AgentOptions
from controller.nodes.preflight import preflight
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts
from controller.nodes.ssh.link import SshHost, SshLink
from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.api.nodes import Preflight
from wire.cluster.hosts import HostSpec, parse_ssh_address


class SshHosts:
    """The settings that all SSH links share; one per controller."""

    def __init__(
        self,
        pinned: Callable[[], Mapping[str, str]],
        jobs: JobPolicy = DEFAULT_JOB_POLICY,
        heartbeat_s: float = 5.0,
        shared: Sequence[str] = (),
        cluster: str = "",
    ) -> None:
        self.jobs = jobs
        self._cluster = cluster
        self._heartbeat_s = heartbeat_s
        self._shared = shared
        self.known = KnownHosts(pinned)
        self.connector = SshConnector(self.known)

    def reconfigure(self, jobs: JobPolicy, heartbeat_s: float, shared: Sequence[str]) -> None:
        """Use other settings for links that are made from now on."""
        self.jobs, self._heartbeat_s, self._shared = jobs, heartbeat_s, shared

    def link(self, name: str, host: HostSpec) -> SshLink:
        """A link to a node's agent, not open yet."""
        made, ping_s = ssh_host_of(host, self.jobs, self._cluster), self._heartbeat_s
        return SshLink(name, made, self.connector, ping_s=ping_s, silence_s=3 * ping_s)

    async def preflight(self, name: str, host: HostSpec, host_key: str = "") -> Preflight:
        """Check a host before it joins. Pins nothing."""
        return await preflight(
            name, ssh_host_of(host, cluster=self._cluster), self.connector, host_key, self._shared
        )


def ssh_host_of(host: HostSpec, jobs: JobPolicy = DEFAULT_JOB_POLICY, cluster: str = "") -> SshHost:
    """The host of a configuration or request, in the form that links use."""
    return SshHost(
        parse_ssh_address(host.ssh),
        host.identity,
        host.python,
        host.spool,
        host.address,
        AgentOptions(
            host.gpus,
            host.cpus,
            host.memory,
            run_as_self=host.run_as_self,
            jobs=jobs,
            scratch=host.scratch,
            scratch_dir=host.scratch_dir,
            cluster=cluster,
        ),
    )
