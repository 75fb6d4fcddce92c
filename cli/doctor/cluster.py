"""Checks the cluster through the controller: controllers, nodes, engines and notifications."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from cli.commands.nodes.preflight import check_hosts
from cli.doctor.findings import FAIL, OK, WARN, Finding, verdict_of
from wire import VERSION
from wire.api.nodes import NodeRequest, NodeView
from wire.api.service.engines import EngineView
from wire.http.client import Client, Refused
from wire.text import counted, duration, printable

SHOWN_NAMES = 5


def check_cluster(client: Client, *, thorough: bool) -> list[Finding]:
    """Return the findings about the cluster. With `thorough`, log in to each node, and test each engine;
    operators only.
    """
    engines = client.engines().engines
    foreign = {name for each in engines for name in each.nodes}
    nodes = [each for each in client.nodes().nodes if each.name not in foreign]
    parts: list[Callable[[], list[Finding]]] = [
        lambda: _controllers(client),
        lambda: _last_commit(client),
        lambda: _nodes(nodes),
        lambda: _engines(client, engines, thorough),
        lambda: _notify(client),
        lambda: _hosts(nodes) if thorough else [],
    ]
    found: list[Finding] = []
    for part in parts:
        try:
            found += part()
        except Refused as refused:
            found.append(Finding("rights", WARN, refused.problem.message, refused.problem.hint))
    return found


def _controllers(client: Client) -> list[Finding]:
    view = client.controllers()
    if not view.leader:
        remedy = "Wait 10 s for a take-over. Then look at the logs of the controllers."
        return [Finding("leader", FAIL, "no controller leads", remedy)]
    standbys = [each for each in view.controllers if each.role == "standby"]
    leader = next((each.host for each in view.controllers if each.role == "leader"), view.leader)
    found = [Finding("leader", OK, f"{printable(leader)} leads, with {counted(len(standbys), 'standby')}")]
    for each in view.controllers:
        name = f"{printable(each.host)}/{each.pid}"
        if each.role == "silent":
            message = f"controller {name} has not reported for {duration(each.seen_s)}"
            found.append(Finding("standby", WARN, message, "Start it again, or look at its log."))
        elif each.version != VERSION:
            message = f"controller {name} has version {printable(each.version)}, and this program {VERSION}"
            found.append(Finding("standby", WARN, message, "Install the same version everywhere."))
    return found


def _last_commit(client: Client) -> list[Finding]:
    cluster = client.cluster()
    last = client.events(after=max(0, cluster.seq - 1), limit=1).events
    age = f"{duration(cluster.now - last[-1].at)} ago" if last else "never"
    return [Finding("commit", OK, f"the last entry of the journal is {cluster.seq}, written {age}")]


def _nodes(nodes: Sequence[NodeView]) -> list[Finding]:
    if not nodes:
        return [Finding("nodes", WARN, "the cluster has no node", "Add one: corral nodes add NAME USER@HOST")]
    lost = [each for each in nodes if each.state.away]
    connected = [each for each in nodes if each not in lost]
    found = [Finding("nodes", OK if connected else FAIL, f"{len(connected)} of {len(nodes)} are connected")]
    for each in lost:
        why = f": {printable(each.why, 300)}" if each.why else ""
        remedy = f"corral nodes check {each.name} shows what is wrong"
        found.append(Finding("node", FAIL, f"{each.name} is {each.state.value}{why}", remedy))
    found += _differences("agent", connected, lambda node: node.version, VERSION)
    return [*found, *_differences("driver", connected, lambda node: node.driver)]


def _differences(
    name: str, nodes: Sequence[NodeView], value: Callable[[NodeView], str], right: str = ""
) -> list[Finding]:
    """Return a warning for each group of nodes whose value is not `right`; without `right`, not the most
    common value.
    """
    known = [each for each in nodes if value(each)]
    if not known:
        return []
    right = right or Counter(map(value, known)).most_common(1)[0][0]
    others: dict[str, list[str]] = defaultdict(list)
    for each in known:
        if value(each) != right:
            others[value(each)].append(each.name)
    found = [
        Finding(
            name,
            WARN,
            f"{_listed(names)}: version {printable(other)}, and not {printable(right)}",
            "Install the same version on all nodes. Agents are renewed at the next connection.",
        )
        for other, names in others.items()
    ]
    return found or [Finding(name, OK, f"version {printable(right)} on {counted(len(known), 'node')}")]


def _engines(client: Client, engines: Sequence[EngineView], thorough: bool) -> list[Finding]:
    found = []
    for each in engines:
        remedy = f"corral engines show {each.name}"
        problem = client.test_engine(each.name).problem if thorough else each.problem
        if problem or each.open:
            message = f"{each.name} does not answer: {printable(problem or each.problem, 300)}"
            found.append(Finding("engine", FAIL, message, remedy))
        elif each.drained:
            words = f"{each.name} is drained: {printable(each.drained, 300)}"
            found.append(Finding("engine", WARN, words, f"corral engines resume {each.name}"))
        else:
            found.append(Finding("engine", OK, f"{each.name} answers"))
    return found


def _notify(client: Client) -> list[Finding]:
    found = []
    for each in client.notify().sinks:
        if each.problem:
            message = f"{each.name} accepts no messages: {printable(each.problem, 300)}"
            found.append(Finding("notify", FAIL, message, f"corral notify test {each.name}"))
        elif each.dead:
            message = f"{each.name} has given up {counted(each.dead, 'message')}"
            found.append(Finding("notify", WARN, message, "corral notify outbox, then corral notify retry"))
        else:
            found.append(
                Finding("notify", OK, f"{each.name}: {each.delivered} delivered, {each.waiting} wait")
            )
    return found


def _hosts(nodes: Sequence[NodeView]) -> list[Finding]:
    """Return the results of the preflight on each connected node, such as clock, spool, disk and GPU drivers.
    Equal results are one finding.
    """
    wanted = [NodeRequest(each.name) for each in nodes if not each.state.away]
    same: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    passed: list[str] = []
    for request, result in check_hosts(wanted, yes=False, fingerprint="", keys=False):
        bad = [each for each in result.checks if each.verdict != "ok"]
        passed += [] if bad else [request.name]
        for each in bad:
            same[each.name, verdict_of(each.verdict), each.found, each.remedy].append(request.name)
    found = [
        Finding(f"host {name}", verdict, printable(f"{_listed(names)}: {text}", 500), printable(remedy, 500))
        for (name, verdict, text, remedy), names in same.items()
    ]
    return [*([Finding("host", OK, f"{_listed(passed)}: all checks passed")] if passed else []), *found]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"{', '.join(names[:SHOWN_NAMES])}{more}"
