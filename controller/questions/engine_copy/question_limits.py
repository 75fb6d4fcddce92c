"""Limits of questions (explain and what-if): how many are answered at the same time, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass

from controller.config import Config


@dataclass(frozen=True, slots=True)
class QuestionRules:
    """The settings of [questions] in scheduler.toml, with default values filled in."""

    at_once: int
    budget_s: float
    longest_s: float
    memory_mib: int

    @classmethod
    def of(cls, config: Config) -> QuestionRules:
        """Return the limits in a configuration. If the key `at_once` (questions that are answered at the same
        time) is 0, use half the number of CPU cores, but at least 2 and at most 8.
        """
        section = config.questions
        at_once = section.at_once or max(2, min(8, (os.cpu_count() or 1) // 2))
        return cls(at_once, section.budget_s, max(section.budget_s, section.longest_s), section.memory_mib)

    def within(self, asked_s: float | None) -> float:
        """Return the time limit of a question in seconds: the requested time, but at most `longest_s`. If no
        time is requested, return the default `budget_s`."""
        return self.budget_s if asked_s is None else min(asked_s, self.longest_s)
