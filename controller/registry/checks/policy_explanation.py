"""Explains in sentences what the scheduling policy means for one project, one queue or one user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.config import Config
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.model.inputs.input import Requester
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.budget_rules import Budget, BudgetAction
from controller.core.quota.ceilings import Ceiling
from controller.core.quota.projects import DEFAULT_PROJECT, UnknownProjects
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quotas import Quotas
from controller.registry.checks.policy_summary import (
    ALL_USERS,
    QueuePolicy,
    cluster_gpus,
    limits_text,
    policies,
    preemption_sentences,
    project_policies,
    queue_policies,
    quotas_of,
    uses_shares,
)
from controller.registry.hours import hours_sentences
from controller.registry.topology import topology_sentence
from wire.api.service.config import PolicyExplanation, PolicyText
from wire.cluster.quota import ANY_NAME, Quota
from wire.names import priority_name
from wire.text import counted, duration, printable

_USED_UP = {
    BudgetAction.ALERT: "an event is recorded, and its jobs start as before",
    BudgetAction.LOW: "its waiting jobs start after all other jobs",
    BudgetAction.STOP: "its waiting jobs wait until the next month",
}


@dataclass(frozen=True)
class PolicyExplainer:
    """Explains a configuration. `quotas`, `weights` and `shares` include the changes that operators have
    made. `shares` maps each declared project to the fraction of the cluster to which the project is entitled.
    """

    config: Config
    pipeline: Pipeline
    quotas: Quotas
    weights: Mapping[str, float]
    shares: Mapping[str, float]
    declared: frozenset[str]
    """The projects that scheduler.toml or an operator declares."""

    def cluster(self) -> Iterator[str]:
        """Yield sentences about the whole cluster."""
        if self.pipeline.profiles:
            yield "Each scheduler profile has its own order of waiting jobs: 'corral profiles' shows it."
        else:
            yield f'Waiting jobs start in the order "{self.config.scheduler.order.name}".'
        yield from (f"{_capital(each)}." for each in preemption_sentences(self.config, self.pipeline))
        if not any(each.strategies for each in policies(self.pipeline)):
            yield "No running job is preempted for a waiting job."
        yield from (f"{_capital(each)}." for each in hours_sentences(self.config))
        if topology := topology_sentence(self.config):
            yield f"Topology: {topology}."
        yield _unknown_projects(self.pipeline.rules.projects.unknown)

    def project(self, name: str) -> Iterator[str]:
        """Yield sentences about a project."""
        rules, shown = self.pipeline.rules.projects, printable(name)
        if name not in self.declared and name != DEFAULT_PROJECT:
            yield f"Nothing declares project {shown}."
            yield _unknown_projects(rules.unknown)
            if rules.unknown is not UnknownProjects.OPEN:
                return
        if members := rules.members.get(name):
            yield f"Only {_names([*sorted(members), 'operators'])} may submit to project {shown}."
        else:
            yield f"All users may submit to project {shown}."
        users = sorted(user for user, project in rules.defaults.items() if project == name)
        if users:
            yield f"Jobs of {_names(users)} without --project are in this project."
        elif name == DEFAULT_PROJECT:
            yield "Jobs without --project are in this project, unless their queue or user has another one."
        yield from self._queues_of(name)
        yield from self._share(name)
        yield from _quota_sentences(self.quotas.quota(("project", name)), "its jobs")
        ceiling = self.pipeline.rules.ceilings.projects.get(name)
        if ceiling is not None and ceiling.priority is not None:
            most = priority_name(ceiling.priority)
            yield f"Users may request priority {most} at most for jobs in this project."
        budget = self.pipeline.rules.budgets.budgets.get(name)
        if budget is not None:
            yield _budget_sentence(budget, self.config.budgets.currency)

    def queue(self, name: str) -> Iterator[str]:
        """Yield sentences about a queue."""
        queues, shown = self._queues(), printable(name)
        if not queues:
            yield f"scheduler.toml has no table [queues.NAME], so queue {shown} is like every other queue."
            return
        policy = queues[name]
        above = [each for each, other in queues.items() if other.priority > policy.priority]
        below = [each for each, other in queues.items() if other.priority < policy.priority]
        yield f"Queue {shown} has the priority {policy.priority}."
        if above:
            yield f"The scheduler tries jobs of {_of_queues(above)} before its jobs."
        if below:
            yield f"The scheduler tries its jobs before jobs of {_of_queues(below)}."
        if not policy.users:
            yield "All users may submit to it."
        yield from (f"{_capital(each)}." for each in policy.phrases if each != ALL_USERS)

    def user(self, name: str) -> Iterator[str]:
        """Yield sentences about a user."""
        operator = name in self.config.access.operators
        rules, shown = self.pipeline.rules.projects, printable(name)
        asker = Requester(name, operator)
        if operator:
            yield f"User {shown} is an operator."
        projects = sorted(each for each in {*self.declared, DEFAULT_PROJECT} if rules.may_use(asker, each))
        yield f"User {shown} may submit to {_of_projects(projects)}."
        if rules.unknown is UnknownProjects.OPEN:
            yield _unknown_projects(rules.unknown)
        default = rules.defaults.get(name, DEFAULT_PROJECT)
        yield f"Jobs without --project are in project {printable(default)}."
        yield from self._queues_for(name)
        yield from _quota_sentences(self.quotas.quota(("user", name)), "the jobs of the user")
        usual = self._ceiling(asker, DEFAULT_QUEUE, default)
        if usual.priority is not None:
            yield f"The highest priority of a job is {priority_name(usual.priority)}."
        for queue in self._queues():
            most = self._ceiling(asker, queue, default).priority
            if most is not None and most != usual.priority:
                yield f"In queue {printable(queue)} it is {priority_name(most)}."
        if usual.not_preemptible is False:
            yield "The user may not exempt jobs from preemption."
        if usual.min_runtime_s is not None:
            yield f"A job may ask for at most {duration(usual.min_runtime_s)} before its first preemption."
        if usual.grace_s is not None:
            yield f"A job may ask for at most {duration(usual.grace_s)} to save its state and end."
        if usual.deadline is False:
            yield "Jobs may not have a deadline."

    def queue_names(self) -> list[str]:
        """Return the queues of scheduler.toml and the queue "default", the queue with the highest priority
        first. The result is empty if scheduler.toml has no queues.
        """
        return [*self._queues()]

    def _ceiling(self, asker: Requester, queue: str, project: str) -> Ceiling:
        return self.pipeline.rules.ceilings.in_force(asker, queue, project)

    def _queues(self) -> dict[str, QueuePolicy]:
        return {each.queue: each for each in queue_policies(self.config, self.pipeline)}

    def _queues_of(self, project: str) -> Iterator[str]:
        """Yield a sentence with the queues that do not accept jobs of the project, if there are any."""
        rules = self.pipeline.rules.queues
        closed = [name for name, each in rules.items() if each.projects and project not in each.projects]
        if closed:
            yield f"Its jobs may not use {_of_queues(closed)}."

    def _queues_for(self, user: str) -> Iterator[str]:
        """Yield a sentence with the queues that the user's jobs may use, and a second one with the queues
        that do not accept the user, if there are any. Yield nothing if the configuration has no queues.
        """
        rules: Mapping[str, QueueRule] = self.pipeline.rules.queues
        if not rules:
            return
        known = self._queues()
        closed = [
            name for name in known if name in rules and rules[name].users and user not in rules[name].users
        ]
        yield f"The jobs may use {_of_queues([name for name in known if name not in closed])}."
        if closed:
            yield f"The jobs may not use {_of_queues(closed)}, which accepts only other users."

    def _share(self, name: str) -> Iterator[str]:
        if not any(uses_shares(each.order) for each in policies(self.pipeline)):
            yield "Its weight has no effect, because the order of the queue does not compare projects."
            return
        weight, share = self.weights.get(name, 1.0), self.shares.get(name)
        if share is None:
            yield f"Its weight is {weight:g}, beside the projects that have jobs at the same time."
            return
        gpus = cluster_gpus(self.config)
        of_gpus = "" if gpus is None else f", which is {share * gpus:.1f} of {counted(gpus, 'GPU')}"
        yield (
            f"With the weight {weight:g} it is entitled to {100 * share:.1f} % of the cluster{of_gpus}, "
            "while all declared projects have waiting jobs."
        )


def _quota_sentences(quota: Quota, jobs: str) -> Iterator[str]:
    hard, soft, borrow = (limits_text(each) for each in (quota.hard, quota.soft, quota.borrow))
    if not hard and not soft:
        yield f"No quota limits {jobs}."
    if hard:
        yield f"At the same time, {jobs} may have at most {hard}."
    if borrow:
        yield f"Beyond this, {jobs} may borrow {borrow} of what other projects leave unused of their quotas."
    if soft:
        yield f"Above {soft}, {jobs} start after all other jobs."


def _budget_sentence(budget: Budget, currency: str) -> str:
    parts = []
    if budget.gpu_hours is not None:
        parts.append(counted(budget.gpu_hours, "GPU-hour"))
    if budget.money is not None:
        parts.append(f"{budget.money:,.12g} {currency or 'in money'}")
    return f"Its budget for each month is {' and '.join(parts)}; when it is used up, {_USED_UP[budget.then]}."


def _unknown_projects(unknown: UnknownProjects) -> str:
    where = f'([scheduler] unknown_projects is "{unknown.value}")'
    if unknown is UnknownProjects.OPEN:
        return f"A job may name any project, also one that nothing declares {where}."
    if unknown is UnknownProjects.DEFAULT:
        return f"A job in a project that nothing declares is put into project default {where}."
    return f"A job in a project that nothing declares is refused {where}."


def _of_queues(names: list[str]) -> str:
    return f"{'queue' if len(names) == 1 else 'the queues'} {_names(names)}" if names else "no queue"


def _of_projects(names: list[str]) -> str:
    return f"{'project' if len(names) == 1 else 'the projects'} {_names(names)}" if names else "no project"


def _names(names: list[str]) -> str:
    *most, last = map(printable, names)
    return f"{', '.join(most)} and {last}" if most else last


def _capital(phrase: str) -> str:
    return phrase[:1].upper() + phrase[1:]


def configured_explainer(config: Config, pipeline: Pipeline) -> PolicyExplainer:
    """Return the explainer of a configuration file, without changes by operators."""
    rows = [each for each in project_policies(config, pipeline) if each.project != ANY_NAME]
    return PolicyExplainer(
        config,
        pipeline,
        quotas_of(config, pipeline),
        {each.project: each.weight for each in rows if each.weight is not None},
        {each.project: each.share for each in rows if each.share is not None},
        pipeline.rules.projects.declared,
    )


def explanation(explainer: PolicyExplainer, scope: str, name: str) -> PolicyExplanation:
    """Return what the policy means for a user, a project or a queue. If `scope` is empty, return what the
    policy means for the cluster and for all declared projects and queues.
    """
    kinds = {"project": explainer.project, "queue": explainer.queue, "user": explainer.user}
    if scope:
        return PolicyExplanation((PolicyText(f"{scope} {name}", tuple(kinds[scope](name))),))
    subjects = [
        *(("project", each) for each in sorted(explainer.declared)),
        *(("queue", each) for each in explainer.queue_names()),
    ]
    return PolicyExplanation(
        (
            PolicyText("cluster", tuple(explainer.cluster())),
            *(PolicyText(f"{kind} {each}", tuple(kinds[kind](each))) for kind, each in subjects),
        )
    )
