"""How long jobs are likely to run: learnt from those that ended, by user, name and size, and scored."""

from __future__ import annotations

import math
import operator
import re
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import lru_cache

from controller.core.foresight import StartScore
from controller.core.jobs import NEVER, Job
from wire.spec import JobSpec, gpus_text
from wire.words import WHOLE_GPU, JobState, Reason

KEPT = 32
"""Runs of one kind that are remembered; a longer past says little about the next run."""
MOST_KINDS = 20_000
"""Kinds that are remembered; beyond that, the one that has not run for longest is forgotten."""
LONGEST_STEM = 80
ANY_SIZE = ""
SHORTEST_S = 1.0

Kind = tuple[str, str, str]
"""Runs that are likely to be alike: of one user, name and size."""

_NUMBER = re.compile(r"[\W_]*\d*$")
_TELLING = (Reason.NONE, Reason.EXIT_NONZERO, Reason.SIGNAL, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY)
"""Ends that are the program's own, or those of its limits: such a job runs about as long the next time."""


@dataclass(frozen=True, slots=True)
class Estimating:
    """What the plans count on, and how careful a prediction is."""

    predicted: bool = False
    """Plans count on predictions; otherwise on limits, and predictions are only made and scored."""
    quantile: float = 0.9
    """So much of what was learnt is no longer than the prediction."""
    least: int = 5
    """Runs that a prediction needs."""


BY_LIMIT = Estimating()


@dataclass(slots=True)
class Score:
    """How predictions of one user's jobs did; times are sums of seconds."""

    jobs: int = 0
    run_s: float = 0.0
    bias_s: float = 0.0
    """Run time less prediction: above 0, jobs run longer than predicted."""
    error_s: float = 0.0
    """The same without its sign."""
    outlived: int = 0
    """Jobs that ran longer than predicted."""
    limited: int = 0
    """Jobs with a time limit, and how far that was from the run time."""
    limit_error_s: float = 0.0

    def add(self, run_s: float, predicted_s: float, limit_s: float) -> None:
        """One more has ended."""
        self.jobs += 1
        self.run_s += run_s
        self.bias_s += run_s - predicted_s
        self.error_s += abs(run_s - predicted_s)
        self.outlived += run_s > predicted_s
        if limit_s != NEVER:
            self.limited += 1
            self.limit_error_s += abs(run_s - limit_s)

    def __add__(self, other: Score) -> Score:
        return Score(*map(operator.add, astuple(self), astuple(other)))

    def dump(self) -> list[float]:
        """As its note keeps it."""
        return list(astuple(self))


class Runs:
    """The last runs of one kind, as they came and by length."""

    __slots__ = ("at", "came", "sorted")

    def __init__(self, at: float = 0.0, came: Iterable[float] = ()) -> None:
        self.at = at
        """When the last of them ended."""
        self.came = deque(came)
        self.sorted = tuple(sorted(self.came))

    def learn(self, run_s: float, at: float) -> None:
        """One more has ended."""
        self.at = at
        self.came.append(run_s)
        if len(self.came) > KEPT:
            self.came.popleft()
        self.sorted = tuple(sorted(self.came))  # whoever looks at the old one beside the loop still has it

    def quantile(self, part: float) -> float:
        """The shortest run that so much of all are no longer than."""
        runs = self.sorted
        return runs[max(0, math.ceil(part * len(runs)) - 1)]


class Estimates:
    """What was learnt, changed by apply alone; made of the journal it is the same again."""

    def __init__(self, known: Estimates | None = None) -> None:
        self.runs: OrderedDict[Kind, Runs] = OrderedDict() if known is None else known.runs
        """The kind that ran last at the end."""
        self.scores: dict[str, Score] = {}
        """By user."""
        self.changed: dict[Kind, None] = {}
        """Kinds whose note is not what it was."""
        self.starts: dict[str, StartScore] = {} if known is None else known.starts
        """How estimates of starts did, by kind."""
        self.rescored: dict[str, None] = {}
        """Kinds of these whose note is not what it was."""
        self._learns = known is None

    def still(self) -> Estimates:
        """The same, for reading: nothing that ends in a copy of the state is learnt."""
        return Estimates(self)

    def predict(self, job: Job, rules: Estimating) -> float | None:
        """How long the job is likely to run, at most its limit; None if too little is known of its like."""
        if not self.runs:
            return None
        kind = kind_of(job)
        for each in (kind, (*kind[:2], ANY_SIZE)):
            found = self.runs.get(each)
            if found is not None and len(found.sorted) >= rules.least:
                return min(max(SHORTEST_S, found.quantile(rules.quantile)), job.limit)
        return None

    def settle(self, job: Job, state: JobState, reason: Reason, at: float) -> None:
        """The job has ended: what is learnt of it, and how well it was predicted."""
        if (
            not self._learns
            or job.started_at is None
            or state is JobState.CANCELLED
            or reason not in _TELLING
        ):
            return
        if job.attempt > 1 and job.checkpoint is not None:
            return  # only the rest of a run
        run_s = at - job.started_at
        if job.predicted_s is not None:
            self.scores.setdefault(job.user, Score()).add(run_s, job.predicted_s, job.limit)
        kind = kind_of(job)
        for each in ((*kind[:2], ANY_SIZE), kind):
            self._learn(each, run_s, at)

    def started(self, job: Job, at: float) -> None:
        """The job got its place: how good was what had been said of that?"""
        for each in job.foreseen if self._learns else ():
            self.starts.setdefault(each.kind, StartScore()).add(each, at)
            self.rescored[each.kind] = None

    def _learn(self, kind: Kind, run_s: float, at: float) -> None:
        found = self.runs.get(kind)
        if found is None:
            found = self.runs[kind] = Runs()
            if len(self.runs) > MOST_KINDS:
                oldest, _ = self.runs.popitem(last=False)
                self.changed[oldest] = None
        self.runs.move_to_end(kind)
        found.learn(run_s, at)
        self.changed[kind] = None

    def recall(self, kind: Kind, at: float, came: Iterable[float]) -> None:
        """What a note says; those that ran last have to be recalled last."""
        self.runs[kind] = Runs(at, came)


def kind_of(job: Job) -> Kind:
    """Whose runs this one's is likely to be like."""
    return job.user, stem_of(job.name), size_of(job.spec)


@lru_cache(4_096)
def stem_of(name: str) -> str:
    """The name without the number at its end: `train-07` and `train-08` are runs of one thing."""
    return _NUMBER.sub("", name)[:LONGEST_STEM] or name[:LONGEST_STEM]


def size_of(spec: JobSpec) -> str:
    """What the job asks for, in a word."""
    if spec.gpus:
        return f"{gpus_text(spec.gpus)}g"
    return f"{spec.cpu_milli * (spec.nodes or 1) / WHOLE_GPU:g}c"


def outlived(elapsed_s: float, limit_s: float) -> float | None:
    """What to count on when a job has run longer than predicted; None: on its limit."""
    longer = max(2 * elapsed_s, elapsed_s + SHORTEST_S)
    return longer if longer < limit_s else None
