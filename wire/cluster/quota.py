"""Quotas of users, projects and queues. A quota sets limits on the resources that running jobs use, and on
the numbers of running and waiting jobs.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Callable, Iterator, Mapping, Optional

from wire import amounts
from wire.dataclass import dataclass
from wire.text import memory

UNLIMITED = -1
"""The value of a limit that stands for "no limit". It also overrides the limit of the quota named '*'."""

SCOPES = ("user", "project", "queue")
MAX_MODEL = 100
"""The most characters of a GPU model's name in a quota."""
ANY_NAME = "*"
"""The name of the quota that applies to each user, project or queue without a quota of its own."""


@dataclass(frozen=True)
class GpuLimit:
    """A limit on the GPUs of one model: a number of GPUs, or a percentage of all GPUs of this model.

    If the limit is a percentage and its quota is in effect, `gpus` is the number of GPUs to which the
    percentage corresponds now.
    """

    gpus: Optional[float] = None
    percent: Optional[float] = None

    @property
    def text(self) -> str:
        """Return the limit as users write it, such as 16, 25% or none."""
        if self.percent is not None:
            return f"{self.percent:g}%"
        return "none" if self.gpus == UNLIMITED else f"{self.gpus or 0:g}"


def gpu_limit(text: str) -> GpuLimit:
    """Return the limit that a user wrote, such as 16, 25% or none. Raise ValueError for an invalid limit."""
    if text.lower() == "none":
        return GpuLimit(UNLIMITED)
    value = gpus_or_percent(text)
    return GpuLimit(percent=float(value)) if isinstance(value, Percent) else GpuLimit(value)


@dataclass(frozen=True)
class Limits:
    """Limits on the resources and jobs of a user, project or queue. If a limit is None, a more general quota
    may set it.
    """

    cpu_milli: Optional[int] = None
    memory_mib: Optional[int] = None
    gpus: Optional[float] = None
    running: Optional[int] = None
    queued: Optional[int] = None
    gpu_hours: Optional[float] = None
    gpus_percent: Optional[float] = None
    """The limit on GPUs as a percentage of all GPUs of the cluster. In a quota that an operator sets, `gpus`
    is then None. In a quota in effect, `gpus` is the number of GPUs to which the percentage amounts now.
    """
    gpus_per_model: Mapping[str, GpuLimit] = field(default_factory=dict)
    """Limits on GPUs by model. A name applies to all models that contain it as whole words: `H100` also to
    `NVIDIA H100 PCIe`.
    """

    def over(self, below: Limits) -> Limits:
        """Return a copy in which unset limits have the values of `below`, a more general quota. `gpus` and
        `gpus_percent` count as one limit: if this object sets one of the two, neither is taken from `below`.
        GPU models without a limit have the limits of `below`.
        """
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        if (self.gpus, self.gpus_percent) == (None, None):
            mine["gpus"], mine["gpus_percent"] = below.gpus, below.gpus_percent
        own = {model.casefold() for model in self.gpus_per_model}
        others = {
            model: limit for model, limit in below.gpus_per_model.items() if model.casefold() not in own
        }
        mine["gpus_per_model"] = {**others, **self.gpus_per_model}
        return Limits(
            **{
                name: getattr(below, name) if value is None and name not in _GPUS else value
                for name, value in mine.items()
            }
        )


_GPUS = ("gpus", "gpus_percent")

NO_LIMITS = Limits()


@dataclass(frozen=True)
class Amount:
    """One kind of limit: its name in commands, its field in `Limits`, and the functions that parse and print
    its value.
    """

    word: str
    field: str
    read: Callable[[str], Any]
    text: Callable[[Any], str]

    def read_limit(self, text: str) -> Any:
        """Return the value of a limit that a user wrote; "none" means no limit. Raise ValueError if the
        text is not a valid value.
        """
        if text.lower() == "none":
            return UNLIMITED
        try:
            return self.read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    @staticmethod
    def limits(values: Mapping[str, Any]) -> Limits:
        """Return Limits with these values, by field name. The values must come from `read_limit`."""
        found = dict(values)
        if isinstance(found.get("gpus"), Percent):
            found["gpus_percent"] = float(found.pop("gpus"))
        return Limits(**found)

    def limit_text(self, limits: Limits) -> str:
        """Return the value of this limit as text that `read_limit` can parse; empty if `limits` does not
        set it.
        """
        if self.field == "gpus" and limits.gpus_percent is not None:
            return f"{limits.gpus_percent:g}%"
        value = getattr(limits, self.field)
        return "" if value is None else "none" if value == UNLIMITED else self.text(value)


class Percent(float):
    """A percentage that a user wrote as the limit of a number of GPUs, such as 50%."""


def gpus_or_percent(text: str) -> float:
    """Return the number of GPUs that a user wrote, or a Percent for a text such as 50%. Raise ValueError if
    the text is neither.
    """
    number, sign, rest = text.strip().partition("%")
    if not sign:
        return amounts.gpus(text)
    percent = amounts.number(number.strip())
    if rest or percent > 100:
        raise ValueError(f"{text!r} is not a percentage from 0% to 100%")
    return Percent(percent)


AMOUNTS = (
    Amount("gpus", "gpus", gpus_or_percent, "{:g}".format),
    Amount("cpus", "cpu_milli", amounts.cores_milli, lambda milli: f"{milli / 1000:g}"),
    Amount("memory", "memory_mib", amounts.memory_mib, memory),
    Amount("running", "running", amounts.whole, str),
    Amount("queued", "queued", amounts.whole, str),
    Amount("gpu-hours", "gpu_hours", amounts.number, "{:g}".format),
)


@dataclass(frozen=True)
class Quota:
    """The limits of a user, project or queue. Jobs that would exceed a `hard` limit wait. Jobs that would
    exceed a `soft` limit start after all other jobs.

    A project may exceed its `hard` limit by the amounts in `borrow`, as long as other projects leave at least
    as much of their own quotas unused.
    """

    hard: Limits = NO_LIMITS
    soft: Limits = NO_LIMITS
    borrow: Limits = NO_LIMITS

    def over(self, below: Quota) -> Quota:
        """Return a quota with the limits that this quota sets. Limits that this quota does not set are taken
        from `below`, a more general quota.
        """
        return Quota(self.hard.over(below.hard), self.soft.over(below.soft), self.borrow.over(below.borrow))


def quota_problems(scope: str, quota: Quota) -> list[tuple[str, str]]:
    """Validate a quota. Return each mistake as (field name, sentence for users)."""
    found: list[tuple[str, str]] = []
    for part in fields(quota):
        limits: Limits = getattr(quota, part.name)
        for each in fields(limits):
            value = getattr(limits, each.name)
            where = f"{part.name}.{each.name}"
            if each.name == "gpus_per_model":
                found += _model_problems(where, limits.gpus_per_model)
            elif each.name == "gpus_percent":
                if value is not None and not 0 <= value <= 100:
                    found.append((where, "must be from 0 to 100"))
                if value is not None and limits.gpus is not None:
                    found.append((where, "cannot be set together with gpus"))
            elif value is not None and value != UNLIMITED and not 0 <= value <= 1 << 50:
                found.append((where, "must not be negative"))
            if value is not None and part.name == "soft" and each.name == "queued":
                found.append((where, "only a hard limit on queued jobs has an effect"))
            if value not in (None, {}) and part.name == "borrow":
                if scope != "project":
                    found.append((where, "only projects borrow from each other"))
                elif each.name in ("queued", "gpu_hours"):
                    found.append((where, "cannot be borrowed"))
    return found


def _model_problems(where: str, limits: Mapping[str, GpuLimit]) -> Iterator[tuple[str, str]]:
    for model, limit in limits.items():
        path = f"{where}.{model}"
        if not model or len(model) > MAX_MODEL or not model.isprintable():
            yield path, f"the name of a GPU model has 1 to {MAX_MODEL} printable characters"
        elif (limit.gpus is None) == (limit.percent is None):
            yield path, "needs either gpus or percent"
        elif limit.gpus is not None and limit.gpus != UNLIMITED and not 0 <= limit.gpus <= 1 << 50:
            yield path, "must not be negative"
        elif limit.percent is not None and not 0 <= limit.percent <= 100:
            yield path, "must be from 0 to 100"
