"""Reads scheduler.toml: its tables, their defaults, and messages about mistakes."""

from controller.config.config import Config
from controller.config.differences import differences, digest, in_effect, policy_config, policy_text
from controller.config.errors import ConfigProblem, ConfigRefused, names_beside, nearest
from controller.config.key_positions import Key, Source
from controller.config.load import load, load_text, load_with_problems, problem_at, problem_of, render
from controller.config.settings import settings
from controller.config.tables.fields import Plugin, WeightedPlugin
from controller.config.tables.limits import LimitSection
from controller.config.tables.nodes import NodeSection
from controller.config.tables.policy.profiles import ProfileSection
from controller.config.tables.policy.scheduler import PreemptionSection, SchedulerSection
from controller.config.tables.queues import QueueSection
from controller.config.tables.service import RetentionSection

__all__ = [
    "Config",
    "ConfigProblem",
    "ConfigRefused",
    "Key",
    "LimitSection",
    "NodeSection",
    "Plugin",
    "PreemptionSection",
    "ProfileSection",
    "QueueSection",
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
    "settings",
]
