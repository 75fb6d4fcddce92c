"""Users and their habits: what each runs again and again, how long it takes, and how well they guess that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.sim.generate.dice import Dice, Odds, zipf

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

SIZES = (
    *((0.25, 5.0), (0.5, 7.0), (1.0, 44.0), (2.0, 14.0), (4.0, 12.0), (8.0, 12.0)),
    *((16.0, 3.5), (32.0, 1.5), (64.0, 0.7), (128.0, 0.3)),
)
"""GPUs a habit asks for, and how common that is."""

ROUND = (HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 7 * DAY)
"""The time limits people write."""

LONGEST = ROUND[-1]

NAMES = (
    *("ada", "grace", "alan", "edsger", "barbara", "donald", "frances", "john", "radia", "dennis"),
    *("margaret", "ken", "lynn", "niklaus", "shafi", "leslie", "adele", "tony", "karen", "robin"),
    *("hedy", "claude", "mary", "george", "sophie", "vint", "jean", "kristen", "annie", "emmy"),
)

STEMS = (
    *("resnet50", "vit-pretrain", "llm-sft", "lora", "eval", "diffusion", "whisper-ft", "bert-base"),
    *("clip", "dpo", "gnn", "segment", "detect", "speech", "protein", "tokenise"),
)

ENDINGS = ("", "-v2", "-v3", "-large", "-small", "-ablation", "-lr", "-debug", "-final", "-baseline")


@dataclass(frozen=True, slots=True)
class Habit:
    """Something a user runs again and again under the same name."""

    name: str
    gpus: float
    median_s: float
    sigma: float
    failing: float
    cores: float
    """Per GPU, like the memory."""
    memory_gib: float
    model: str
    sweeps: bool
    """Submitted many at once, rather than one after a look at the last."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with habits, the favourite first, and a way to guess how long things take."""

    name: str
    habits: Odds[Habit]
    guess: Callable[[Habit], float]


def people(seed: int, count: int, sizes: Sequence[float], models: Sequence[str]) -> Odds[User]:
    """So many users, the busiest first; what one is like does not depend on how many there are."""
    weighted = Odds([(size, weight) for size, weight in SIZES if size in sizes])
    return zipf([_user(Dice(seed, "user", rank), rank, weighted, models) for rank in range(count)])


def _user(dice: Dice, rank: int, sizes: Odds[float], models: Sequence[str]) -> User:
    again, place = divmod(rank, len(NAMES))
    median = dice.lognormal(25 * MINUTE, 0.8)
    favourite = sizes.draw(dice)
    habits: dict[str, Habit] = {}
    for _ in range(2 + int(dice.roll() * 5)):
        gpus = favourite if dice.chance(0.5) else sizes.draw(dice)
        habit = _habit(dice, median, gpus, models)
        habits.setdefault(habit.name, habit)
    return User(NAMES[place] + (str(again + 1) if again else ""), zipf([*habits.values()]), _guess(dice))


def _habit(dice: Dice, median: float, gpus: float, models: Sequence[str]) -> Habit:
    particular = bool(models) and dice.chance(0.35)
    return Habit(
        name=STEMS[int(dice.roll() * len(STEMS))] + ENDINGS[int(dice.roll() * len(ENDINGS))],
        gpus=gpus,
        # What needs more GPUs also takes longer.
        median_s=min(max(dice.lognormal(median, 0.8) * gpus**0.25, MINUTE / 2), 1.5 * DAY),
        sigma=dice.between(0.4, 1.1),
        failing=0.02 + 0.3 * dice.roll() ** 2,
        cores=(2.0, 4.0, 6.0, 8.0)[int(dice.roll() * 4)],
        memory_gib=(16.0, 24.0, 32.0, 64.0)[int(dice.roll() * 4)],
        model=models[int(dice.roll() * len(models))] if particular else "",
        sweeps=gpus <= 2 and dice.chance(0.35),
    )


def _guess(dice: Dice) -> Callable[[Habit], float]:
    """How this user writes time limits: the next round one, a multiple, or always the same."""
    temper, factor = dice.roll(), dice.between(1.0, 5.0)
    if temper < 0.55:
        return lambda habit: next((limit for limit in ROUND if limit >= habit.median_s * factor), LONGEST)
    if temper < 0.85:
        return lambda habit: min(math.ceil(habit.median_s * factor / (10 * MINUTE)) * 10 * MINUTE, LONGEST)
    usual = ROUND[1 + int(dice.roll() * 4)]
    # Even these think once when a thing plainly takes longer.
    return lambda habit: usual if habit.median_s < usual else LONGEST
