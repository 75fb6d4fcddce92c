"""What users and operators do in a trial, at any moment and to anything: some of it comes too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.core import inputs
from controller.core.jobs import Job
from controller.sim.faults.plan import GPUS, one_of
from controller.sim.faults.wishes import TAINT
from wire.quota import UNLIMITED, Limits, Quota
from wire.reservation import ReservationSpec
from wire.words import JobState

if TYPE_CHECKING:
    from controller.sim.faults.trouble import Trouble

BY = "root"
LONG_S = 3_600.0
TENANTS = (("user", "ada"), ("user", "*"), ("project", "p"))
RESERVATION = "visit"
SHARE = "p"


def cancel(trouble: Trouble) -> None:
    """Somebody cancels a job, whatever it is doing."""
    _of_any(trouble, lambda job: inputs.Cancel(job.id, "ada"))


def hold(trouble: Trouble) -> None:
    """Somebody holds a job, and may release it later."""
    job = _of_any(trouble, lambda job: inputs.Hold(job.id, "ada"))
    if job is not None and trouble.dice.chance(0.7):
        _later(trouble, inputs.Release(job.id, "ada"))


def edit(trouble: Trouble) -> None:
    """Somebody wants something else of a job that waits, or more time for one that runs."""
    dice = trouble.dice
    changes: dict[str, Any] = one_of(
        dice,
        [
            {"priority": int(dice.roll() * 100)},
            {"time_limit_s": dice.between(10.0, LONG_S)},
            {"gpus": 1.0 + int(dice.roll() * GPUS), "nodes": None, "gang": None},
            {"project": one_of(dice, ["p", "q"])},
            {"begin_at": trouble.clock.now + dice.between(0.0, LONG_S)},
            {"after": [], "deadline_at": None, "start_within_s": None},
            {"licences": {}},
        ],
    )
    _of_any(trouble, lambda job: inputs.Edit(job.id, job.user, changes), only=JobState.QUEUED)


def preempt(trouble: Trouble) -> None:
    """An operator lets a job make room, and may hold it."""
    held = trouble.dice.chance(0.3)
    job = _of_any(trouble, lambda job: inputs.Preempt(job.id, BY, held), only=JobState.RUNNING)
    if job is not None and held:
        _later(trouble, inputs.Release(job.id, BY))


def drain(trouble: Trouble) -> None:
    """An operator closes a node, and opens it again."""
    node = trouble.node()
    trouble.trial.tell(inputs.Drain(node, BY, "a look inside"))
    _later(trouble, inputs.Resume(node, BY))


def taint(trouble: Trouble) -> None:
    """An operator drives away whoever does not bear it, or keeps newcomers away."""
    node, effect = trouble.node(), one_of(trouble.dice, ["NoExecute", "NoSchedule"])
    trouble.trial.tell(inputs.MarkNode(node, BY, {}, {f"{TAINT}:{effect}": ""}))
    _later(trouble, inputs.MarkNode(node, BY, {}, {f"{TAINT}:{effect}": None}))


def cordon(trouble: Trouble) -> None:
    """An operator takes a GPU out, and puts it back."""
    node, gpu = trouble.node(), int(trouble.dice.roll() * GPUS)
    trouble.trial.tell(inputs.CordonGpu(node, gpu, BY))
    _later(trouble, inputs.ResumeGpu(node, gpu, BY))


def remove(trouble: Trouble) -> None:
    """An operator knows a node no more, if nobody is there, and thinks better of it."""
    node, trial = trouble.node(), trouble.trial

    def answered(reply: inputs.Reply) -> None:
        if isinstance(reply, inputs.Accepted):
            trial.lines[node].close("the node was removed")

    trial.tell(inputs.RemoveNode(node, BY), answered)
    trouble.clock.after(trouble.dice.between(0.0, LONG_S), lambda: trouble.add(node))


def limit(trouble: Trouble) -> None:
    """An operator lays a quota over somebody, and takes it away."""
    key, dice = one_of(trouble.dice, TENANTS), trouble.dice
    said = Limits(gpus=float(int(dice.roll() * 8)), running=1 + int(dice.roll() * 8))
    quota = Quota(soft=said) if dice.chance(0.3) else Quota(said)
    trouble.trial.tell(inputs.SetQuota(*key, quota, BY))
    _later(trouble, inputs.UnsetQuota(*key, BY))


def share(trouble: Trouble) -> None:
    """An operator gives a project another part of the cluster, or limits what it may use."""
    dice = trouble.dice
    hard = dice.between(0.0, 40.0) if dice.chance(0.5) else None
    trouble.trial.tell(inputs.SetShare(SHARE, dice.between(0.5, 3.0), BY, hard=hard))
    _later(trouble, inputs.SetShare(SHARE, None, BY, hard=UNLIMITED))


def stranger(trouble: Trouble) -> None:
    """Somebody works past the queue, and is gone again."""
    node = trouble.node()
    uuid = one_of(trouble.dice, [gpu.uuid for gpu in trouble.trial.hosts[node].facts.gpus])
    trouble.trial.tell(inputs.StrangerSeen(node, uuid, "eve", 7, "python"))
    _later(trouble, inputs.StrangerGone(node, uuid, "eve"))


def reserve(trouble: Trouble) -> None:
    """An operator keeps a node for somebody, or for nobody."""
    dice, now = trouble.dice, trouble.clock.now
    spec = ReservationSpec(
        RESERVATION,
        now + dice.between(1.0, LONG_S / 2),
        dice.between(60.0, LONG_S),
        nodes=(trouble.node(),),
        users=("bo",) if dice.chance(0.5) else (),
    )
    trouble.trial.tell(inputs.Reserve(spec, BY, anyway=dice.chance(0.5)))
    if dice.chance(0.3):
        _later(trouble, inputs.CancelReservation(RESERVATION, BY))


def idle(trouble: Trouble) -> None:
    """The GPUs of a job do nothing, and may work again: the daemon tells as long as it is so."""
    now = trouble.clock.now
    job = _of_any(
        trouble, lambda job: inputs.GpusIdle(job.id, job.attempt, now - LONG_S), only=JobState.RUNNING
    )
    if job is None:
        return
    if trouble.dice.chance(0.3):
        _later(trouble, inputs.GpusBusy(job.id, job.attempt))
    else:
        again = inputs.GpusIdle(job.id, job.attempt, now - LONG_S)
        trouble.clock.after(trouble.dice.between(60.0, 600.0), lambda: trouble.trial.tell(again))


def _later(trouble: Trouble, given: inputs.Input) -> None:
    trouble.clock.after(trouble.dice.between(0.0, LONG_S), lambda: trouble.trial.tell(given))


def _of_any(trouble: Trouble, asked: Any, only: JobState | None = None) -> Job | None:
    """Ask something of a job that has not ended, if there is one and somebody who hears it."""
    controller = trouble.trial.controller
    jobs = [job for job in controller.engine.state.live() if only in (None, job.state)]
    if not jobs or not controller.alive:
        return None
    job = one_of(trouble.dice, jobs)
    trouble.trial.tell(asked(job))
    return job
