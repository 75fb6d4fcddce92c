"""Writes each journal event as a sentence for users. Each kind of event has a template or a function."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from controller.core.model.events.attempts import BATCH_ENDED
from controller.core.model.events.nominations import WINDOW_CLOSED, move_cause
from wire.cluster.mig import counted_models
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU, Reason
from wire.text import counted, duration, printable

Facts = Mapping[str, Any]

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def sentence(kind: str, facts: Facts) -> str:
    """Return the sentence that describes an event of this kind with these fields. For a kind that this
    version of Corral does not have, return a text with the job or node and the kind, such as `job 17: gpu
    cleaned`.
    """
    known = SENTENCES.get(kind)
    if known is not None:
        return printable(known.format_map(facts) if isinstance(known, str) else known(facts), 500)
    subject = (
        f"job {facts['job']}" if "job" in facts else f"node {facts['node']}" if "node" in facts else "cluster"
    )
    return printable(f"{subject}: {_WORD.sub(' ', kind).lower()}", 500)


def jobs_of(facts: Facts) -> Iterator[int]:
    """Yield the ids of all jobs that a journal entry names."""
    for name in ("job", "for_job"):
        if isinstance(facts.get(name), int):
            yield facts[name]
    yield from facts.get("moves") or ()
    yield from (victim["job"] for victim in facts.get("victims") or ())


def labelled(facts: Facts, labels: Mapping[int, str]) -> Facts:
    """Return the fields of an event with each internal job id replaced by the job's display id (17 or 12_3).

    `labels` maps internal ids to display ids. An id that is not in `labels` is not replaced.
    """
    found = dict(facts)
    for name in ("job", "for_job"):
        if found.get(name) is not None:
            found[name] = labels.get(found[name], found[name])
    if found.get("moves"):
        found["moves"] = [labels.get(job, job) for job in found["moves"]]
    if found.get("victims"):
        found["victims"] = [
            {**victim, "job": labels.get(victim["job"], victim["job"])} for victim in found["victims"]
        ]
    return found


def _gpu(facts: Facts) -> str:
    """Return the name of the GPU, such as gpu03:2, or its UUID if the node no longer has this GPU."""
    return str(facts.get("gpu") or f"{facts['uuid']} of node {facts['node']}")


def _fingerprint(key: str) -> str:
    """Return the SHA256 fingerprint of a public key, in the format of ssh-keygen -l; "?" for a wrong key."""
    try:
        digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except (IndexError, ValueError):
        return "?"
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _job_queued(facts: Facts) -> str:
    spec = facts["spec"]
    label = facts["job"] if facts["array"] is None else f"{facts['array']}_{facts['index']}"
    name = spec["name"] or spec["command"][0].rsplit("/", 1)[-1]
    if facts.get("replica"):
        replica = facts["replica"]
        return f"job {label} was queued for replica {replica['number']} of service {replica['service']}"
    return f"{facts['user']} submitted job {label} ({name})"


def _workload_submitted(facts: Facts) -> str:
    asked = facts["asked"]
    name = f" ({asked['name']})" if asked["name"] else ""
    tasks = _shortened([task["name"] for task in asked["tasks"]])
    return f"{facts['user']} submitted workload {facts['workload']}{name}: {tasks}"


def _workload_retried(facts: Facts) -> str:
    count = counted(len(facts["replaced"]), "job")
    return f"{facts['by']} retried {count} of workload {facts['workload']}"


def _shortened(words: Sequence[str], most: int = 6) -> str:
    """Return the words as one text, separated by commas. If there are more than `most` words, return the
    first `most` words and the number of the remaining words, such as `a, b and 3 more`.
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _dependency_decided(facts: Facts) -> str:
    if facts["met"]:
        return f"a dependency of job {facts['job']} is met"
    return f"a dependency of job {facts['job']} can never be met: {facts['detail']}"


_GATES = {
    "array": "is now within the limit of running jobs of its array",
    "dependency": "has no unmet dependencies now",
    "begin": "has reached its begin time",
    "workload": "is now within the limit of running jobs of its workload",
    "backoff": "has waited long enough after its last attempt",
}


def _gate_opened(facts: Facts) -> str:
    return f"job {facts['job']} {_GATES.get(facts['gate'], 'may start: ' + facts['gate'])}"


def _job_placed(facts: Facts) -> str:
    allocations = facts["allocations"]
    nodes = ", ".join(each["node"] for each in allocations)
    milli = sum(gpu["milli"] for each in allocations for gpu in each["gpus"])
    gpus = f" with {gpus_text(milli / WHOLE_GPU)} GPU{'s' * (milli > WHOLE_GPU)}" if milli else ""
    profile = f", profile {facts['profile']}" if facts.get("profile") else ""
    short = facts.get("short")
    limit = f", with a time limit of {duration(short['limit_s'])}: {short['why']}" if short else ""
    return f"job {facts['job']} was placed on {nodes}{gpus} (attempt {facts['attempt']}{profile}){limit}"


def _members_exited(facts: Facts) -> str:
    nodes: dict[str, list[str]] = {}
    for node, facts_of_one in facts["exits"].items():
        nodes.setdefault(_how(facts_of_one), []).append(node)
    # Put the nodes on which the job failed before the nodes on which it succeeded.
    ends = sorted(nodes, key=lambda how: how == "exit code 0")
    parts = [f"on {', '.join(nodes[how])}: {how}" for how in ends]
    return f"job {facts['job']} ended {'; '.join(parts)}"


def _how(facts: Facts) -> str:
    if facts["why"]:
        return str(facts["why"]).replace("_", " ")
    if facts["signal"] is not None:
        return f"signal {facts['signal']}"
    return f"exit code {facts['code']}"


def _stop_requested(facts: Facts) -> str:
    if facts["reason"] == "preempted":
        return f"job {facts['job']} is being stopped: preempted by {facts['by']}"
    if facts["reason"] == "user":
        return f"{facts['by']} cancelled job {facts['job']}"
    if facts["reason"] == "evicted":
        return f"job {facts['job']} is being evicted: {facts['by']}"
    if facts["reason"] == "service":
        return f"job {facts['job']} is being stopped: {facts['by']}"
    return f"job {facts['job']} is being stopped: {facts['reason'].replace('_', ' ')} ({facts['by']})"


def _preemption_planned(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    victims = ", ".join(str(each["job"]) for each in facts["victims"])
    if facts["strategy"] == "kept-room":
        return f"{nodes}: resources are kept for the restart of job {facts['job']}"
    if facts["strategy"] == "service":
        before = f" of job {victims}" if victims else ""
        return f"job {facts['job']} gets the resources{before} on {nodes}"
    lost = sum(each["gpu_hours"] for each in facts["victims"])
    why = {
        "fair": " (fair share)",
        "reclaim": " (reclaimed quota)",
        "window": f" ({WINDOW_CLOSED})",
        "slice": " (they have had their time slice)",
        "gang_gain": " (the last jobs on the nodes of a gang)",
    }.get(facts["strategy"], "")
    jobs = f"job{'s' * (len(facts['victims']) > 1)} {victims}"
    return f"job {facts['job']} preempts {jobs} on {nodes}{why}: {lost:.1f} GPU-hours lost"


def _rebalance_planned(facts: Facts) -> str:
    jobs = ", ".join(map(str, facts["moves"]))
    aims = {
        "drain": "drain node {node}",
        "load": "reduce the load of node {node}",
        "defragment": "free whole GPUs on node {node}",
    }
    aim = f"let job {facts['for_job']} start" if facts["for_job"] else aims[facts["kind"]].format(**facts)
    cost = f"{facts['gpu_hours']:.1f} GPU-hours lost"
    moved = f"job{'s' * (len(facts['moves']) > 1)} {jobs}"
    return f"{facts['by']} moves {moved} to {aim} (rebalancing {facts['proposal']}): {cost}"


def _move_planned(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    cause = move_cause(facts["kind"], facts["proposal"])
    return f"job {facts['job']} moves to {nodes}, which is reserved for it ({cause})"


def _move_undone(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    then = f"it is restarted on {nodes}" if nodes else "it waits at its old position in the queue"
    return f"job {facts['job']} is not moved: {facts['why']}; {then}"


def _job_shrunk(facts: Facts) -> str:
    nodes, lost = ", ".join(facts["nodes"]), facts["gpu_hours"]
    if facts["by"] == BATCH_ENDED:
        return f"job {facts['job']} releases {nodes}: its batch command has ended"
    return f"job {facts['job']} gives up {nodes} for {facts['by']}: {lost:.1f} GPU-hours lost"


def _job_grew(facts: Facts) -> str:
    return f"job {facts['job']} grows by {', '.join(each['node'] for each in facts['allocations'])}"


def _job_requeued(facts: Facts) -> str:
    why = facts["detail"] or facts["reason"].replace("_", " ")
    return f"job {facts['job']} is queued again: {why}"


def _node_added(facts: Facts) -> str:
    host = facts.get("host")
    where = f" at {host['ssh']}" if host else ""
    return f"node {facts['node']}{where} was added by {facts.get('by') or 'the configuration'}"


def _node_drained(facts: Facts) -> str:
    empty_by = facts.get("empty_by")
    when = "" if empty_by is None else f", which is to be empty in {duration(empty_by - facts['at'])}"
    return f"{facts['by']} drained node {facts['node']}{when}{_because(facts['why'])}"


def _end_warned(facts: Facts) -> str:
    left = duration(max(0.0, facts["ends_at"] - facts["at"]))
    if facts["reason"] == Reason.PREEMPTED:
        return f"job {facts['job']} may be told to stop in {left}{_because(facts['detail'])}"
    return f"job {facts['job']} is told to stop in {left}{_because(facts['detail'])}"


def _node_joined(facts: Facts) -> str:
    gpus = facts["facts"]["gpus"]
    named = ((gpu.get("label") or str(gpu["index"]), gpu["model"]) for gpu in gpus)
    what = f" with {counted_models(named)}" if gpus else ""
    return f"node {facts['node']} joined{what}"


def _node_marked(facts: Facts) -> str:
    changes = []
    for kind in ("labels", "taints"):
        for name, value in facts[kind].items():
            key, colon, effect = name.rpartition(":") if kind == "taints" else (name, "", "")
            equals = f"={value}" if value else ""
            verb = "removed" if value is None else "set"
            changes.append(f"{verb} the {kind[:-1]} {key}{equals}{colon}{effect}")
    return f"{facts['by']} {', '.join(changes)} on node {facts['node']}"


def _gpu_fault(facts: Facts) -> str:
    cause = "caused by the job" if facts["own"] else "not caused by the job"
    return f"job {facts['job']} had a GPU fault ({cause}): {facts['fault']}"


def _share(facts: Facts) -> str:
    """Return a text about the new weight and limits of a tenant, such as `the weight 3, the hard limit 500`.
    Events that older versions of Corral recorded contain only a weight.
    """
    changes = [] if facts["weight"] is None else [f"the weight {facts['weight']:g}"]
    for kind in ("soft", "hard"):
        limit = facts.get(kind)
        if limit is not None:
            changes.append(f"no {kind} limit" if limit < 0 else f"the {kind} limit {limit:g}")
    return ", ".join(changes)


def _hours_changed(facts: Facts) -> str:
    tables = ", ".join(f"[hours.{printable(name)}]" for name in facts["tables"])
    return f"quotas and weights of {tables or '[quota] and [fair_share]'} are in force"


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _job_edited(facts: Facts) -> str:
    changed = ", ".join(name for name in facts["changed"] if name != "by_default")
    if not facts["by"]:
        return f"job {facts['job']} got defaults for {changed} from the present nodes"
    return f"{facts['by']} changed {changed} of job {facts['job']}"


SENTENCES: dict[str, str | Callable[[Facts], str]] = {
    "JobQueued": _job_queued,
    "JobHeld": lambda facts: (
        f"{'operator ' * bool(facts.get('operator'))}{facts['by']} held job {facts['job']}"
    ),
    "JobReleased": "{by} released job {job}",
    "DependencyDecided": _dependency_decided,
    "JobEdited": _job_edited,
    "JobRelaxed": lambda facts: (
        f"job {facts['job']} has waited long enough: it no longer requires {', '.join(facts['dropped'])}"
    ),
    "JobPromoted": "job {job} has waited long enough: its priority is {priority} now",
    "StartEstimated": lambda facts: (
        f"job {facts['job']} should start in {duration(facts['start'] - facts['at'])} ({facts['kind']})"
    ),
    "WaitAlarmed": lambda facts: (
        f"job {facts['job']} has waited for {duration(facts['waited_s'])}; half of the jobs of its queue "
        f"with a similar number of GPUs started within {duration(facts['usual_s'])}"
    ),
    "DeadlineDoubted": lambda facts: (
        f"job {facts['job']} will miss its deadline: the resources it needs become free too late"
        if facts["doubted"]
        else f"job {facts['job']} can meet its deadline again"
    ),
    "PriorityInherited": lambda facts: (
        f"job {facts['job']} inherits priority {facts['priority']} of job {facts['heir']}, which waits for it"
        if facts["heir"]
        else f"job {facts['job']} no longer inherits a priority"
    ),
    "GateClosed": "job {job} waits again: its array runs as many jobs as allowed",
    "GateOpened": _gate_opened,
    "JobPlaced": _job_placed,
    "PredictionOutlived": lambda facts: (
        f"job {facts['job']} runs longer than predicted; the scheduler now expects that it runs "
        + ("until its time limit" if facts["planned_s"] is None else f"for {duration(facts['planned_s'])}")
    ),
    "MemberReady": "job {job} is ready on {node} and waits for its other nodes",
    "AttemptStarted": "job {job} runs on {node} (attempt {attempt})",
    "CheckpointSaved": "job {job} saved the checkpoint {checkpoint[path]}",
    "StepsRecorded": lambda facts: f"job {facts['job']} has run {counted(len(facts['steps']), 'step')}",
    "IdleNoted": lambda facts: (
        f"the GPUs of job {facts['job']} have been idle for {duration(facts['at'] - facts['since'])}"
    ),
    "IdleKept": lambda facts: (
        f"{facts['by']} keeps job {facts['job']} for {duration(facts['until'] - facts['at'])} although its "
        f"GPUs are idle{_because(facts['why'])}"
    ),
    "IdleEnded": "the GPUs of job {job} are busy again",
    "AttemptExited": lambda facts: f"job {facts['job']} ended on {facts['node']}: {_how(facts)}",
    "MembersStarted": lambda facts: (
        f"job {facts['job']} runs on {', '.join(facts['pids'])} (attempt {facts['attempt']})"
    ),
    "MembersExited": _members_exited,
    "StopRequested": _stop_requested,
    "PreemptionPlanned": _preemption_planned,
    "PreemptionDropped": lambda facts: (
        f"the preemption for job {facts['job']} is cancelled{_because(facts['why'])}"
    ),
    "RebalancePlanned": _rebalance_planned,
    "MovePlanned": _move_planned,
    "MoveUndone": _move_undone,
    "JobShrunk": _job_shrunk,
    "JobGrew": _job_grew,
    "JobPreempted": "job {job} was preempted by {by}: {gpu_hours:.1f} GPU-hours lost",
    "JobRequeued": _job_requeued,
    "JobEnded": lambda facts: f"job {facts['job']} is {facts['state']}{_because(facts['detail'])}",
    "NodeAdded": _node_added,
    "NodeRemoved": "{by} removed node {node}",
    "NodeMarked": _node_marked,
    "NodeJoined": _node_joined,
    "NodeWentAway": lambda facts: f"node {facts['node']} is away{_because(facts['why'])}",
    "NodeWentDown": "node {node} is down: its agent has been silent for too long",
    "NodeDeclaredLost": "{by} declared node {node} lost",
    "NodeDrained": _node_drained,
    "DrainBegan": "node {node} is drained now: the time by which it was to be empty has come",
    "EndWarned": _end_warned,
    "NodeResumed": "{by} resumed node {node}",
    "GpuHealthRecorded": lambda facts: f"GPU {_gpu(facts)} is {facts['health']}{_because(facts['why'])}",
    "HealthChanged": lambda facts: (
        f"job {facts['job']} is {'healthy' if facts['healthy'] else 'unhealthy'}{_because(facts['why'])}"
    ),
    "WorkloadSubmitted": _workload_submitted,
    "WorkloadRetried": _workload_retried,
    "ServiceRestarted": "{by} restarted service {service}",
    "ServiceScaled": lambda facts: (
        f"{facts['by']} set service {facts['service']} to {facts['replicas']} replicas"
        if facts["replicas"] is not None
        else f"{facts['by']} let scheduler.toml decide the replicas of service {facts['service']}"
    ),
    "ReservationMade": lambda facts: (
        f"{facts['by']} made reservation {facts['asked']['name']} on {', '.join(facts['nodes'])}"
    ),
    "ReservationBegan": "reservation {reservation} began",
    "ReservationEnded": "reservation {reservation} ended",
    "ReservationCancelled": "{by} cancelled reservation {reservation}",
    "HoursChanged": _hours_changed,
    "BudgetReached": "project {project} has used {percent} % of its budget for {month}: {used}",
    "QuotaSet": "{by} set the quota of {scope} {name}",
    "TokenCreated": lambda facts: (
        f"{facts['token']['by']} created token {facts['token']['id']} ({facts['token']['name']}) "
        f"of {facts['token']['robot'] or facts['token']['user']}"
    ),
    "TokenRevoked": lambda facts: (
        f"{facts['by']} revoked token {facts['id']} ({facts['name']}) of {facts['user']}"
        if facts["by"]
        else f"token {facts['id']} ({facts['name']}) of {facts['user']} expired and was removed"
    ),
    "QuotaUnset": "{by} removed the quota that was set for {scope} {name}",
    "PluginFailed": lambda facts: (
        f"the {facts['kind']} {facts['name']} failed: {facts['why']}"
        + ("; it is not used again until a restart or another configuration" if facts["given_up"] else "")
    ),
    "StrangerCame": lambda facts: f"{facts['user']} uses GPU {_gpu(facts)} without a job: {facts['command']}",
    "StrangerLeft": lambda facts: (
        f"{facts['user']} has used GPU {_gpu(facts)} without a job for "
        f"{duration(facts['at'] - facts['since'])}; the process has ended"
    ),
    "JournalSealed": lambda facts: (
        f"the journal entries up to {facts['through']} are deleted; "
        f"the hash of the last one is {facts['digest'][:16]}…"
    ),
    "HostKeyPinned": lambda facts: (
        f"{facts['by']} pinned the host key {_fingerprint(facts['key'])} of node {facts['node']}"
    ),
    "ShareSet": lambda facts: f"{facts['by']} gave {facts['share']} {_share(facts)}",
    "GpuFaultNoted": _gpu_fault,
    "ConfigApplied": lambda facts: (
        f"{facts['by']} applied a configuration: {_shortened(facts['changed'])}"
        if facts["by"]
        else f"the controller started with the configuration {facts['digest']}"
    ),
}
