"""The flags of `corral sim` that describe the simulated cluster and choose the scheduling policies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cli.exit_codes import CommandError
from cli.flags import FlagGroup, option
from cli.output.stderr import print_note
from wire import amounts
from wire.text import counted

# Import these modules only for type checks, because numpy and pydantic are slow to import.
if TYPE_CHECKING:
    from controller.config import Config
    from controller.sim.cluster import Cluster
    from controller.sim.logs.job_log import JobLog
    from controller.sim.run import Policy

MEMORY_MIB = 512 * 1024


def one_of(kind: Any, word: str, option: str) -> Any:
    """Return the value of the enum `kind` that `word` names. `word` is the value of the flag `option`. Raise
    CommandError if no value has this name.
    """
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(each.value for each in kind)
        raise CommandError(f"{option}: {word!r} is none of {known}") from None


@dataclass(frozen=True)
class ClusterFlags(FlagGroup):
    pool: Annotated[
        int | None,
        option(
            "--pool",
            "N",
            "Simulate N equal processors that are not divided into nodes.",
            min=1,
            max=10_000_000,
        ),
    ] = None
    nodes: Annotated[int | None, option("--nodes", "N", "Simulate N equal nodes.", min=1, max=10_000)] = None
    gpus: Annotated[
        int | None, option("--gpus", "N", "Number of GPUs of each node. Default: 0.", min=0, max=999)
    ] = None
    cpus: Annotated[
        int | None, option("--cpus", "N", "Number of CPUs of each node. Default: 64.", min=1, max=10_000)
    ] = None
    memory: Annotated[
        int | None,
        option("--memory", "SIZE", "Memory of each node. Default: 512G.", parser=amounts.memory_mib),
    ] = None
    model: Annotated[str | None, option("--model", "NAME", "Model of the GPUs. Default: H100.")] = None

    def cluster(self) -> Cluster | None:
        """Return the cluster that the flags describe; None if the user wrote none of these flags. Raise
        CommandError if the flags contradict each other.
        """
        from controller.sim.cluster import nodes_of, pool_of

        kind = {"--gpus": self.gpus, "--cpus": self.cpus, "--memory": self.memory, "--model": self.model}
        written = [flag for flag, value in kind.items() if value is not None]
        if self.pool is not None and (self.nodes is not None or written):
            raise CommandError(
                f"--pool and {written[0] if written else '--nodes'} cannot be combined",
                "A pool of processors has no nodes.",
            )
        if self.pool is not None:
            return pool_of(self.pool)
        if self.nodes is None and written:
            raise CommandError(
                f"{written[0]} describes each node, but the number of nodes is missing", "Add --nodes N."
            )
        if self.nodes is None:
            return None
        return nodes_of(
            self.nodes, self.gpus or 0, self.cpus or 64, self.memory or MEMORY_MIB, self.model or "H100"
        )


@dataclass(frozen=True)
class PolicyFlags(FlagGroup):
    """The flags that choose one scheduling policy, or several to compare."""

    config: Annotated[
        str, option("--config", "FILE", "The scheduler.toml whose scheduling policy and nodes are simulated.")
    ] = ""
    order: Annotated[
        str,
        option(
            "--order",
            "NAME",
            "Queue order: fifo, priority, shortest (or sjf), expected-remaining, attained-service, or the "
            "name of another plugin.",
        ),
    ] = ""
    backfill: Annotated[
        str,
        option("--backfill", "NAME", "Backfill: none, easy, easy-sjbf, conservative, aggressive or greedy."),
    ] = ""
    backfill_depth: Annotated[
        int | None,
        option(
            "--backfill-depth",
            "N",
            "With conservative backfill, make reservations only for the first N waiting jobs. Default: "
            "all waiting jobs with --backfill or --compare; without these options, backfill_depth of the "
            "scheduler.toml.",
            min=1,
            max=1_000_000,
        ),
    ] = None
    compare: Annotated[
        str,
        option(
            "--compare",
            "A,B,…",
            "Simulate the jobs once under each of the policies A, B, …: fcfs, sjf, easy, easy-sjbf, "
            "conservative, aggressive, greedy, attained-service, expected-remaining, or a .toml file. A "
            "policy with the suffix +predicted (e.g. easy+predicted) plans with predicted run times instead "
            "of time limits.",
        ),
    ] = ""

    def policies(self, chosen: Config, estimate: str = "", profile: str = "") -> list[Policy]:
        """Return the policies to simulate. Raise CommandError if a policy is invalid.

        1. With --compare, return the policies that this flag names.
        2. If `profile` is not empty, return the policy of the scheduler profile with this name in `chosen`.
        3. In any other case, return the policy of the configuration `chosen`, with the changes of --order and
           --backfill.

        `estimate`, the value of --estimate, and --backfill-depth apply to all these policies.
        """
        from controller.registry import build_pipeline, installed_plugins
        from controller.sim.run import (
            Policy,
            name_of,
            policy_of,
            profile_of,
            with_depth,
            with_estimate,
            with_order_and_backfill,
        )

        if self.compare and (self.order or self.backfill):
            raise CommandError(
                "--compare cannot be combined with --order or --backfill",
                "Each name of --compare is a whole policy.",
            )
        if profile and (self.order or self.backfill or self.compare):
            raise CommandError(
                "--profile cannot be combined with --order, --backfill or --compare",
                "A profile is a whole policy.",
            )
        if self.backfill and self.backfill not in (kinds := sorted(installed_plugins("backfill"))):
            raise CommandError(f"--backfill: {self.backfill!r} is none of {', '.join(kinds)}")
        if self.order and self.order not in (known := sorted(["sjf", *installed_plugins("order")])):
            raise CommandError(f"--order: {self.order!r} is none of {', '.join(known)}")
        if profile:
            policies = [Policy(profile, profile_of(chosen, profile))]
        elif self.compare:
            policies = [policy_of(name.strip(), chosen) for name in self.compare.split(",") if name.strip()]
        else:
            config = with_order_and_backfill(chosen, self.order, self.backfill)
            policies = [Policy(name_of(config), config)]
        if estimate not in ("", "limit", "predicted"):
            raise CommandError(f"--estimate: {estimate!r} is none of limit, predicted")
        policies = [with_estimate(policy, estimate) for policy in policies]
        if self.backfill_depth is not None:
            policies = [with_depth(policy, self.backfill_depth) for policy in policies]
        if not policies:
            raise CommandError("--compare names no policy")
        (name, count), *_ = Counter(policy.name for policy in policies).most_common()
        if count > 1:
            raise CommandError(f"--compare: {name!r} is listed {count} times")
        for policy in policies:
            build_pipeline(policy.config)
        return policies


def find_cluster(log: JobLog, config: Config, *, explicit: bool) -> Cluster:
    """Return the cluster to simulate, if no flag describes a cluster. `explicit` is true if the user wrote
    --config.

    1. If `explicit` is true and this configuration has nodes, return these nodes.
    2. If the header of the log has a number of processors, return a cluster with this number.
    3. In any other case, return the nodes of the configuration.
    """
    from controller.sim.cluster import cluster_of_config, pool_of

    if log.processors and not (explicit and config.nodes):
        width = counted(log.processors, "processor")
        print_note(f"on {width}, the size in the header of the log; --pool or --nodes changes it")
        return pool_of(log.processors)
    return cluster_of_config(config)
