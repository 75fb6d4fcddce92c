"""Generates users with their typical jobs, the run times of these jobs, and the time limits that the users
request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.sim.generate.random_numbers import RandomStream, WeightedChoice, zipf

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

SIZES = (
    *((0.25, 5.0), (0.5, 7.0), (1.0, 44.0), (2.0, 14.0), (4.0, 12.0), (8.0, 12.0)),
    *((16.0, 3.5), (32.0, 1.5), (64.0, 0.7), (128.0, 0.3)),
)
"""Numbers of GPUs per job, and how often each occurs relative to the others."""

ROUND_LIMITS = (HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 7 * DAY)
"""The usual time limits, from which most users choose, in seconds."""

LONGEST_LIMIT = ROUND_LIMITS[-1]

NAMES = (
    *("ada", "grace", "alan", "edsger", "barbara", "donald", "frances", "john", "radia", "dennis"),
    *("margaret", "ken", "lynn", "niklaus", "shafi", "leslie", "adele", "tony", "karen", "robin"),
    *("hedy", "claude", "mary", "george", "sophie", "vint", "jean", "kristen", "annie", "emmy"),
)

NAME_STEMS = (
    *("resnet50", "vit-pretrain", "llm-sft", "lora", "eval", "diffusion", "whisper-ft", "bert-base"),
    *("clip", "dpo", "gnn", "segment", "detect", "speech", "protein", "tokenise"),
)

NAME_ENDINGS = ("", "-v2", "-v3", "-large", "-small", "-ablation", "-lr", "-debug", "-final", "-baseline")


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """A kind of job that a user submits many times under the same name."""

    name: str
    gpus: float
    median_s: float
    sigma: float
    failing: float
    cores: float
    """CPU cores for each GPU of the job. The field `memory_gib` is also an amount for each GPU."""
    memory_gib: float
    model: str
    sweeps: bool
    """True if the user submits many of these jobs at once instead of one after the other."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with its kinds of jobs (templates), the most frequent first, and a function that returns the
    requested time limit of a job.
    """

    name: str
    templates: WeightedChoice[JobTemplate]
    time_limit_of: Callable[[JobTemplate], float]


def draw_users(seed: int, count: int, sizes: Sequence[float], models: Sequence[str]) -> WeightedChoice[User]:
    """Generate `count` users, and return an object that chooses one of them at random. The first user submits
    most often (Zipf's law).

    With the same seed and a larger `count`, the first users are the same.
    """
    weighted = WeightedChoice([(size, weight) for size, weight in SIZES if size in sizes])
    return zipf([_user(RandomStream(seed, "user", rank), rank, weighted, models) for rank in range(count)])


def _user(rng: RandomStream, rank: int, sizes: WeightedChoice[float], models: Sequence[str]) -> User:
    again, place = divmod(rank, len(NAMES))
    median = rng.lognormal(25 * MINUTE, 0.8)
    favourite = sizes.draw(rng)
    templates: dict[str, JobTemplate] = {}
    for _ in range(2 + int(rng.uniform() * 5)):
        gpus = favourite if rng.chance(0.5) else sizes.draw(rng)
        template = _template(rng, median, gpus, models)
        templates.setdefault(template.name, template)
    return User(
        NAMES[place] + (str(again + 1) if again else ""), zipf([*templates.values()]), _time_limit_choice(rng)
    )


def _template(rng: RandomStream, median: float, gpus: float, models: Sequence[str]) -> JobTemplate:
    particular = bool(models) and rng.chance(0.35)
    return JobTemplate(
        name=NAME_STEMS[int(rng.uniform() * len(NAME_STEMS))]
        + NAME_ENDINGS[int(rng.uniform() * len(NAME_ENDINGS))],
        gpus=gpus,
        # Let jobs with more GPUs run longer.
        median_s=min(max(rng.lognormal(median, 0.8) * gpus**0.25, MINUTE / 2), 1.5 * DAY),
        sigma=rng.between(0.4, 1.1),
        failing=0.02 + 0.3 * rng.uniform() ** 2,
        cores=(2.0, 4.0, 6.0, 8.0)[int(rng.uniform() * 4)],
        memory_gib=(16.0, 24.0, 32.0, 64.0)[int(rng.uniform() * 4)],
        model=models[int(rng.uniform() * len(models))] if particular else "",
        sweeps=gpus <= 2 and rng.chance(0.35),
    )


def _time_limit_choice(rng: RandomStream) -> Callable[[JobTemplate], float]:
    """Return a function for one user that returns the requested time limit of a job, in seconds.

    There are three kinds of users. The first kind requests a multiple of the typical run time, rounded up to
    a usual limit such as 4 h. The second kind rounds this multiple up to full 10 minutes. The third kind
    requests the same limit for nearly all jobs.
    """
    temper, factor = rng.uniform(), rng.between(1.0, 5.0)
    if temper < 0.55:
        return lambda template: next(
            (limit for limit in ROUND_LIMITS if limit >= template.median_s * factor), LONGEST_LIMIT
        )
    if temper < 0.85:
        return lambda template: min(
            math.ceil(template.median_s * factor / (10 * MINUTE)) * 10 * MINUTE, LONGEST_LIMIT
        )
    usual = ROUND_LIMITS[1 + int(rng.uniform() * 4)]
    # This user requests the limit `usual` for each job. If the job typically runs longer, the user requests
    # the longest limit.
    return lambda template: usual if template.median_s < usual else LONGEST_LIMIT
