"""API bodies for quotas, and how much of each quota a tenant uses."""

from __future__ import annotations

from typing import Optional

from wire.api.policy.shares import HoursInForce
from wire.cluster.quota import ANY_NAME, UNLIMITED, Amount, Limits, Quota
from wire.dataclass import dataclass
from wire.text import decimal


@dataclass(frozen=True)
class QuotaChange:
    """The body of a request to change a quota. Limits that are None stay unchanged."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """Limits and usage of a user, project or queue. `edited` is True if a command has set the limits, and
    False if the limits come from the configuration. `budget` is the usage of a project's budget as text, such
    as `80 % of 2026-11: 4,000 of 5,000 GPU-hours`; empty if there is no budget.
    """

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool
    policy: tuple[str, ...] = ()
    """For a queue, phrases that describe its policy in scheduler.toml, as in QueueView."""
    budget: str = ""
    gpu_hours_planned: float = 0.0
    """The GPU-hours that running jobs will still use if each runs until its time limit. They count towards
    the limit on GPU-hours. A job without a time limit counts as if it ran for the whole time window of this
    limit.
    """

    source: str = ""
    """A text about limits that an execution engine sets: the engine, the age of the limits, and how the
    engine's count of the usage differs from Corral's. Empty if no engine sets the limits.
    """

    def counted(self, field: str) -> float:
        """Return the amount that is compared with the limit `field` of Limits, such as `gpus`."""
        used: float = getattr(self.used, field) or 0
        return used + self.gpu_hours_planned if field == "gpu_hours" else used

    def use_text(self, amount: Amount) -> str:
        """Return the usage of one resource and its hard limit as text, such as 12/16, or 12 without a limit.
        For GPU-hours with a limit, the text also has the GPU-hours that running jobs may still use: 12+30/100
        means 12 used, 30 planned and a limit of 100.
        """
        used, hard = getattr(self.used, amount.field) or 0, getattr(self.quota.hard, amount.field)
        bound = "" if hard in (None, UNLIMITED) else f"/{amount.text(hard)}"
        if self.name == ANY_NAME:
            return f"-{bound}"
        if amount.field != "gpu_hours":
            return f"{amount.text(used)}{bound}"
        more = f"+{_hours(self.gpu_hours_planned)}" if bound and self.gpu_hours_planned else ""
        return f"{_hours(used)}{more}{bound}"


def _hours(hours: float) -> str:
    return decimal(hours).removesuffix(".0")


def model_use_text(view: QuotaView) -> str:
    """Return the usage and the hard limit of each GPU model with a limit, such as `H100 12/16, A100 4/8`."""
    limits, used = view.quota.hard.gpus_per_model, view.used.gpus_per_model
    found = []
    for model in sorted({*limits, *used}):
        limit, use = limits.get(model), used.get(model)
        bound = "" if limit is None or limit.gpus in (None, UNLIMITED) else f"/{limit.gpus:g}"
        found.append(f"{model} {'-' if view.name == ANY_NAME or use is None else f'{use.gpus:g}'}{bound}")
    return ", ".join(found)


@dataclass(frozen=True)
class QuotaList:
    """Users, projects and queues that have a quota or jobs. GPU-hours are counted over the last `window_s`
    seconds.
    """

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int
    hours: Optional[HoursInForce] = None
    """The tables [hours.NAME] in force; None if there are no such tables."""
