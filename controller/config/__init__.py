"""scheduler.toml: its tables, how it is read, and the messages about mistakes."""

from controller.config.ceilings import LimitSection
from controller.config.differences import differences, digest, in_effect, policy_config, policy_text
from controller.config.errors import ConfigProblem, ConfigRefused, names_beside, nearest
from controller.config.fields import Plugin, WeightedPlugin
from controller.config.key_positions import Key, Source
from controller.config.load import load, load_text, load_with_problems, problem_at, problem_of, render
from controller.config.profiles import ProfileSection
from controller.config.sections import (
    Config,
    FairShareSection,
    NodeSection,
    PreemptionSection,
    RetentionSection,
    SchedulerSection,
)

__all__ = [
    "Config",
    "ConfigProblem",
    "ConfigRefused",
    "FairShareSection",
    "Key",
    "LimitSection",
    "NodeSection",
    "Plugin",
    "PreemptionSection",
    "ProfileSection",
    "RetentionSection",
    "SchedulerSection",
    "Source",
    "WeightedPlugin",
    "differences",
    "digest",
    "in_effect",
    "load",
    "load_text",
    "load_with_problems",
    "names_beside",
    "nearest",
    "policy_config",
    "policy_text",
    "problem_at",
    "problem_of",
    "render",
]
