"""The policies and the cluster that the flags of `corral sim run` choose."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cli.exit_codes import CommandError
from cli.output.stderr import print_note
from cli.spec import units
from wire.text import counted

if TYPE_CHECKING:  # because numpy and pydantic are slow to import
    from controller.config import Config
    from controller.sim.cluster import Cluster
    from controller.sim.logs.job_log import JobLog
    from controller.sim.run import Policy

CPUS, MEMORY, MODEL = 64, "512G", "H100"


def one_of(kind: Any, word: str, option: str) -> Any:
    """The member of an enum that a flag names. Raises CommandError."""
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(each.value for each in kind)
        raise CommandError(f"{option}: {word!r} is none of {known}") from None


def choose_policies(
    chosen: Config, order: str, backfill: str, compare: str, estimate: str = "", profile: str = ""
) -> list[Policy]:
    """The policies to run. Raises CommandError before any of them runs."""
    from controller.registry import build_pipeline, installed_plugins
    from controller.sim.run import (
        Policy,
        name_of,
        policy_of,
        profile_of,
        with_estimate,
        with_order_and_backfill,
    )

    if compare and (order or backfill):
        raise CommandError("--compare names whole policies", "Leave --order and --backfill out.")
    if profile and (order or backfill or compare):
        raise CommandError("--profile names a whole policy", "Leave --order, --backfill and --compare out.")
    if backfill and backfill not in (kinds := sorted(installed_plugins("backfill"))):
        raise CommandError(f"--backfill: {backfill!r} is none of {', '.join(kinds)}")
    if order and order not in (known := sorted(["sjf", *installed_plugins("order")])):
        raise CommandError(f"--order: {order!r} is none of {', '.join(known)}")
    if profile:
        policies = [Policy(profile, profile_of(chosen, profile))]
    elif compare:
        policies = [policy_of(name.strip(), chosen) for name in compare.split(",") if name.strip()]
    else:
        config = with_order_and_backfill(chosen, order, backfill)
        policies = [Policy(name_of(config), config)]
    if estimate not in ("", "limit", "predicted"):
        raise CommandError(f"--estimate: {estimate!r} is none of limit, predicted")
    policies = [with_estimate(policy, estimate) for policy in policies]
    if not policies:
        raise CommandError("--compare names no policy")
    (name, count), *_ = Counter(policy.name for policy in policies).most_common()
    if count > 1:
        raise CommandError(f"--compare: {name!r} is there {count} times")
    for policy in policies:
        build_pipeline(policy.config)
    return policies


def choose_cluster(
    pool: int | None, nodes: int | None, gpus: int | None, cpus: int | None, memory: str, model: str
) -> Cluster | None:
    """The cluster that the flags describe; None if they describe none."""
    from controller.sim.cluster import nodes_of, pool_of

    kind = {"--gpus": gpus, "--cpus": cpus, "--memory": memory or None, "--model": model or None}
    given = [flag for flag, value in kind.items() if value is not None]
    if pool is not None and (nodes is not None or given):
        raise CommandError(
            f"--pool and {given[0] if given else '--nodes'} exclude each other",
            "A pool of processors has no nodes.",
        )
    if pool is not None:
        return pool_of(pool)
    if nodes is None and given:
        raise CommandError(
            f"{given[0]} says what each node has, but not how many there are", "Add --nodes N."
        )
    if nodes is None:
        return None
    try:
        mib = units.memory_mib(memory or MEMORY)
    except ValueError as error:
        raise CommandError(f"--memory: {error}") from None
    return nodes_of(nodes, gpus or 0, cpus or CPUS, mib, model or MODEL)


def find_cluster(read: JobLog, chosen: Config, *, explicit: bool) -> Cluster:
    """The cluster if no flag describes one; `explicit` if --config was given."""
    from controller.sim.cluster import cluster_of_config, pool_of

    if read.processors and not (explicit and chosen.nodes):
        width = counted(read.processors, "processor")
        print_note(f"on {width}, the size in the header of the log; --pool or --nodes changes it")
        return pool_of(read.processors)
    return cluster_of_config(chosen)
