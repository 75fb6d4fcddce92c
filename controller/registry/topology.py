"""Makes the network topology of [topology], and finds mistakes and keys without effect in this table and in
[datasets].
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config, ConfigProblem, Key, nearest, problem_at
from controller.config.tables.topology import DatasetsSection, TopologySection
from controller.core.cluster.network_tree import NetworkTopology, NetworkTree, Path
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.scorers.preferences import DataScorer
from controller.registry.checks.policy_summary import policies
from wire.cluster.hostlist import expand_hostlist
from wire.text import counted, printable

_SHOWN = 4
"""The greatest number of names that a warning lists."""


def network_of(config: Config) -> NetworkTopology | None:
    """Return the network topology. Return None if [topology] names neither switches nor levels, or if its
    `weight`, the importance of a short network distance, is 0.
    """
    section = config.topology
    if not section.weight or not (section.levels or section.switches):
        return None
    return NetworkTopology(tuple(section.levels), _paths(config), section.weight)


def _paths(config: Config) -> dict[str, Path]:
    """Return, by node, the switches above the node, from the highest to the lowest. If the file puts a switch
    below two other switches, only the first of the two is used, and `topology_problems` reports the error.
    """
    switches, parent = config.topology.switches, _parents(config)
    paths: dict[str, Path] = {}
    for name, switch in switches.items():
        chain = [name]
        while (above := parent.get(chain[0], "")) and above not in chain:
            chain.insert(0, above)
        for node in expand_hostlist(switch.nodes) if switch.nodes else ():
            paths.setdefault(node, tuple(chain))
    return paths


def _parents(config: Config) -> dict[str, str]:
    """Return a dict from each switch to the switch directly above it. Switches without a switch above them
    are missing.
    """
    parent: dict[str, str] = {}
    for name, switch in config.topology.switches.items():
        for below in expand_hostlist(switch.switches) if switch.switches else ():
            parent.setdefault(below, name)
    return parent


def topology_problems(config: Config) -> Iterator[ConfigProblem]:
    """Yield the mistakes in [topology.switches]: a node or a switch below two switches, a switch that does
    not exist, and a switch below itself.
    """
    section, source = config.topology, config.source
    above_node: dict[str, str] = {}
    above_switch: dict[str, str] = {}
    for name, switch in section.switches.items():
        key: Key = ("topology", "switches", name)
        for kind, text, above in (
            ("node", switch.nodes, above_node),
            ("switch", switch.switches, above_switch),
        ):
            for below in expand_hostlist(text) if text else ():
                other = above.setdefault(below, name)
                if other != name:
                    message = f"{kind} {printable(below)!r} is below switch {printable(other)!r} already"
                    yield problem_at(source, key, message, "Name it below one switch only.")
        for below in expand_hostlist(switch.switches) if switch.switches else ():
            if below not in section.switches:
                hint = nearest(below, set(section.switches) - {name})
                yield problem_at(source, key, f"there is no switch {printable(below)!r}", hint)
    parent = _parents(config)
    for name in section.switches:
        seen, above_it = {name}, parent.get(name, "")
        while above_it and above_it not in seen:
            seen.add(above_it)
            above_it = parent.get(above_it, "")
        if above_it == name:
            key = ("topology", "switches", name)
            yield problem_at(source, key, "this switch is below itself", "A network tree has no rings.")


def topology_warnings(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each key of [topology] without effect, and for nodes of the file that are below no
    switch.
    """
    section, source = config.topology, config.source
    if not (section.levels or section.switches):
        if section.weight != TopologySection().weight:
            message = "has no effect, because no switches are named"
            yield problem_at(source, ("topology", "weight"), message, "Set levels or switches.")
        return
    if not section.weight:
        message = "has no effect, because weight is 0"
        yield problem_at(source, ("topology", "weight"), message, "Set a weight, such as 100.")
        return
    if not config.nodes:
        return
    nodes = {name: {**each.labels, "node": name} for name, each in config.nodes.items()}
    for index, level in enumerate(section.levels):
        if not any(level in labels for labels in nodes.values()):
            known = {label for labels in nodes.values() for label in labels}
            message = f"no node of this file has the label {printable(level)!r}"
            hint = nearest(level, known) or "Label the nodes, or correct the name."
            yield problem_at(source, ("topology", "levels", index), message, hint)
    for name, switch in section.switches.items():
        strange = (
            [each for each in expand_hostlist(switch.nodes) if each not in nodes] if switch.nodes else []
        )
        if strange:
            message = f"this file has no {_listed(strange)}"
            yield problem_at(source, ("topology", "switches", name), message, "Correct the host list.")
    topology = NetworkTopology(tuple(section.levels), _paths(config))
    apart = [name for name, labels in nodes.items() if not topology.path(labels)]
    if apart and len(apart) < len(nodes):
        verb = "is" if len(apart) == 1 else "are"
        message = f"{_listed(apart)} {verb} below no switch, so no gang is near it"
        yield problem_at(source, ("topology",), message, "Add it to a switch, or label it.")


def dataset_warnings(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning if [datasets] has no effect, because no scorer uses reads of data sets, or because no
    reads are stored (`retention_s` is 0)."""
    section = config.datasets
    if section == DatasetsSection():
        return
    key: Key = ("datasets",)
    scorers = [each for policy in policies(pipeline) for each in policy.scorers]
    if not any(each.weight and isinstance(each.scorer, DataScorer) for each in scorers):
        hint = "Add data = 50 to [scheduler.scorers]."
        yield problem_at(config.source, key, "has no effect without the scorer 'data'", hint)
    elif not section.retention_s:
        others = section != DatasetsSection(retention_s=0.0)
        what = "its other keys have" if others else "the scorer 'data' has"
        message = f"{what} no effect, because retention_s = 0 keeps no reads of data sets"
        yield problem_at(config.source, (*key, "retention_s"), message, "Set a retention.")


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(printable, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"node{'s' * (len(names) > 1)} {shown}{more}"


def topology_sentence(config: Config) -> str:
    """Return a sentence for operators about how near the nodes of a gang are placed to each other; empty
    without [topology]."""
    topology = network_of(config)
    if topology is None:
        return ""
    if topology.levels:
        return f"gangs are placed near each other by the labels {', '.join(topology.levels)}"
    tree = NetworkTree(topology, [{"node": name} for name in topology.paths])
    below = counted(len(topology.paths), "node")
    switches = "switch" if len(tree.switches) == 2 else "switches"
    where = f"{below} below {len(tree.switches) - 1} {switches} on {counted(tree.depth, 'level')}"
    return f"gangs are placed near each other: {where}"
