"""The policy in sentences for one project, one queue, one user, and the cluster."""

from __future__ import annotations

from controller.config import load_text
from controller.registry import build_pipeline
from controller.registry.checks.policy_explanation import configured_explainer, explanation

TEXT = """
[scheduler]
order = "fair"
[access]
operators = ["otto"]
[access.limits.users.ada]
priority = "HIGH"
[projects.vision]
members = ["ada", "bob"]
weight = 3.0
default_for = ["ada"]
budget = { gpu_hours = 1000.0, then = "stop" }
[projects.speech]
[queues.short]
priority = 10
max_time_limit_s = 3600.0
max_priority = "LOW"
projects = ["vision"]
[queues.gold]
users = ["bob"]
[quota.projects.vision]
gpus = 8
borrow = { gpus = 4 }
[quota.users.ada]
soft = { gpus = 2 }
[preemption]
strategies = ["priority"]
[nodes.gpu01]
gpus = "simulated:8xH100"
"""


def sentences(scope: str = "", name: str = "", text: str = TEXT) -> list[str]:
    config = load_text(text, "lab.toml")
    found = explanation(configured_explainer(config, build_pipeline(config)), scope, name)
    return [sentence for each in found.texts for sentence in each.sentences]


def test_project_with_members_share_quota_and_budget() -> None:
    assert sentences("project", "vision") == [
        "Only ada, bob and operators may submit to project vision.",
        "Jobs of ada without --project are in this project.",
        "With the weight 3 it is entitled to 75.0 % of the cluster, which is 6.0 of 8 GPUs, while all "
        "declared projects have waiting jobs.",
        "At the same time, its jobs may have at most 8 GPUs.",
        "Beyond this, its jobs may borrow 4 GPUs of what other projects leave unused of their quotas.",
        "Its budget for each month is 1,000 GPU-hours; when it is used up, its waiting jobs wait until the "
        "next month.",
    ]


def test_open_project_and_undeclared_project() -> None:
    speech = sentences("project", "speech")
    assert speech[0] == "All users may submit to project speech."
    assert speech[1] == "Its jobs may not use queue short."
    assert speech[-1] == "No quota limits its jobs."
    assert sentences("project", "speach") == [
        "Nothing declares project speach.",
        'A job in a project that nothing declares is refused ([scheduler] unknown_projects is "refuse").',
    ]


def test_queue() -> None:
    assert sentences("queue", "short") == [
        "Queue short has the priority 10.",
        "The scheduler tries its jobs before jobs of the queues default and gold.",
        "All users may submit to it.",
        "Time limit 1h00m by default and at most.",
        "Only projects vision.",
        "Job priority at most LOW.",
    ]
    assert sentences("queue", "any", "") == [
        "scheduler.toml has no table [queues.NAME], so queue any is like every other queue."
    ]


def test_user() -> None:
    assert sentences("user", "ada") == [
        "User ada may submit to the projects default, speech and vision.",
        "Jobs without --project are in project vision.",
        "The jobs may use the queues short and default.",
        "The jobs may not use queue gold, which accepts only other users.",
        "Above 2 GPUs, the jobs of the user start after all other jobs.",
        "The highest priority of a job is HIGH.",
        "In queue short it is LOW.",
        "The user may not exempt jobs from preemption.",
        "A job may ask for at most 1h00m before its first preemption.",
        "A job may ask for at most 1h00m to save its state and end.",
    ]
    assert sentences("user", "otto")[0] == "User otto is an operator."
    assert "User eve may submit to the projects default and speech." in sentences("user", "eve")


def test_cluster_names_the_order_and_preemption() -> None:
    found = sentences()
    assert found[0] == 'Waiting jobs start in the order "fair".'
    assert any("may preempt jobs whose priority is lower" in each for each in found)
    assert "No running job is preempted for a waiting job." in sentences(text="")
