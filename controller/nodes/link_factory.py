"""Makes the connections to agents. All connections of a controller have the same ping interval and job
policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from controller.config import Config, NodeSection
from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.link import NodeLink
from controller.nodes.local import LocalLink
from controller.nodes.preflight import local_preflight, preflight
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts
from controller.nodes.ssh.link import SshLink
from wire.api.nodes import Preflight
from wire.cluster.hosts import HostSpec

MISSED_PINGS = 3
"""An agent counts as lost after this many ping intervals without a message from the agent."""


class LinkFactory:
    """Makes the connections of one controller to its agents. `cluster` is the name of the cluster."""

    def __init__(
        self,
        config: Config,
        pinned: Callable[[], Mapping[str, str]],
        cluster: str,
        leader: Leadership = ALONE,
    ) -> None:
        self.config = config
        """The configuration for all links that are made later."""
        self._cluster = cluster
        self._leader = leader
        self.connector = SshConnector(KnownHosts(pinned))

    def link(self, name: str, host: HostSpec) -> SshLink:
        """Return a connection, not opened yet, to the agent on a host that is reached by SSH."""
        ping_s, silence_s = self._intervals()
        jobs = self.config.job_policy
        return SshLink(
            name,
            host,
            self.connector,
            jobs,
            self._cluster,
            ping_s=ping_s,
            silence_s=silence_s,
            leader=self._leader,
        )

    def configured_link(self, name: str) -> NodeLink:
        """Return a connection, not opened yet, to a node of scheduler.toml: by SSH, or on the controller's
        machine."""
        node = self.config.nodes[name]
        if node.host is not None:
            return self.link(name, node.host)
        ping_s, silence_s = self._intervals()
        jobs = self.config.job_policy
        return LocalLink(
            name,
            self._here(name),
            jobs,
            self._cluster,
            ping_s=ping_s,
            silence_s=silence_s,
            leader=self._leader,
        )

    def _here(self, name: str) -> HostSpec:
        """Return the settings of a node of scheduler.toml on the controller's own machine, with its spool."""
        return replace(self.config.nodes[name].agent, spool=str(self.config.spool(name).absolute()))

    async def local_preflight(self, name: str) -> Preflight:
        """Run the checks of a host for a node of scheduler.toml that is the controller's own machine."""
        shared = self.config.cluster.shared
        return await local_preflight(name, self._here(name), self.config.job_policy, shared, self._cluster)

    async def preflight(self, name: str, host: HostSpec, host_key: str = "") -> Preflight:
        """Check whether a host can become a node. The host must have the SSH host key `host_key`; if this is
        empty, the pinned key, or else a key in known_hosts. The check pins no key.
        """
        shared = self.config.cluster.shared
        return await preflight(name, host, self.connector, host_key, shared, self._cluster)

    def _intervals(self) -> tuple[float, float]:
        """Return the seconds between two pings, and the seconds without a message after which an agent counts
        as lost."""
        ping_s = self.config.scheduler.beat_s
        return ping_s, MISSED_PINGS * ping_s


def changed_links(old: Config, new: Config) -> list[str]:
    """Return the nodes whose connections must be closed and opened again, because the new configuration
    changes the host, the arguments of the agent, or the ping interval. Nodes that are in only one of the
    configurations are left out.
    """
    both = [name for name in new.nodes if name in old.nodes]
    if shared_arguments(old) != shared_arguments(new):
        return both
    return [name for name in both if _arguments(old, name) != _arguments(new, name)]


def shared_arguments(config: Config) -> tuple[object, ...]:
    """Return the settings that all connections have in common: the job policy, which each agent gets as an
    argument, and the ping interval.
    """
    return config.job_policy, config.scheduler.beat_s


def _arguments(config: Config, name: str) -> NodeSection:
    # Leave out labels and taints, because the command line of the agent has no arguments for them.
    return config.nodes[name].model_copy(update={"labels": {}, "taints": []})
