"""Checks that the state is consistent. Used only by tests, after each step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from controller.core.cluster.job_affinity import JobAffinityIndex
from controller.core.cluster.licences import licences_in_use
from controller.core.cluster.node_table import ABSENT
from controller.core.fairshare.share_tree import SharePath
from controller.core.lifecycle.waiting.dependencies import Target, targets_of_job
from controller.core.lifecycle.waiting.priority_inheritance import lend_targets
from controller.core.state.state import State
from wire.names import WHOLE_GPU, JobState, Reason

HOLDING = (JobState.SCHEDULED, JobState.RUNNING)


def find_violations(state: State) -> list[str]:
    """Return one sentence for each violated invariant; empty if the state is consistent."""
    return [
        *_check_queue(state),
        *_check_holders(state),
        *_check_claims(state),
        *_check_gpus(state),
        *_check_company(state),
        *_check_columns(state),
        *_check_accounts(state),
        *_check_inherited(state),
        *_check_budgets(state),
        *_check_licences(state),
        *_check_shares(state),
        *_check_replicas(state),
        *_check_workloads(state),
    ]


def _check_workloads(state: State) -> list[str]:
    live = Counter((job.workload, job.task) for job in state.live() if job.workload is not None)
    counted = {
        (workload.id, name): task.total - task.ended
        for workload in state.workloads.by_id.values()
        for name, task in workload.tasks.items()
    }
    wrong = [
        f"task {name} of workload {number} counts {counted.get((number, name))} unended jobs"
        for number, name in sorted(live.keys() | counted.keys())
        if counted.get((number, name)) != live[number, name]
    ]
    running = Counter(
        job.workload
        for job in state.live()
        if job.workload is not None and Reason.WORKLOAD not in job.wait.gates
    )
    for workload in state.workloads.by_id.values():
        most = workload.max_parallel
        if most is not None and running[workload.id] > most:
            wrong.append(
                f"workload {workload.id} has {running[workload.id]} jobs with a slot, and {most} slots"
            )
    return wrong


def _check_replicas(state: State) -> list[str]:
    live = {(job.replica.service, job.id) for job in state.live() if job.replica is not None}
    listed = {(service, job) for service, jobs in state.replicas.items() for job in jobs}
    wrong = [f"job {job} and the replicas of service {name} disagree" for name, job in sorted(live ^ listed)]
    staying: Counter[tuple[str, int]] = Counter(
        (job.replica.service, job.replica.number)
        for job in state.live()
        if job.replica is not None and job.stopping not in (Reason.SERVICE, Reason.USER)
    )
    wrong += [f"replica {each} has {count} jobs" for each, count in staying.items() if count > 2]
    return wrong


def _check_queue(state: State) -> list[str]:
    wrong = []
    for job in state.jobs.values():
        if job.ready != (job.id in state.queue):
            kept = f"held={job.held}, gates={job.wait.gates}"
            wrong.append(f"job {job.id} is {job.state.value}, {kept}, but in the queue: {not job.ready}")
        if job.state.terminal != (job.id in state.ended):
            wrong.append(
                f"job {job.id} is {job.state.value}, but listed as an ended job: {job.id in state.ended}"
            )
        if job.id >= state.next_job:
            wrong.append(f"job {job.id} has an id that is not below the next job id, {state.next_job}")
    return wrong


def _check_holders(state: State) -> list[str]:
    wrong = []
    claimed = set()
    for job in state.jobs.values():
        holding = {(job.id, member.allocation.node) for member in job.running}
        if bool(holding) != (job.state in HOLDING):
            wrong.append(f"job {job.id} is {job.state.value} and holds {len(holding)} allocations")
        claimed |= holding
    expected = sorted((job.expected_end, job.id) for job in state.jobs.values() if job.running or job.claim)
    if expected != state.releases:
        wrong.append("the index of expected ends is not that of the jobs that hold resources")
    given = {(job, node.name) for node in state.nodes for job in node.held}
    wrong += [
        f"job {job} and node {node} disagree on what the job holds" for job, node in sorted(claimed ^ given)
    ]
    return wrong


def _check_claims(state: State) -> list[str]:
    wrong = []
    kept = {(job.id, each.node) for job in state.jobs.values() for each in job.claim}
    if kept != {(job, node.name) for node in state.nodes for job in node.claims}:
        wrong.append("jobs and nodes disagree on nominations")
    if {job for job, _ in kept} != set(state.claims):
        wrong.append("the index of nominated jobs is wrong")
    wrong += [
        f"job {job} is nominated, but is neither queued nor being moved"
        for job in state.claims
        if state.jobs[job].held
        or (state.jobs[job].state is not JobState.QUEUED and state.jobs[job].stopping is None)
    ]
    for node in state.nodes:
        for victim, claimant in node.leaving.items():
            if victim not in node.held or claimant not in node.claims:
                wrong.append(
                    f"job {victim} is recorded as victim of job {claimant} on {node.name}, but one of them "
                    "holds no resources or nomination there"
                )
            elif state.jobs[victim].stopping is None and not state.jobs[victim].members[node.name].leaving:
                wrong.append(f"job {victim} is recorded as victim on {node.name}, but is not being stopped")
    return wrong


def _check_company(state: State) -> list[str]:
    fresh = JobAffinityIndex()
    for job in state.jobs.values():
        for allocation in (*job.claim, *(member.allocation for member in job.running)):
            fresh.add(job.ask.part, allocation.node)
    same = fresh.snapshot() == state.nodes.job_affinity.snapshot()
    return [] if same else ["the job affinity counts are not those of the placed jobs"]


def _check_gpus(state: State) -> list[str]:
    wrong = []
    for node in state.nodes:
        held: dict[str, int] = {}
        for allocation in node.held.values():
            for gpu in allocation.gpus:
                held[gpu.uuid] = held.get(gpu.uuid, 0) + gpu.milli
        wrong += [
            f"jobs hold {milli} of {WHOLE_GPU} thousandths of GPU {uuid} of {node.name}"
            for uuid, milli in held.items()
            if milli > WHOLE_GPU
        ]
    return wrong


def _check_columns(state: State) -> list[str]:
    nodes, columns = state.nodes, state.nodes.columns
    kept = (columns.open.copy(), columns.cpu_free.copy(), columns.memory_free.copy(), columns.gpu_free.copy())
    scratch = columns.scratch_free.copy()
    wrong = []
    if (kept[1] < 0).any() or (kept[2] < 0).any():
        wrong.append("jobs hold more CPU or memory than a node has")
    if ((kept[3] < 0) & (kept[3] != ABSENT)).any():
        wrong.append("jobs hold more of a GPU than it has")
    if [node.name for node in nodes] != sorted(nodes.by_name):
        wrong.append("the rows of the node table are not sorted by name")
    fresh = nodes.rebuilt_columns()
    # The node table keeps its GPU columns when nodes leave. Give the recomputed table the same number of
    # columns, so that the two tables can be compared.
    gpu_free = np.full_like(kept[3], ABSENT)
    gpu_free[:, : fresh.gpu_free.shape[1]] = fresh.gpu_free
    if not np.array_equal(scratch, fresh.scratch_free):
        wrong.append("column scratch_free differs from the sum of the allocations")
    for name, old, new in zip(
        ("open", "cpu_free", "memory_free", "gpu_free"),
        kept,
        (fresh.open, fresh.cpu_free, fresh.memory_free, gpu_free),
        strict=True,
    ):
        if not np.array_equal(old, new):
            wrong.append(f"column {name} differs from the sum of the allocations")
    return wrong


def _check_inherited(state: State) -> list[str]:
    """Return a sentence for each job with a wrong inherited priority. The right value is computed again from
    all dependencies.
    """
    lent: dict[Target, list[int]] = {}
    for job in state.live():
        for goal in lend_targets(job):
            lent.setdefault(goal, []).append(job.granted_priority)
    wrong = []
    for job in state.live():
        best = max((each for goal in targets_of_job(job) for each in lent.get(goal, ())), default=0)
        if job.wait.inherited != (best if best > job.spec.priority else 0):
            wrong.append(
                f"job {job.id} has inherited priority {job.wait.inherited}, but its dependents have {best}"
            )
    return wrong


def _check_accounts(state: State) -> list[str]:
    """Return a sentence for each user, project or queue whose usage counters differ from a new count."""
    fresh = state.accounts.counted_again(state.jobs.values())
    keys = {*fresh.by_key, *state.accounts.by_key}
    return [
        f"the counters of {scope} {name} are {kept}, but its jobs hold {used}"
        for scope, name in sorted(keys)
        if (kept := state.accounts.tenant((scope, name)).used) != (used := fresh.tenant((scope, name)).used)
    ]


def _check_budgets(state: State) -> list[str]:
    """Return a sentence for each project whose charged GPUs, CPUs or memory differ from a new count."""
    running: dict[str, dict[str, int]] = {}
    hosts: dict[str, tuple[int, int]] = {}
    for job in state.live():
        for member in job.running if job.spec.project in state.budgets.rules.budgets else ():
            if member.started_at is not None:
                models, found = (
                    state.models_of_node(member.allocation.node),
                    running.setdefault(job.spec.project, {}),
                )
                cpu_milli, memory_mib = hosts.get(job.spec.project, (0, 0))
                held = member.allocation
                hosts[job.spec.project] = cpu_milli + held.cpu_milli, memory_mib + held.memory_mib
                for hold in member.allocation.gpus:
                    model = models.get(hold.uuid, "")
                    found[model] = found.get(model, 0) + hold.milli
    return [
        f"project {project} is charged for {charged}, but {runs} runs"
        for project, use in state.budgets.uses.items()
        if (charged := (use.milli, use.cpu_milli, use.memory_mib))
        != (runs := (running.get(project, {}), *hosts.get(project, (0, 0))))
    ]


def _check_licences(state: State) -> list[str]:
    """Return a sentence for each licence whose number in use differs from a new count."""
    held, used = licences_in_use(state.jobs.values()), state.licences.used
    return [] if held == used else [f"the counted licences in use are {used}, but jobs hold {held}"]


def _check_shares(state: State) -> list[str]:
    """Return a sentence for each tenant whose number of unended jobs differs from a new count."""
    there: Counter[SharePath] = Counter()
    for job in state.live():
        path = state.tenant(job)
        there.update(path[:depth] for depth in range(len(path) + 1))
    return [
        f"share {'/'.join(path) or 'root'} is counted with {account.jobs} live jobs, but has {there[path]}"
        for path, account in state.shares.accounts.items()
        if account.jobs != there[path]
    ]
