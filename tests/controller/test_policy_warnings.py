"""Warnings of `corral config check` about valid keys without effect, and the policy in sentences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.config import Config, load_text
from controller.core.pipeline.pipeline import Pipeline
from controller.registry import build_pipeline, policy_warnings
from controller.registry.checks.policy_summary import (
    cluster_gpus,
    preemption_sentences,
    project_policies,
    queue_policies,
)
from controller.registry.checks.policy_warnings import CHECKS

HOME = Path(__file__).parents[2]

NODES = """
[nodes.gpu01]
gpus = "simulated:8xH100"
labels = { pool = "train" }
[nodes.gpu02]
gpus = "simulated:8xH100"
"""
"""Two nodes with 16 GPUs together."""


SERVICE = "[services.chat]\nuser = 'svc'\ncommand = ['serve']\n"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("CORRAL_"):
            monkeypatch.delenv(name)


def built(text: str) -> tuple[Config, Pipeline]:
    config = load_text(text, "scheduler.toml")
    return config, build_pipeline(config)


def warnings(text: str) -> list[str]:
    """The warnings as `KEY: MESSAGE. HINT`, without the position."""
    return [str(each).removeprefix(f"{each.origin}: ") for each in policy_warnings(*built(text))]


BAD = [
    (
        "notify_warnings",
        "[queues.default]\ndefault_time_limit_s = 60\n[notify.sinks.ops]\nkind = 'webhook'\n"
        "url = 'http://ops/'\n[notify.rules.all]\nwhen = ['mine.failed']\nsink = 'ops'",
        "notify.sinks.ops: messages are not signed",
    ),
    (
        "dead_hours",
        "[scheduler]\ntime_zone = 'UTC'\n[queues.default]\ndefault_time_limit_s = 60\n[hours.night]\n"
        "hours = ['sat']",
        "hours.night: has no effect, because it sets no quota and no weight. Write [hours.night.quota",
    ),
    (
        "dead_hours",
        "[scheduler]\ntime_zone = 'UTC'\n[queues.default]\ndefault_time_limit_s = 60\n"
        "[hours.a]\nhours = ['sat-sun']\nquota.users.ada.gpus = 4\n"
        "[hours.b]\nhours = ['sun']\nquota.users.ada.gpus = 4",
        "hours.b: has no effect, because [hours.a] comes first and sets the same keys",
    ),
    (
        "kept_gpus_above_cluster",
        "[nodes.n1]\ngpus = 'simulated:8xH100'\n[queues.default]\ndefault_time_limit_s = 60\n"
        "[queues.a]\npriority = 1\nkeep_free_gpus = 8",
        "queues.a.keep_free_gpus: all nodes have 8 GPUs, so no job that needs a part of a node starts in",
    ),
    (
        "hours_without_zone",
        "[queues.default]\ndefault_time_limit_s = 60\n"
        "[hours.night]\nhours = ['sat']\nquota.users.ada.gpus = 4",
        "hours.night.hours: these hours are in UTC, because no time zone is set. Set [scheduler]",
    ),
    (
        "ignored_weights",
        "[scheduler]\ntime_zone = 'UTC'\n[queues.default]\ndefault_time_limit_s = 60\n"
        "[hours.night]\nhours = ['sat']\nweights = { vision = 2 }",
        "hours.night.weights: has no effect, because the order 'priority' ignores the usage of projects.",
    ),
    (
        "unknown_queues",
        "[scheduler]\ntime_zone = 'UTC'\n[queues.default]\ndefault_time_limit_s = 60\n"
        "[hours.night]\nhours = ['sat']\nquota.queues.defalt.gpus = 2",
        "hours.night.quota.queues.defalt: there is no queue 'defalt', so this table has no effect.",
    ),
    (
        "dataset_warnings",
        "[queues.default]\ndefault_time_limit_s = 60\n[scheduler.scorers]\nfit = 1\n[datasets]\nnodes = 3",
        "datasets: has no effect without the scorer 'data'. Add data = 50 to [scheduler.scorers].",
    ),
    (
        "dataset_warnings",
        "[queues.default]\ndefault_time_limit_s = 60\n[datasets]\nretention_s = 0\nnodes = 3",
        "datasets.retention_s: its other keys have no effect, because retention_s = 0 keeps no reads of data",
    ),
    (
        "topology_warnings",
        "[queues.default]\ndefault_time_limit_s = 60\n[topology]\nweight = 3",
        "topology.weight: has no effect, because no switches are named. Set levels or switches.",
    ),
    (
        "dead_kept_gpus",
        "[queues.default]\ndefault_time_limit_s = 60\nkeep_free_gpus = 2",
        "queues.default.keep_free_gpus: has no effect, because no queue has a lower priority",
    ),
    (
        "dead_kept_gpus",
        "scheduler.time_zone = 'UTC'\n[queues.default]\ndefault_time_limit_s = 60\nkeep_free_hours = ['fri']",
        "queues.default.keep_free_hours: has no effect without keep_free_gpus",
    ),
    (
        "hours_without_zone",
        "[queues.default]\ndefault_time_limit_s = 60\nhours = ['sat-sun']",
        "queues.default.hours: these hours are in UTC, because no time zone is set. Set [scheduler]",
    ),
    (
        "dead_idle_rule",
        "[queues.default]\ndefault_time_limit_s = 60\nidle = 'cancel'\nidle_after_s = 0",
        "queues.default.idle: 'cancel' has no effect, because idle_after_s = 0 turns the check for idle",
    ),
    (
        "dead_exemptions",
        "[queues.default]\ndefault_time_limit_s = 60\nexempt = ['quota']",
        "queues.default.exempt[0]: 'quota' has no effect, because no user and no project has a quota",
    ),
    (
        "dead_exemptions",
        "[scheduler]\norder = 'fifo'\n[queues.default]\ndefault_time_limit_s = 60\nexempt = ['fair_share']",
        "queues.default.exempt[0]: 'fair_share' has no effect, because the order of jobs ignores the usage",
    ),
    (
        "dead_preemption_keys",
        "[queues.default]\ndefault_time_limit_s = 60\nmay_preempt = ['default']",
        "queues.default.may_preempt: has no effect, because [preemption] strategies is empty",
    ),
    (
        "dead_preemption_keys",
        "[preemption]\nstrategies = ['priority']\n"
        "[queues.default]\ndefault_time_limit_s = 60\nmay_preempt = ['a']\n"
        "[queues.a]\npreemptible = false",
        "queues.default.may_preempt[0]: has no effect, because queue 'a' is not preemptible",
    ),
    (
        "dead_preemption_keys",
        "[queues.default]\ndefault_time_limit_s = 60\npreemptible = false\nmin_runtime_s = 60",
        "queues.default.min_runtime_s: has no effect, because the queue is not preemptible",
    ),
    (
        "ignored_weights",
        '[scheduler]\norder = "priority"\n[fair_share]\nweights = { vision = 3 }',
        "fair_share.weights: has no effect, because the order 'priority' ignores the usage of projects. "
        'Set [scheduler] order to "multifactor" or "fair".',
    ),
    (
        "ignored_weights",
        '[scheduler]\norder = "priority"\n[projects.vision]\nweight = 3',
        "projects.vision.weight: has no effect, because the order 'priority' ignores the usage of projects. ",
    ),
    (
        "misspelt_projects",
        "[fair_share]\norganisations = { robotics = [] }\nweights = { robotics = 2 }\n"
        '[scheduler]\norder = "fair"\n[projects.vision]\norganisation = "robotcs"',
        "projects.vision.organisation: no other table names 'robotcs'. Did you mean 'robotics'?",
    ),
    (
        "ignored_weights",
        '[scheduler]\norder = { name = "multifactor", fair_share = 0.0 }\nthen = "fifo"\n'
        "[fair_share]\nsoft_limits = { vision = 3 }",
        "fair_share.soft_limits: has no effect, because the order 'multifactor' ignores the usage",
    ),
    (
        "misspelt_projects",
        "[projects.vision]\n[quota.projects.visoin]\ngpus = 4",
        "quota.projects.visoin: no other table names 'visoin'. Did you mean 'vision'?",
    ),
    (
        "misspelt_projects",
        '[scheduler]\norder = "fair"\n[quota.projects.speech]\ngpus = 16\n'
        '[fair_share]\nweights = { "speach/ada" = 2 }',
        "fair_share.weights.\"speach/ada\": no other table names 'speach'. Did you mean 'speech'?",
    ),
    (
        "misspelt_projects",
        '[projects.vision]\n[fair_share]\norganisations = { lab = ["visions"] }',
        "fair_share.organisations.lab[0]: no other table names 'visions'. Did you mean 'vision'?",
    ),
    (
        "misspelt_projects",
        '[scheduler]\norder = "fair"\n[fair_share]\nweights = { vision = 3, visoin = 1 }\n'
        "[quota.projects.vision]\ngpus = 16",
        "fair_share.weights.visoin: no other table names 'visoin'. Did you mean 'vision'? If not, declare "
        "it: [projects.visoin].",
    ),
    (
        "unknown_queues",
        "[queues.default]\nmax_time_limit_s = 60\n[queues.short]\n[quota.queues.shrot]\ngpus = 2",
        "quota.queues.shrot: there is no queue 'shrot', so this table has no effect. Did you mean 'short'?",
    ),
    (
        "labels_without_nodes",
        '[queues.default]\nmax_time_limit_s = 60\nselect = { pool = "trian" }' + NODES,
        "queues.default.select: no node of this file meets 'pool in trian', so its jobs cannot start. "
        "Correct it, or label a node.",
    ),
    (
        "labels_without_nodes",
        '[profiles.inference]\nnodes = ["gpu09"]' + NODES,
        "profiles.inference: no node of this file meets 'node in gpu09', so its jobs cannot start.",
    ),
    (
        "quotas_above_cluster",
        "[quota.users.ada]\ngpus = 4000" + NODES,
        "quota.users.ada.gpus: is more than the 16 GPUs of all nodes, so it limits nothing",
    ),
    (
        "unknown_models",
        "[quota.users.ada]\ngpus_per_model = { H100 = 4 }\nsoft = { gpus_per_model = { A200 = 2 } }" + NODES,
        "quota.users.ada.soft.gpus_per_model.A200: has no effect, because no node has this GPU.",
    ),
    (
        "dead_budgets",
        "[projects.a]\nbudget = { money = 100 }",
        "projects.a.budget.money: has no effect, because no resource has a price. Set [budgets] gpu_hour",
    ),
    (
        "unused_gpus",
        '[quota.projects."*"]\ngpus = 2\n[quota.projects.a]\ngpus = 8\n[quota.projects.b]\ngpus = 4\n'
        "borrow = { gpus = 12 }" + NODES,
        "quota.projects: the projects of this file may use 14 of 16 GPUs together, so 2 GPUs can be idle "
        "while jobs wait. Raise the quotas.",
    ),
    (
        "unused_gpus",
        '[quota.projects."*"]\ngpus = "10%"\n[quota.projects.a]\ngpus = "50%"',
        "quota.projects: the projects of this file may use 60 % of all GPUs together, so 40 % can be idle "
        "while jobs wait. Raise the percentages to 100 % together, or more.",
    ),
    (
        "unused_gpus",
        '[quota.projects.default]\ngpus = "50%"\n[quota.projects.a]\ngpus = "75%"\nborrow = { gpus = "25%" }',
        "quota.projects: the quotas of the projects are 125 % of all GPUs together. Projects that borrow may "
        "then hold GPUs that another project needs within its quota. Lower the percentages to 100 %",
    ),
    (
        "dead_borrow_keys",
        "[quota.projects.a]\ngpus = 16\nborrow = { gpus = 4 }" + NODES,
        "quota.projects.a.borrow.gpus: has no effect, because no other project has a quota of GPUs to lend",
    ),
    (
        "dead_borrow_keys",
        "[quota.projects.a]\nborrow = { gpus = 4 }\n[quota.projects.b]\ngpus = 16" + NODES,
        "quota.projects.a.borrow.gpus: has no effect, because the project has no quota of GPUs",
    ),
    (
        "dead_borrow_keys",
        '[quota]\nreclaim = "preempt"\n[quota.projects.a]\ngpus = 16' + NODES,
        "quota.reclaim: has no effect, because no project has `borrow`",
    ),
    (
        "queues_without_limit",
        "[queues.short]\nmax_time_limit_s = 60\n[queues.long]",
        "queues: no time limit in default, long. Plans assume that jobs without a limit end after their "
        "predicted run time, else after 1d00h ([jobs] default_time_limit_s). Set default_time_limit_s in ",
    ),
    (
        "queues_without_limit",
        "[jobs]\ndefault_time_limit_s = 0\n[queues.default]",
        "queues: no time limit in default. Plans assume that jobs without a limit never end. Set",
    ),
    (
        "dead_idle_rule",
        '[gpus]\nidle = "cancel"\nidle_after_s = 0',
        "gpus.idle: 'cancel' has no effect, because idle_after_s = 0 turns the check for idle GPUs off. Set",
    ),
    (
        "dead_rebalancing",
        '[rebalance]\nmode = "auto"\nkinds = []',
        "rebalance.mode: 'auto' has no effect, because `kinds` is empty. Set kinds, such as",
    ),
    (
        "dead_rebalancing",
        '[rebalance]\nmode = "auto"\n[nodes.gpu01]',
        "rebalance.mode: 'auto' has no effect, because there is only one node.",
    ),
    (
        "dead_rebalancing",
        '[rebalance]\nmode = "propose"\nmax_gpu_hours = 0',
        "rebalance.mode: 'propose' has no effect, because every move costs more than max_gpu_hours = 0.",
    ),
    (
        "dead_strategies",
        '[preemption]\nstrategies = ["priority", { name = "pressure", most = -1 }]',
        "preemption.strategies[1]: the strategy 'pressure' preempts no job: no job has a priority of -1",
    ),
    (
        "dead_strategies",
        '[profiles.a.preemption]\nstrategies = [{ name = "priority", least = 101 }]',
        "profiles.a.preemption.strategies[0]: the strategy 'priority' preempts no job: no job has a priority "
        "of 101 or more.",
    ),
    (
        "dataset_warnings",
        "[datasets]\nretention_s = 0",
        "datasets.retention_s: the scorer 'data' has no effect, because retention_s = 0 keeps no reads",
    ),
    (
        "unknown_models",
        "[budgets]\ngpu_hour_per_model = { H10 = 2.0 }" + NODES,
        "budgets.gpu_hour_per_model.H10: this price has no effect, because no node has this GPU.",
    ),
    (
        "undeclared_default_projects",
        "[projects.vision]\n[queues.default]\ndefault_time_limit_s = 60\ndefault_project = 'sandbox'",
        "queues.default.default_project: there is no project 'sandbox', so jobs without --project are",
    ),
    (
        "undeclared_default_projects",
        "[scheduler]\nunknown_projects = 'default'\n"
        "[queues.default]\ndefault_time_limit_s = 60\ndefault_project = 'sandbox'",
        "queues.default.default_project: there is no project 'sandbox', so jobs without --project go",
    ),
    (
        "refused_services",
        "[queues.default]\ndefault_time_limit_s = 60\n[queues.web]\nusers = ['ada']\n"
        + SERVICE
        + "queue = 'web'",
        "services.chat.queue: queue 'web' is not for user 'svc', so no replica can start.",
    ),
    (
        "services_without_nodes",
        SERVICE + "gpus = 9\nnodes = 1" + NODES,
        "services.chat: a replica needs 9 GPUs, and no node of this file has these resources. Request less",
    ),
    (
        "services_without_nodes",
        SERVICE + "gpus = 1\ngpu_models = ['A100']" + NODES,
        "services.chat: a replica needs 1 GPU of model A100, and no node of this file has these resources.",
    ),
    (
        "services_without_nodes",
        SERVICE + "replicas = 2\nselect = { pool = 'train' }\nspread = 'require'" + NODES,
        "services.chat.spread: 'require' puts each of 2 replicas on a node of its own, and 1 node",
    ),
    (
        "restart_delays",
        SERVICE + "restart_delay_s = 900",
        "services.chat.restart_delay_s: is more than restart_delay_most_s, so the delay is always 10m00s.",
    ),
]


@pytest.mark.parametrize(("check", "text", "warning"), BAD)
def test_key_without_the_expected_effect_is_warned_of(check: str, text: str, warning: str) -> None:
    (found,) = warnings(text)
    assert found.startswith(warning)
    (by_check,) = next(each for each in CHECKS if each.__name__ == check)(*built(text))
    assert found == str(by_check).removeprefix(f"{by_check.origin}: ")


def test_each_check_has_a_test() -> None:
    assert {check for check, _, _ in BAD} == {each.__name__ for each in CHECKS}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[scheduler]\norder = "priority"\nthen = "fair"\n[fair_share]\nweights = { vision = 3 }',
        '[profiles.a]\norder = "multifactor"\n[fair_share]\nweights = { vision = 3 }',
        '[preemption]\nstrategies = ["fair"]\n[fair_share]\nweights = { vision = 3 }',
        # Names in one table are different projects. So are names that differ in a number or a letter.
        "[projects.vision]\n[projects.visions]",
        '[scheduler]\norder = "fair"\n[fair_share]\nweights = { vision = 3, visions = 1 }',
        "[projects.team1]\n[quota.projects.team2]\ngpus = 4",
        "[projects.team-a]\n[quota.projects.team-b]\ngpus = 4",
        # Without tables of queues, every name is a queue.
        "[quota.queues.short]\ngpus = 2",
        # The project of jobs without --project has no quota, so its jobs may use all GPUs.
        "[quota.projects.a]\ngpus = 4" + NODES,
        # The number of GPUs is not known before the agent reports it.
        '[quota.users.ada]\ngpus = 4000\n[nodes.gpu01]\nssh = "gpu01"',
        '[queues.default]\nmax_time_limit_s = 60\n[queues.service]\nselect = { pool = "train" }' + NODES,
        '[quota.users."*"]\ngpus = 8\nsoft = { gpus = 8, running = 2 }' + NODES,
        '[quota]\nreclaim = "preempt"\n[quota.projects.a]\ngpus = 8\nborrow = { gpus = 8 }\n'
        "[quota.projects.b]\ngpus = 8" + NODES,
        '[rebalance]\nmode = "auto"' + NODES,
        # A replica of 12 GPUs takes 6 GPUs of each of two nodes.
        SERVICE + "gpus = 12" + NODES,
        # The number of GPUs is not known before the agents report them.
        SERVICE + 'gpus = 12\nreplicas = 2\n[nodes.gpu01]\nssh = "gpu01"\n[nodes.gpu02]\nssh = "gpu02"',
        '[preemption]\nstrategies = [{ name = "priority", least = 75, gap = 25 }, "pressure", "fair"]',
    ],
)
def test_sensible_keys_give_no_warning(text: str) -> None:
    assert warnings(text) == []


@pytest.mark.parametrize(
    "file", [HOME / "scheduler.toml", *sorted(HOME.glob("examples/*.toml"))], ids=lambda each: each.name
)
def test_shipped_files_give_no_warning(file: Path) -> None:
    assert warnings(file.read_text()) == []


def test_shares_of_projects_in_organisations() -> None:
    config, pipeline = built(
        '[scheduler]\norder = "fair"\n[fair_share]\norganisations = { lab = ["a", "b"] }\n'
        "weights = { lab = 3, b = 2 }\n[quota.projects.c]\ngpus = 8\nborrow = { gpus = 4 }\n" + NODES
    )
    assert cluster_gpus(config) == 16
    found = project_policies(config, pipeline)
    assert [(each.project, each.gpus) for each in found] == [("b", 8.0), ("a", 4.0), ("c", 4.0), ("*", None)]
    assert [each.sentence for each in found] == [
        "50.0 % of the cluster (8.0 GPUs); no quota",
        "25.0 % of the cluster (4.0 GPUs); no quota",
        "25.0 % of the cluster (4.0 GPUs); at most 8 GPUs; may borrow 4 GPUs",
        "weight 1 each; no quota",
    ]


def test_weights_and_organisations_of_project_tables_count() -> None:
    """There is no line for other projects, because their jobs are refused."""
    config, pipeline = built(
        '[scheduler]\norder = "fair"\n[fair_share]\nweights = { lab = 3 }\n'
        '[projects.a]\norganisation = "lab"\n[projects.b]\norganisation = "lab"\nweight = 2\n[projects.c]\n'
        + NODES
    )
    found = project_policies(config, pipeline)
    assert [(each.project, each.weight, each.gpus) for each in found] == [
        ("b", 2.0, 8.0),
        ("a", 1.0, 4.0),
        ("c", 1.0, 4.0),
    ]


def test_projects_have_no_share_if_the_order_ignores_weights() -> None:
    text = '[scheduler]\norder = "priority"\n[quota.projects.a]\ngpus = 8\nmemory = "1T"\ncpus = 1.5\n'
    a, others = project_policies(*built(text))
    assert (a.share, a.sentence) == (None, "at most 8 GPUs, 1.5 CPUs, 1T of memory; may not borrow")
    assert others.sentence == "no quota"


def test_queues_in_sentences() -> None:
    found = queue_policies(
        *built(
            "[queues.short]\npriority = 10\nmax_time_limit_s = 3600\nmax_running = 5\n"
            'users = ["ada", "bob"]\n'
            "[queues.long]\ndefault_time_limit_s = 3600\nmax_time_limit_s = 7200\n"
            'projects = ["vision"]\nselect = { pool = "train" }\n'
        )
    )
    assert {each.queue: each.sentence for each in found} == {
        "short": "queue priority 10; time limit 1h00m by default and at most; at most 5 running jobs; "
        "users ada, bob",
        "default": "queue priority 0; no time limit (plans assume the predicted run time, else 1d00h); "
        "all users",
        "long": "queue priority 0; time limit 1h00m by default, 2h00m at most; all users; "
        "only projects vision; only nodes with pool=train",
    }
    assert queue_policies(*built("")) == ()


URGENT = 'strategies = [{ name = "priority", least = 75, gap = 25 }]\n'


@pytest.mark.parametrize(
    ("limits", "only_operators"),
    [
        ("", True),
        ('[access.limits]\npriority = "HIGH"', False),
        ("[access.limits.users.ada]\npriority = 80", False),
        ('[access.limits.queues.urgent]\npriority = "HIGH"', False),
        ('[access.limits]\npriority = "HIGH"\n[access.limits.queues.urgent]\npriority = "LOW"', True),
    ],
)
def test_preemption_by_priority_in_a_sentence(limits: str, only_operators: bool) -> None:
    profile = f'[profiles.p]\nqueues = ["urgent"]\n[profiles.p.preemption]\n{URGENT}'
    (sentence,) = preemption_sentences(*built(profile + limits))
    begin = "profile p: jobs of priority 75 and above may preempt jobs whose priority is lower by 25 or more"
    assert sentence.startswith(begin)
    assert sentence.endswith("so only jobs of operators preempt") == only_operators


def test_other_preemption_strategies_in_sentences() -> None:
    text = '[quota]\nreclaim = "preempt"\n[preemption]\nstrategies = ["pressure", "fair"]\n'
    assert preemption_sentences(*built(text)) == (
        "jobs above priority 10 may preempt jobs of priority 10 and below",
        "tenants within their fair share may preempt jobs of tenants that hold more than 1.25 times theirs",
        "jobs within the quota of their project may preempt jobs of projects that borrow quota",
    )
    assert preemption_sentences(*built("")) == ()
