"""All hosts that are reached by SSH: what their links share, and links made of what is said about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.nodes.arguments import AgentOptions
from controller.nodes.knownhosts import KnownHosts
from controller.nodes.preflight import preflight
from controller.nodes.ssh import SshHost, SshLink
from controller.nodes.sshconnector import SshConnector
from wire.api.nodes import Preflight
from wire.hosts import HostSpec, read_address
from wire.policy import USUAL, JobPolicy


class Hosts:
    """One per controller."""

    def __init__(
        self,
        pinned: Callable[[], Mapping[str, str]],
        jobs: JobPolicy = USUAL,
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

    def link(self, name: str, host: HostSpec) -> SshLink:
        """The link to a node's agent, not yet open."""
        made, ping_s = read_host(host, self.jobs, self._cluster), self._heartbeat_s
        return SshLink(name, made, self.connector, ping_s=ping_s, silence_s=3 * ping_s)

    async def preflight(self, name: str, host: HostSpec, host_key: str = "") -> Preflight:
        """Ask a host everything; nothing is pinned."""
        return await preflight(
            name, read_host(host, cluster=self._cluster), self.connector, host_key, self._shared
        )


def read_host(host: HostSpec, jobs: JobPolicy = USUAL, cluster: str = "") -> SshHost:
    """As links want it."""
    return SshHost(
        read_address(host.ssh),
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
