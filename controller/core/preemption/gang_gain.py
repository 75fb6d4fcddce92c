"""Preempts small jobs for a gang (job on several nodes) if other GPUs that the gang needs are idle until
these jobs end (`[preemption] gang_gain`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from controller.core.model.job import NEVER, Job
from wire.names import PRIORITIES, WHOLE_GPU

if TYPE_CHECKING:
    from controller.core.placement.placer import Shape

GANG_GAIN = "gang_gain"
LATE = 0.25
"""A job that has run longer than predicted is assumed to run for this fraction of its present run time more.
"""


@dataclass(frozen=True, slots=True)
class GangGainStrategy:
    """The preemption strategy by which a job on several nodes may stop jobs that run on one node and have at
    most the priority NORMAL. The preemptor also checks that the gain is worth the lost work (`is_worth`).
    """

    name: ClassVar[str] = GANG_GAIN

    def standing(self, job: Job) -> float:
        """Return the priority of a running job, or NEVER if it runs on several nodes."""
        return NEVER if len(job.members) > 1 else job.granted_priority

    def reach(self, _job: Job) -> float | None:
        """Return NORMAL: only running jobs with at most this priority may be stopped."""
        return PRIORITIES["NORMAL"]


def is_worth(shape: Shape, victims: Iterable[Job], gain: float, now: float) -> bool:
    """Return whether a waiting job with the request `shape` gains enough by a start now to justify the work
    that the victims lose.

    1. Lost: the GPU-hours since the last checkpoint of each victim. A victim that saves its state loses
       nothing.
    2. Gained: the GPUs that the waiting job requests, without the GPUs of the victims, times the hours until
       the last victim would have ended. Without the preemption these GPUs would stay idle until then.
    3. The preemption is worth its cost if the gained GPU-hours are at least `gain` times the lost GPU-hours.

    Example: a gang needs 32 GPUs, and 28 of them are free. Four jobs of one GPU have run for 2 hours, and the
    longest of them is predicted to run for 3 more hours. 84 GPU-hours are gained, and 8 are lost. With a
    `gain` of 8, the jobs are stopped.
    """
    gpus = float(shape.part.gpus * shape.nodes)
    lost = hours = 0.0
    for victim in victims:
        gpus -= victim.gpu_milli / WHOLE_GPU
        lost += 0.0 if victim.spec.saves else victim.unsaved(now)
        hours = max(hours, (_likely_end(victim, now) - now) / 3_600.0)
    return gpus > 0 and gpus * hours >= gain * lost


def _likely_end(job: Job, now: float) -> float:
    """Return the time at which a running job is predicted to end, but at most its expected end. If the
    predicted end is past, see LATE. Without a prediction, return the expected end.
    """
    began = job.started_at if job.started_at is not None else job.placed_at
    if began is None or job.predicted_s is None:
        return job.expected_end
    predicted = began + job.predicted_s
    return min(job.expected_end, predicted if predicted > now else now + LATE * (now - began))
