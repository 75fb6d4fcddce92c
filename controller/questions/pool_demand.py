"""Answers which waiting jobs would start on nodes that do not exist yet, for machine pools."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.engine import Engine
from controller.core.forecast.forecast import forecast, with_run_times
from controller.core.model.decision.decision import Refusal
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.inputs import agent_inputs, node_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.engines.pools.scale_out import Demand
from controller.questions.engine_copy.engine_copy import EngineCopy
from wire.agent.reports import Hello

WHO, BOOT = "machine pool", "hypothetical"
NO_DEMAND = Demand(0, 0, "")


def pool_demand(
    engine_copy: EngineCopy, pending: tuple[HypotheticalNodes, ...], asked: tuple[HypotheticalNodes, ...]
) -> Iterator[tuple[Demand, ...]]:
    """Yield, for each entry of `asked`, how many of its nodes waiting jobs would use although the ordered
    nodes `pending` come too. Yield nothing if a simulation was not ready in time.

    For each entry, on a copy of the engine:
    1. Forecast the queue until the nodes would be ready. Jobs that start meanwhile need no new node.
    2. Add the nodes `pending`, and run a scheduling cycle.
    3. Add the nodes of the entry one by one, with a cycle after each. The demand is the number of nodes up to
       the last one after which a job started on these nodes.

    Cost: a forecast until the nodes are ready, and one cycle for each node.
    Example: a gang requests 4 nodes. The cycles after nodes 1 to 3 start nothing, and the cycle after node 4
    starts the gang. The demand is 4 nodes.
    """
    found = []
    for each in asked:
        demand = engine_copy.on_copy(
            engine_copy.engine,
            lambda engine, each=each: _demand(engine_copy, engine, pending, each),  # type: ignore[misc]
        )
        if demand is None:
            return
        found.append(demand)
    yield tuple(found)


def _demand(
    engine_copy: EngineCopy, engine: Engine, pending: tuple[HypotheticalNodes, ...], asked: HypotheticalNodes
) -> Demand | None:
    engine.state.estimates = engine.state.estimates.read_only()
    at = engine_copy.now + asked.ready_in_s
    ahead = with_run_times(engine, predicted=bool(engine.state.estimates.runs))
    forecast(ahead, engine_copy.now, going=lambda _moment, _starts: engine_copy.in_time, last=at)
    if not engine_copy.in_time:
        return None
    for number, nodes in enumerate(pending):
        _add(ahead, f"pending-{number}", nodes, at)
    ahead.handle(Tick(), at)
    added: set[str] = set()
    started: list[int] = []
    needed = 0
    for number in range(asked.most):
        name = f"asked-{number}"
        if not _add(ahead, name, asked, at):
            break
        added.add(name)
        placed = [
            event.job
            for event in ahead.handle(Tick(), at).events
            if isinstance(event, JobPlaced) and not added.isdisjoint(each.node for each in event.allocations)
        ]
        started += placed
        needed = number + 1 if placed else needed
        if not len(ahead.state.queue):
            break
    project = ahead.state.jobs[started[0]].spec.project if started else ""
    return Demand(needed, len(started), project or "")


def _add(engine: Engine, name: str, nodes: HypotheticalNodes, at: float) -> bool:
    """Add a node to the engine, and return whether it was accepted."""
    added = engine.handle(node_inputs.AddNode(name, nodes.labels, None, WHO, nodes.taints), at)
    engine.handle(
        agent_inputs.AgentSaidHello(name, Hello(name, BOOT, BOOT, name, nodes.facts_of(name), ())), at
    )
    return not isinstance(added.reply, Refusal)
