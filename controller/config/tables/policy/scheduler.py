"""Tables for the scheduling policy: order, backfill, quotas, preemption, rebalancing and fair
share.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, field_validator, model_validator

from controller.config.tables.fields import (
    Name,
    PlainPath,
    Plugin,
    Section,
    WeightedPlugin,
    WithOptions,
)
from controller.config.tables.policy.strategies import STRATEGIES, Strategy, with_strategy
from controller.core.fairshare.usage import HALF_LIFE_S
from wire.job.licences import MAX_PER_LICENCE, NAME


def _resource(name: str) -> str:
    if name not in ("cpu", "memory", "gpu") and not name.startswith("gpu."):
        raise ValueError(
            f'{name!r} cannot be billed; write "cpu", "memory", "gpu", or a model such as "gpu.H100"'
        )
    return name


def _licence(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a licence: letters, digits, '.', '_', '@' and '-'")
    return name


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        raise ValueError(f'there is no time zone {name!r}; write a name such as "Europe/Berlin"') from None
    return name


TimeZone = Annotated[str, AfterValidator(_time_zone)]

Resource = Annotated[str, AfterValidator(_resource)]

LicenceName = Annotated[str, AfterValidator(_licence)]

LicenceCount = Annotated[int, Field(ge=0, le=MAX_PER_LICENCE)]

Billing = Annotated[float, Field(ge=0, le=1e12)]

Weight = Annotated[float, Field(gt=0, le=1_000_000)]


class FairShareSection(Section):
    """Sets how the usage of tenants is counted, and the weights and limits of organisations, projects and
    users: [fair_share].
    """

    half_life_s: float = Field(HALF_LIFE_S, ge=60, le=315_360_000)
    window_s: float | None = Field(None, ge=60, le=315_360_000)
    billing: dict[Resource, Billing] = {"gpu": 1.0}
    charge: Literal["sum", "dominant"] = "sum"
    held_hours: float = Field(1.0, ge=0, le=1_000)
    organisations: dict[Name, list[Name]] = {}
    weights: dict[Name, Weight] = {}
    soft_limits: dict[Name, Billing] = {}
    hard_limits: dict[Name, Billing] = {}
    off_queue: str = ""

    @field_validator("organisations")
    @classmethod
    def _one_place_each(cls, found: dict[str, list[str]]) -> dict[str, list[str]]:
        seen = dict.fromkeys(found, "is an organisation itself")
        for organisation, projects in found.items():
            for project in projects:
                if project in seen:
                    raise ValueError(f"the project {project!r} of {organisation!r} {seen[project]}")
                seen[project] = f"is one of {organisation!r} already"
        return found


FILTERS = ("available", "capacity", "gpu", "image", "selector", "affinity", "taints", "company")


class WaitingSection(Section):
    """Rules for waiting jobs: jobs whose dependency can no longer be met, jobs that wait for files, and the
    raise of the priority of jobs that have waited long.
    """

    hopeless: Literal["cancel", "hold"] = "cancel"
    data_roots: list[PlainPath] = []
    data_check_s: float = Field(10.0, ge=0.1, le=86_400)
    promote_after_s: float | None = Field(None, ge=60, le=31_536_000)
    promote_by: int = Field(10, ge=1, le=100)
    promote_most: int = Field(75, ge=0, le=100)


class SchedulerSection(Section):
    """The scheduling policy: order, backfill, filters, scorers, and what happens to jobs on lost nodes."""

    order: Plugin = Plugin(name="priority")
    then: Plugin | None = None
    backfill: str = "easy"
    backfill_delay_s: float = Field(600.0, ge=0, le=31_536_000)
    backfill_depth: int = Field(100, ge=1, le=1_000_000)
    gang_after_s: float = Field(86_400.0, ge=0, le=31_536_000)
    slice_s: float = Field(0.0, ge=0, le=31_536_000)
    wait_alarm: float = Field(10.0, ge=0, le=10_000)
    on_node_lost: Literal["wait", "requeue-after-lease", "manual"] = "wait"
    lease_s: float = Field(300.0, ge=1, le=86_400)
    lease_margin_s: float = Field(30.0, ge=0, le=86_400)
    down_after_s: float = Field(60.0, ge=0, le=86_400)
    heartbeat_s: float = Field(5.0, ge=0.1, le=3_600)
    filters: list[Plugin] = [Plugin(name=name) for name in FILTERS]
    strategy: Strategy = "thrift"
    scorers: dict[str, WeightedPlugin] = {
        name: WeightedPlugin(weight=weight) for name, weight in STRATEGIES["thrift"][0].items()
    }
    picker: Plugin = Plugin(name="thrift")
    unknown_projects: Literal["open", "default", "refuse"] | None = None
    time_zone: TimeZone = "UTC"
    waiting: WaitingSection = WaitingSection()

    @property
    def beat_s(self) -> float:
        """Return the seconds between two pings to an agent: at most a sixth of the lease. The lease is the
        time that jobs may run without a message from the controller.
        """
        return min(self.heartbeat_s, self.lease_s / 6)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, section: Any) -> Any:
        return with_strategy(section)


class BackfillSection(Section):
    """Sets the run times that backfill and start estimates assume, and how deadlines are protected:
    [backfill].
    """

    estimate: Literal["limit", "predicted"] = "limit"
    quantile: float = Field(0.9, gt=0, le=1)
    least_runs: int = Field(5, ge=1, le=32)
    deadlines: Literal["none", "guard", "lift"] = "none"
    score_starts_s: float = Field(300.0, ge=0, le=86_400)


class OvercommitSection(Section):
    """The factors for overcommit. Jobs may hold up to the node's CPUs and memory multiplied by these factors.
    With a factor above 1, jobs may hold more than the node has.
    """

    cpu: float = Field(1.0, ge=0.1, le=100)
    memory: float = Field(1.0, ge=0.1, le=100)


class QuotaSection(WithOptions):
    """The plugin from which the controller reads quotas, the options of the plugin, the time window of quotas
    on GPU-hours, and the rules for soft limits and for reclaim.
    """

    provider: Name = "local"
    window_s: float = Field(604_800.0, ge=3_600, le=2_678_400)
    soft_for_s: float = Field(259_200.0, ge=0, le=31_536_000)
    reclaim: Literal["wait", "preempt"] = "wait"


class PreemptionSection(Section):
    """Sets the waiting jobs that may preempt other jobs, and the running jobs that are protected. Preemption
    is off by default.
    """

    strategies: list[Plugin] = []
    grace_s: float = Field(60.0, ge=0, le=86_400)
    min_runtime_s: float = Field(300.0, ge=0, le=31_536_000)
    max_per_job: int = Field(3, ge=1, le=1_000_000)
    cooldown_s: float = Field(900.0, ge=0, le=31_536_000)
    rate: int = Field(100, ge=1, le=100_000)
    window_s: float = Field(3_600.0, gt=0, le=31_536_000)
    spare_ending_s: float = Field(300.0, ge=0, le=86_400)
    gang_gain: float = Field(0.0, ge=0, le=1_000_000)


class RebalanceSection(Section):
    """Sets whether running jobs are moved to other nodes, and how much lost work a move may cost. Rebalancing
    is off by default."""

    mode: Literal["off", "propose", "auto"] = "off"
    interval_s: float = Field(300.0, ge=1, le=604_800)
    kinds: list[Literal["defragment", "drain", "load"]] = ["defragment", "drain"]
    max_moves: int = Field(4, ge=1, le=1_000)
    max_gpu_hours: float = Field(8.0, ge=0, le=1_000_000)
    min_ratio: float = Field(2.0, ge=0, le=1_000_000)
    restart_s: float = Field(60.0, ge=0, le=86_400)
    horizon_s: float = Field(86_400.0, ge=1, le=31_536_000)
    gathered_hours: float = Field(1.0, ge=0, le=1_000)
    load_gap: float = Field(0.5, gt=0, le=1)
    without_checkpoint: bool = False
