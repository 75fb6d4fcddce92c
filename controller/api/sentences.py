"""What happened, in a sentence for people: one per kind of event."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from wire.spec import gpus_text
from wire.text import duration, plain
from wire.words import WHOLE_GPU

Facts = Mapping[str, Any]

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def sentence(kind: str, facts: Facts) -> str:
    """The sentence for a journal entry; a kind from a newer version is told by its name."""
    tell = SENTENCES.get(kind)
    if tell is not None:
        return plain(tell(facts), 500)
    whose = (
        f"job {facts['job']}" if "job" in facts else f"node {facts['node']}" if "node" in facts else "cluster"
    )
    return plain(f"{whose}: {_WORD.sub(' ', kind).lower()}", 500)


def _fingerprint(key: str) -> str:
    """As ssh-keygen -l shows it."""
    try:
        told = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except (IndexError, ValueError):
        return "?"
    return f"SHA256:{base64.b64encode(told).decode().rstrip('=')}"


def _job_queued(facts: Facts) -> str:
    spec = facts["spec"]
    label = facts["job"] if facts["array"] is None else f"{facts['array']}_{facts['index']}"
    name = spec["name"] or spec["command"][0].rsplit("/", 1)[-1]
    return f"{facts['user']} submitted job {label} ({name})"


def _dependency_decided(facts: Facts) -> str:
    if facts["met"]:
        return f"one thing less for job {facts['job']} to wait for"
    return f"job {facts['job']} waited for what never will be: {facts['detail']}"


def _gate_closed(facts: Facts) -> str:
    return f"job {facts['job']} has no slot of its array any more"


_GATES = {
    "array": "has a slot of its array",
    "dependency": "has all that it waited for",
    "begin": "may begin now",
    "backoff": "waited long enough to start again",
}


def _gate_opened(facts: Facts) -> str:
    return f"job {facts['job']} {_GATES.get(facts['gate'], 'may start: ' + facts['gate'])}"


def _job_placed(facts: Facts) -> str:
    allocations = facts["allocations"]
    nodes = ", ".join(each["node"] for each in allocations)
    milli = sum(gpu["milli"] for each in allocations for gpu in each["gpus"])
    gpus = f"{gpus_text(milli / WHOLE_GPU)} GPU{'s' * (milli > WHOLE_GPU)} on " if milli else "room on "
    profile = f", profile {facts['profile']}" if facts.get("profile") else ""
    return f"job {facts['job']} got {gpus}{nodes} (attempt {facts['attempt']}{profile})"


def _attempt_exited(facts: Facts) -> str:
    return f"job {facts['job']} ended on {facts['node']}: {_how(facts)}"


def _members_exited(facts: Facts) -> str:
    nodes: dict[str, list[str]] = {}
    for node, facts_of_one in facts["exits"].items():
        nodes.setdefault(_how(facts_of_one), []).append(node)
    ends = sorted(nodes, key=lambda how: how == "exit code 0")  # what went wrong first
    told = [f"on {', '.join(nodes[how])}: {how}" for how in ends]
    return f"job {facts['job']} ended {'; '.join(told)}"


def _how(facts: Facts) -> str:
    if facts["why"]:
        return str(facts["why"]).replace("_", " ")
    if facts["signal"] is not None:
        return f"signal {facts['signal']}"
    return f"exit code {facts['code']}"


def _stop_requested(facts: Facts) -> str:
    if facts["reason"] == "preempted":
        return f"job {facts['job']} makes room: preempted by {facts['by']}"
    if facts["reason"] == "user":
        return f"{facts['by']} cancelled job {facts['job']}"
    if facts["reason"] == "evicted":
        return f"job {facts['job']} has to leave: {facts['by']}"
    return f"job {facts['job']} is being stopped: {facts['reason'].replace('_', ' ')} ({facts['by']})"


def _preemption_planned(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    victims = ", ".join(str(each["job"]) for each in facts["victims"])
    lost = sum(each["gpu_hours"] for each in facts["victims"])
    why = {"fair": ", as is fair", "reclaim": ", which borrowed it"}.get(facts["strategy"], "")
    return f"job {facts['job']} gets {nodes} from job {victims}{why}: {lost:.1f} GPU-hours lost"


def _rebalance_planned(facts: Facts) -> str:
    jobs = ", ".join(map(str, facts["moves"]))
    what = {
        "drain": "empty node {node}",
        "load": "lighten node {node}",
        "defragment": "gather what is free on node {node}",
    }
    aim = f"let job {facts['for_job']} start" if facts["for_job"] else what[facts["kind"]].format(**facts)
    cost = f"{facts['gpu_hours']:.1f} GPU-hours lost"
    return f"{facts['by']} moves job {jobs} to {aim} (rebalancing {facts['proposal']}): {cost}"


def _move_planned(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    return f"job {facts['job']} is to move to {nodes}, which is kept for it (rebalancing {facts['proposal']})"


def _move_undone(facts: Facts) -> str:
    nodes = ", ".join(each["node"] for each in facts["allocations"])
    then = f"it goes back to {nodes}" if nodes else "it waits in its old place in the queue"
    return f"job {facts['job']} is not moved: {facts['why']}; {then}"


def _job_shrunk(facts: Facts) -> str:
    nodes, lost = ", ".join(facts["nodes"]), facts["gpu_hours"]
    return f"job {facts['job']} gives up {nodes} for {facts['by']}: {lost:.1f} GPU-hours lost"


def _job_grew(facts: Facts) -> str:
    return f"job {facts['job']} got {', '.join(each['node'] for each in facts['allocations'])} as well"


def _job_preempted(facts: Facts) -> str:
    return f"job {facts['job']} was preempted by {facts['by']}: {facts['gpu_hours']:.1f} GPU-hours lost"


def _job_requeued(facts: Facts) -> str:
    why = facts["detail"] or facts["reason"].replace("_", " ")
    return f"job {facts['job']} is queued again: {why}"


def _job_ended(facts: Facts) -> str:
    return f"job {facts['job']} is {facts['state']}{_because(facts['detail'])}"


def _node_added(facts: Facts) -> str:
    host = facts.get("host")
    where = f" at {host['ssh']}" if host else ""
    return f"node {facts['node']}{where} was added by {facts.get('by') or 'the configuration'}"


def _node_joined(facts: Facts) -> str:
    gpus = facts["facts"]["gpus"]
    models = sorted({gpu["model"] for gpu in gpus})
    what = f" with {len(gpus)} × {', '.join(models)}" if gpus else ""
    return f"node {facts['node']} joined{what}"


def _node_marked(facts: Facts) -> str:
    changes = []
    for kind in ("labels", "taints"):
        for name, value in facts[kind].items():
            key, colon, effect = name.rpartition(":") if kind == "taints" else (name, "", "")
            equals = f"={value}" if value else ""
            verb = "took away" if value is None else "set"
            changes.append(f"{verb} the {kind[:-1]} {key}{equals}{colon}{effect}")
    return f"{facts['by']} {', '.join(changes)} on node {facts['node']}"


def _node_drained(facts: Facts) -> str:
    return f"{facts['by']} drained node {facts['node']}{_because(facts['why'])}"


def _gpu_health(facts: Facts) -> str:
    return f"GPU {facts['uuid']} of node {facts['node']} is {facts['health']}{_because(facts['why'])}"


def _gpu_fault(facts: Facts) -> str:
    whose = "by its own doing" if facts["own"] else "and not by its own doing"
    return f"job {facts['job']} met trouble {whose}: {facts['fault']}"


def _share(facts: Facts) -> str:
    """What an operator gave a share; only weights in journals from before there were limits."""
    told = [] if facts["weight"] is None else [f"the weight {facts['weight']:g}"]
    for kind in ("soft", "hard"):
        limit = facts.get(kind)
        if limit is not None:
            told.append(f"no {kind} limit" if limit < 0 else f"the {kind} limit {limit:g}")
    return ", ".join(told)


def _because(why: str) -> str:
    return f": {why}" if why else ""


SENTENCES: dict[str, Callable[[Facts], str]] = {
    "JobQueued": _job_queued,
    "JobHeld": lambda facts: f"{facts['by']} held job {facts['job']}",
    "JobReleased": lambda facts: f"{facts['by']} released job {facts['job']}",
    "DependencyDecided": _dependency_decided,
    "JobEdited": lambda facts: f"{facts['by']} changed {', '.join(facts['changed'])} of job {facts['job']}",
    "JobRelaxed": lambda facts: (
        f"job {facts['job']} waited long enough to do without {', '.join(facts['dropped'])}"
    ),
    "JobPromoted": lambda facts: (
        f"job {facts['job']} waited long enough for a priority of {facts['priority']}"
    ),
    "StartEstimated": lambda facts: (
        f"job {facts['job']} is to start in {duration(facts['start'] - facts['at'])} ({facts['kind']})"
    ),
    "DeadlineDoubted": lambda facts: (
        f"job {facts['job']} can no longer keep its deadline as things stand: its room comes free too late"
        if facts["doubted"]
        else f"job {facts['job']} can keep its deadline after all"
    ),
    "PriorityInherited": lambda facts: (
        f"job {facts['job']} inherited priority {facts['priority']} from job {facts['heir']}"
        if facts["heir"]
        else f"job {facts['job']} inherits no priority any more"
    ),
    "GateClosed": _gate_closed,
    "GateOpened": _gate_opened,
    "JobPlaced": _job_placed,
    "PredictionOutlived": lambda facts: (
        f"job {facts['job']} runs longer than predicted: plans count on "
        + ("its limit" if facts["planned_s"] is None else duration(facts["planned_s"]))
    ),
    "MemberReady": lambda facts: f"job {facts['job']} is ready on {facts['node']} and waits for the others",
    "AttemptStarted": lambda facts: (
        f"job {facts['job']} runs on {facts['node']} (attempt {facts['attempt']})"
    ),
    "CheckpointSaved": lambda facts: f"job {facts['job']} saved {facts['checkpoint']['path']}",
    "IdleNoted": lambda facts: (
        f"the GPUs of job {facts['job']} have done nothing for {duration(facts['at'] - facts['since'])}"
    ),
    "IdleEnded": lambda facts: f"the GPUs of job {facts['job']} work again",
    "AttemptExited": _attempt_exited,
    "MembersStarted": lambda facts: (
        f"job {facts['job']} runs on {', '.join(facts['pids'])} (attempt {facts['attempt']})"
    ),
    "MembersExited": _members_exited,
    "StopRequested": _stop_requested,
    "PreemptionPlanned": _preemption_planned,
    "PreemptionDropped": lambda facts: (
        f"no room is kept for job {facts['job']} any more{_because(facts['why'])}"
    ),
    "RebalancePlanned": _rebalance_planned,
    "MovePlanned": _move_planned,
    "MoveUndone": _move_undone,
    "JobShrunk": _job_shrunk,
    "JobGrew": _job_grew,
    "JobPreempted": _job_preempted,
    "JobRequeued": _job_requeued,
    "JobEnded": _job_ended,
    "NodeAdded": _node_added,
    "NodeRemoved": lambda facts: f"{facts['by']} removed node {facts['node']}",
    "NodeMarked": _node_marked,
    "NodeJoined": _node_joined,
    "NodeWentAway": lambda facts: f"node {facts['node']} is away{_because(facts['why'])}",
    "NodeWentDown": lambda facts: f"node {facts['node']} is down: it has not been heard of for long",
    "NodeDeclaredLost": lambda facts: f"{facts['by']} declared node {facts['node']} lost",
    "NodeDrained": _node_drained,
    "NodeResumed": lambda facts: f"{facts['by']} resumed node {facts['node']}",
    "GpuHealthRecorded": _gpu_health,
    "ReservationMade": lambda facts: (
        f"{facts['by']} made reservation {facts['asked']['name']} on {', '.join(facts['nodes'])}"
    ),
    "ReservationBegan": lambda facts: f"reservation {facts['reservation']} began",
    "ReservationEnded": lambda facts: f"reservation {facts['reservation']} is over",
    "ReservationCancelled": lambda facts: f"{facts['by']} cancelled reservation {facts['reservation']}",
    "QuotaSet": lambda facts: f"{facts['by']} set the quota of {facts['scope']} {facts['name']}",
    "QuotaUnset": lambda facts: f"{facts['by']} took back the quota set for {facts['scope']} {facts['name']}",
    "PluginFailed": lambda facts: (
        f"the {facts['kind']} {facts['name']} failed: {facts['why']}"
        + (" - it is asked no more until the controller starts anew" if facts["given_up"] else "")
    ),
    "StrangerCame": lambda facts: (
        f"{facts['user']} uses GPU {facts['uuid']} of node {facts['node']} past the queue: {facts['command']}"
    ),
    "StrangerLeft": lambda facts: (
        f"{facts['user']} has left GPU {facts['uuid']} of node {facts['node']} after "
        f"{duration(facts['at'] - facts['since'])} past the queue"
    ),
    "HostKeyPinned": lambda facts: (
        f"{facts['by']} pinned the host key {_fingerprint(facts['key'])} of node {facts['node']}"
    ),
    "ShareSet": lambda facts: f"{facts['by']} gave {facts['share']} {_share(facts)}",
    "GpuFaultNoted": _gpu_fault,
}
