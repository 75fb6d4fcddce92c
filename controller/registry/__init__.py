"""Builds the pipeline (all scheduling settings) from scheduler.toml: finds plugins, creates them, and checks
the tables.
"""

from controller.registry.checks.policy_warnings import policy_warnings
from controller.registry.pipeline import (
    build_pipeline,
    build_rules,
    check_config,
    gpu_health_policy_of,
    nodes_of,
)
from controller.registry.plugin_classes import METHODS, installed_plugins, make_plugin
from controller.registry.projects import named_projects, open_projects

__all__ = [
    "METHODS",
    "build_pipeline",
    "build_rules",
    "check_config",
    "gpu_health_policy_of",
    "installed_plugins",
    "make_plugin",
    "named_projects",
    "nodes_of",
    "open_projects",
    "policy_warnings",
]
