"""scheduler.toml: what it may say, how it is read, and what is wrong with it in words for people."""

from controller.config.load import load, load_text, problem_at, problem_of, render
from controller.config.parts import Plugin, WeightedPlugin
from controller.config.profiles import ProfileSection
from controller.config.refusal import ConfigProblem, ConfigRefused, nearest
from controller.config.sections import (
    Config,
    FairShareSection,
    NodeSection,
    PreemptionSection,
    SchedulerSection,
)
from controller.config.source import Key, Source

__all__ = [
    "Config",
    "ConfigProblem",
    "ConfigRefused",
    "FairShareSection",
    "Key",
    "NodeSection",
    "Plugin",
    "PreemptionSection",
    "ProfileSection",
    "SchedulerSection",
    "Source",
    "WeightedPlugin",
    "load",
    "load_text",
    "nearest",
    "problem_at",
    "problem_of",
    "render",
]
