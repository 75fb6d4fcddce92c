"""Makes the links to the nodes of scheduler.toml."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config, NodeSection
from controller.nodes.agent.arguments import AgentOptions
from controller.nodes.link import NodeLink
from controller.nodes.local import LocalLink
from controller.nodes.ssh.hosts import SshHosts


def links(config: Config, hosts: SshHosts, cluster: str) -> Iterator[NodeLink]:
    """A link for each node of the file, not open yet."""
    return (link(config, hosts, cluster, name) for name in config.nodes)


def link(config: Config, hosts: SshHosts, cluster: str, name: str) -> NodeLink:
    """The link to a node of the file: by SSH, or to an agent on the controller's machine."""
    section = config.nodes[name]
    host = section.host
    return _local(config, cluster, name, section) if host is None else hosts.link(name, host)


def changed_links(old: Config, new: Config) -> list[str]:
    """The nodes in both files whose agent must be restarted, because its arguments differ."""
    both = [name for name in new.nodes if name in old.nodes]
    if shared_arguments(old) != shared_arguments(new):
        return both
    return [name for name in both if _arguments(old, name) != _arguments(new, name)]


def shared_arguments(config: Config) -> tuple[object, ...]:
    """The settings that all agents are started with."""
    return config.jobs.policy, config.scheduler.beat_s


def _arguments(config: Config, name: str) -> NodeSection:
    # Labels and taints are the controller's alone.
    return config.nodes[name].model_copy(update={"labels": {}, "taints": []})


def _local(config: Config, cluster: str, name: str, node: NodeSection) -> LocalLink:
    ping_s = config.scheduler.beat_s
    options = AgentOptions(
        node.gpus,
        node.cpus,
        node.memory,
        run_as_self=node.run_as_self,
        jobs=config.jobs.policy,
        scratch=node.scratch,
        scratch_dir=node.scratch_dir,
        cluster=cluster,
    )
    return LocalLink(
        name, config.spool(name), python=node.python, agent=options, ping_s=ping_s, silence_s=3 * ping_s
    )
