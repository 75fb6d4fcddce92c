"""Random actions of users and operators at any moment; some come too late and are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.core.model.decision.decision import Accepted, Reply
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from tests.simulation.random_job_features import TAINT
from tests.simulation.trial_plan import GPUS, one_of
from wire.cluster.quota import UNLIMITED, Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.names import JobState

if TYPE_CHECKING:
    from tests.simulation.fault_injection import FaultInjector

BY = "root"
LONG_S = 3_600.0
TENANTS = (("user", "ada"), ("user", "*"), ("project", "p"))
RESERVATION = "visit"
SHARE = "p"


def cancel(trouble: FaultInjector) -> None:
    """A user cancels a job in any state."""
    _of_any(trouble, lambda job: job_inputs.Cancel(job.id, "ada"))


def hold(trouble: FaultInjector) -> None:
    """A user holds a job and may release it later."""
    job = _of_any(trouble, lambda job: job_inputs.Hold(job.id, "ada"))
    if job is not None and trouble.rng.chance(0.7):
        _later(trouble, job_inputs.Release(job.id, "ada"))


def edit(trouble: FaultInjector) -> None:
    """A user edits a waiting job, or the time limit of a running one."""
    rng = trouble.rng
    changes: dict[str, Any] = one_of(
        rng,
        [
            {"priority": int(rng.uniform() * 100)},
            {"time_limit_s": rng.between(10.0, LONG_S)},
            {"gpus": 1.0 + int(rng.uniform() * GPUS), "nodes": None, "gang": None},
            {"project": one_of(rng, ["p", "q"])},
            {"begin_at": trouble.clock.now + rng.between(0.0, LONG_S)},
            {"after": [], "deadline_at": None, "start_within_s": None},
            {"licences": {}},
        ],
    )
    _of_any(trouble, lambda job: job_inputs.Edit(job.id, job.user, changes), only=JobState.QUEUED)


def preempt(trouble: FaultInjector) -> None:
    """An operator preempts a job and may hold it."""
    held = trouble.rng.chance(0.3)
    job = _of_any(trouble, lambda job: job_inputs.Preempt(job.id, BY, held), only=JobState.RUNNING)
    if job is not None and held:
        _later(trouble, job_inputs.Release(job.id, BY))


def drain(trouble: FaultInjector) -> None:
    """An operator drains a node and resumes it."""
    node = trouble.node()
    trouble.trial.tell(node_inputs.Drain(node, BY, "a look inside"))
    _later(trouble, node_inputs.Resume(node, BY))


def taint(trouble: FaultInjector) -> None:
    """An operator sets a NoExecute or NoSchedule taint and removes it."""
    node, effect = trouble.node(), one_of(trouble.rng, ["NoExecute", "NoSchedule"])
    trouble.trial.tell(node_inputs.MarkNode(node, BY, {}, {f"{TAINT}:{effect}": ""}))
    _later(trouble, node_inputs.MarkNode(node, BY, {}, {f"{TAINT}:{effect}": None}))


def cordon(trouble: FaultInjector) -> None:
    """An operator cordons a GPU and resumes it."""
    node, gpu = trouble.node(), int(trouble.rng.uniform() * GPUS)
    trouble.trial.tell(node_inputs.CordonGpu(node, gpu, BY))
    _later(trouble, node_inputs.ResumeGpu(node, gpu, BY))


def remove(trouble: FaultInjector) -> None:
    """An operator removes an empty node and adds it again."""
    node, trial = trouble.node(), trouble.trial

    def answered(reply: Reply) -> None:
        if isinstance(reply, Accepted):
            trial.lines[node].close("the node was removed")

    trial.tell(node_inputs.RemoveNode(node, BY), answered)
    trouble.clock.after(trouble.rng.between(0.0, LONG_S), lambda: trouble.add(node))


def limit(trouble: FaultInjector) -> None:
    """An operator sets a quota and unsets it."""
    key, rng = one_of(trouble.rng, TENANTS), trouble.rng
    said = Limits(gpus=float(int(rng.uniform() * 8)), running=1 + int(rng.uniform() * 8))
    quota = Quota(soft=said) if rng.chance(0.3) else Quota(said)
    trouble.trial.tell(policy_inputs.SetQuota(*key, quota, BY))
    _later(trouble, policy_inputs.UnsetQuota(*key, BY))


def share(trouble: FaultInjector) -> None:
    """An operator changes the weight or limits of a share."""
    rng = trouble.rng
    hard = rng.between(0.0, 40.0) if rng.chance(0.5) else None
    trouble.trial.tell(policy_inputs.SetShare(SHARE, rng.between(0.5, 3.0), BY, hard=hard))
    _later(trouble, policy_inputs.SetShare(SHARE, None, BY, hard=UNLIMITED))


def offqueue_process(trouble: FaultInjector) -> None:
    """A process that Corral did not start uses a GPU for a while."""
    node = trouble.node()
    uuid = one_of(trouble.rng, [gpu.uuid for gpu in trouble.trial.hosts[node].facts.gpus])
    trouble.trial.tell(agent_inputs.OffQueueProcessSeen(node, uuid, "eve", 7, "python"))
    _later(trouble, agent_inputs.OffQueueProcessGone(node, uuid, "eve"))


def reserve(trouble: FaultInjector) -> None:
    """An operator reserves a node for users, or for maintenance."""
    rng, now = trouble.rng, trouble.clock.now
    spec = ReservationSpec(
        RESERVATION,
        now + rng.between(1.0, LONG_S / 2),
        rng.between(60.0, LONG_S),
        nodes=(trouble.node(),),
        users=("bo",) if rng.chance(0.5) else (),
    )
    trouble.trial.tell(policy_inputs.Reserve(spec, BY, anyway=rng.chance(0.5)))
    if rng.chance(0.3):
        _later(trouble, policy_inputs.CancelReservation(RESERVATION, BY))


def idle(trouble: FaultInjector) -> None:
    """The GPUs of a job are idle for a while; the daemon reports it all that time."""
    now = trouble.clock.now
    job = _of_any(
        trouble, lambda job: agent_inputs.GpusIdle(job.id, job.attempt, now - LONG_S), only=JobState.RUNNING
    )
    if job is None:
        return
    if trouble.rng.chance(0.3):
        _later(trouble, agent_inputs.GpusBusy(job.id, job.attempt))
    else:
        again = agent_inputs.GpusIdle(job.id, job.attempt, now - LONG_S)
        trouble.clock.after(trouble.rng.between(60.0, 600.0), lambda: trouble.trial.tell(again))


def _later(trouble: FaultInjector, given: Input) -> None:
    trouble.clock.after(trouble.rng.between(0.0, LONG_S), lambda: trouble.trial.tell(given))


def _of_any(trouble: FaultInjector, asked: Any, only: JobState | None = None) -> Job | None:
    """Send a command about a random job that has not ended, if the controller runs."""
    controller = trouble.trial.controller
    jobs = [job for job in controller.engine.state.live() if only in (None, job.state)]
    if not jobs or not controller.alive:
        return None
    job = one_of(trouble.rng, jobs)
    trouble.trial.tell(asked(job))
    return job
