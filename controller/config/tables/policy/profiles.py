"""[profiles.NAME]: a scheduling policy for some jobs on some nodes. A profile has only the keys that differ
from [scheduler].
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import Name, NodeName, Plugin, Section, WeightedPlugin
from controller.config.tables.policy.strategies import Strategy, with_strategy
from wire.job.placement.affinity import Operator, Term, parse_term, term_problems

_TOGETHER = ("order", "then")
"""Two keys that belong together. If a scheduler profile has the key `order` and not `then`, it does not get
`then` from [scheduler].
"""
_POLICY = (
    *_TOGETHER,
    "backfill",
    "backfill_delay_s",
    "backfill_depth",
    "filters",
    "strategy",
    "scorers",
    "picker",
)


def _term(text: str) -> str:
    for message in term_problems(parse_term(text)):
        raise ValueError(message)
    return text


class ProfilePreemption(Section):
    """The keys of [preemption] for which a scheduler profile has other values."""

    strategies: list[Plugin] | None = None
    grace_s: float | None = Field(None, ge=0, le=86_400)
    min_runtime_s: float | None = Field(None, ge=0, le=31_536_000)
    max_per_job: int | None = Field(None, ge=1, le=1_000_000)
    cooldown_s: float | None = Field(None, ge=0, le=31_536_000)
    rate: int | None = Field(None, ge=1, le=100_000)
    window_s: float | None = Field(None, gt=0, le=31_536_000)
    spare_ending_s: float | None = Field(None, ge=0, le=86_400)
    gang_gain: float | None = Field(None, ge=0, le=1_000_000)

    @property
    def keys_set(self) -> dict[str, Any]:
        """Return the keys that the file sets in the scheduler profile's preemption table, with
        their values.
        """
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


class ProfileSection(Section):
    """One scheduler profile: its jobs, its nodes, and the keys that differ from [scheduler]."""

    queues: list[Name] = []
    projects: list[Name] = []
    users: list[Name] = []
    nodes: list[NodeName] = []
    select: dict[str, str] = {}
    affinity: list[Annotated[str, AfterValidator(_term)]] = []
    order: Plugin | None = None
    then: Plugin | None = None
    backfill: str | None = None
    backfill_delay_s: float | None = Field(None, ge=0, le=31_536_000)
    backfill_depth: int | None = Field(None, ge=1, le=1_000_000)
    filters: list[Plugin] | None = None
    strategy: Strategy | None = None
    scorers: dict[str, WeightedPlugin] | None = None
    picker: Plugin | None = None
    preemption: ProfilePreemption = ProfilePreemption()

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, section: Any) -> Any:
        return with_strategy(section) if isinstance(section, dict) and "strategy" in section else section

    @property
    def policy(self) -> dict[str, Any]:
        """Return the scheduling settings of the scheduler profile. They replace the keys of the same names in
        [scheduler].
        """
        values = {name: value for name in _POLICY if (value := getattr(self, name)) is not None}
        if any(name in values for name in _TOGETHER):
            values["then"] = self.then
        return values

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the conditions on labels that a node must meet to belong to the scheduler profile."""
        named = (Term("node", Operator.IN, tuple(self.nodes)),) if self.nodes else ()
        labels = (Term(key, Operator.IN, (value,)) for key, value in self.select.items())
        return (*named, *labels, *map(parse_term, self.affinity))
