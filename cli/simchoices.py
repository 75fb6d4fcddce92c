"""What the flags of `corral sim run` choose: policies and the cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cli import units
from cli.exits import Mistake
from cli.messages import note
from wire.text import counted

if TYPE_CHECKING:  # numpy and pydantic: only for those who simulate
    from controller.config import Config
    from controller.sim.cluster import Cluster
    from controller.sim.logs import Log
    from controller.sim.run import Policy

CPUS, MEMORY, MODEL = 64, "512G", "H100"


def one_of(kind: Any, word: str, option: str) -> Any:
    """The member of an enum that a flag names."""
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(each.value for each in kind)
        raise Mistake(f"{option}: {word!r} is none of {known}") from None


def choose_policies(
    chosen: Config, order: str, backfill: str, compare: str, estimate: str = "", profile: str = ""
) -> list[Policy]:
    """The policies to run; what is wrong with one is said before any of them runs."""
    from controller.core.plugin import Backfill
    from controller.registry import build_pipeline, installed
    from controller.sim.run import Policy, name_of, planned_by, policy_of, profile_of, varied

    if compare and (order or backfill):
        raise Mistake("--compare names whole policies", "Leave --order and --backfill out.")
    if profile and (order or backfill or compare):
        raise Mistake("--profile names a whole policy", "Leave --order, --backfill and --compare out.")
    if backfill:
        one_of(Backfill, backfill, "--backfill")
    if order and order not in (known := sorted(["sjf", *installed("order")])):
        raise Mistake(f"--order: {order!r} is none of {', '.join(known)}")
    if profile:
        policies = [Policy(profile, profile_of(chosen, profile))]
    elif compare:
        policies = [policy_of(name.strip(), chosen) for name in compare.split(",") if name.strip()]
    else:
        config = varied(chosen, order, backfill)
        policies = [Policy(name_of(config), config)]
    if estimate not in ("", "limit", "predicted"):
        raise Mistake(f"--estimate: {estimate!r} is none of limit, predicted")
    policies = [planned_by(policy, estimate) for policy in policies]
    if not policies:
        raise Mistake("--compare names no policy")
    (name, count), *_ = Counter(policy.name for policy in policies).most_common()
    if count > 1:
        raise Mistake(f"--compare: {name!r} is there {count} times")
    for policy in policies:
        build_pipeline(policy.config)
    return policies


def choose_cluster(
    pool: int | None, nodes: int | None, gpus: int | None, cpus: int | None, memory: str, model: str
) -> Cluster | None:
    """The cluster that the flags describe, if they do."""
    from controller.sim.cluster import nodes_of, pool_of

    kind = {"--gpus": gpus, "--cpus": cpus, "--memory": memory or None, "--model": model or None}
    given = [flag for flag, value in kind.items() if value is not None]
    if pool is not None and (nodes is not None or given):
        raise Mistake(
            f"--pool and {given[0] if given else '--nodes'} exclude each other", "A pool has no nodes."
        )
    if pool is not None:
        return pool_of(pool)
    if nodes is None and given:
        raise Mistake(f"{given[0]} says what each node has, but not how many there are", "Add --nodes N.")
    if nodes is None:
        return None
    try:
        mib = units.memory_mib(memory or MEMORY)
    except ValueError as error:
        raise Mistake(f"--memory: {error}") from None
    return nodes_of(nodes, gpus or 0, cpus or CPUS, mib, model or MODEL)


def find_cluster(read: Log, chosen: Config, *, explicit: bool) -> Cluster:
    """The cluster where no flag describes one; `explicit` if the configuration was named."""
    from controller.sim.cluster import configured, pool_of

    if read.processors and not (explicit and chosen.nodes):
        width = counted(read.processors, "processor")
        note(f"on {width}, as the log says it had; --pool or --nodes changes that")
        return pool_of(read.processors)
    return configured(chosen)
