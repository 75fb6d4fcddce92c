"""Predicts run times from the history of similar jobs: same user, name and size."""

from __future__ import annotations

import math
import operator
import re
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import lru_cache

from controller.core.model.job import NEVER, Job
from controller.core.model.start_estimates import StartScore
from wire.job.spec import JobSpec, gpus_text
from wire.names import WHOLE_GPU, JobState, Reason

MAX_RUNS = 32
"""Runs of one kind that are remembered, because older ones say little about the next."""
MAX_KINDS = 20_000
"""Kinds that are remembered; beyond that, the kind with the oldest last run is forgotten."""
LONGEST_STEM = 80
ANY_SIZE = ""
SHORTEST_S = 1.0

RunKind = tuple[str, str, str]
"""(user, name without its number, size). Size is ANY_SIZE for the runs of all sizes."""

_NUMBER = re.compile(r"[\W_]*\d*$")
_LEARNT_ENDS = (Reason.NONE, Reason.EXIT_NONZERO, Reason.SIGNAL, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY)
"""Ends by the program itself or by its limits: the next run is likely to be as long."""


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """Whether backfill uses predictions, and how careful they are."""

    predicted: bool = False
    """True: backfill plans with predictions. False: with limits; predictions are made and scored only."""
    quantile: float = 0.9
    """The part of the remembered runs (0 to 1) that is no longer than the prediction."""
    least: int = 5
    """The least number of runs for a prediction."""


NO_PREDICTION = PredictionConfig()


@dataclass(slots=True)
class PredictionScore:
    """The accuracy of predictions for one user's jobs. Times are sums in seconds."""

    jobs: int = 0
    run_s: float = 0.0
    bias_s: float = 0.0
    """Run time minus prediction: above 0 if jobs ran longer than predicted."""
    error_s: float = 0.0
    """The absolute difference."""
    outlived: int = 0
    """Jobs that ran longer than predicted."""
    limited: int = 0
    """Jobs with a time limit; `limit_error_s` is the distance of the limit from the run time."""
    limit_error_s: float = 0.0

    def add(self, run_s: float, predicted_s: float, limit_s: float) -> None:
        """Add the run of a job that has ended."""
        self.jobs += 1
        self.run_s += run_s
        self.bias_s += run_s - predicted_s
        self.error_s += abs(run_s - predicted_s)
        self.outlived += run_s > predicted_s
        if limit_s != NEVER:
            self.limited += 1
            self.limit_error_s += abs(run_s - limit_s)

    def __add__(self, other: PredictionScore) -> PredictionScore:
        return PredictionScore(*map(operator.add, astuple(self), astuple(other)))

    def dump(self) -> list[float]:
        """The values for its row."""
        return list(astuple(self))


class RunHistory:
    """The last runs of one kind, in order of time and sorted by length."""

    __slots__ = ("at", "recent", "sorted")

    def __init__(self, at: float = 0.0, recent: Iterable[float] = ()) -> None:
        self.at = at
        """The end of the last run."""
        self.recent = deque(recent)
        self.sorted = tuple(sorted(self.recent))

    def learn(self, run_s: float, at: float) -> None:
        """Add the run of a job that has ended."""
        self.at = at
        self.recent.append(run_s)
        if len(self.recent) > MAX_RUNS:
            self.recent.popleft()
        self.sorted = tuple(sorted(self.recent))  # new, because a reader outside may hold the old one

    def quantile(self, part: float) -> float:
        """The shortest run that is at least as long as this part of all runs."""
        runs = self.sorted
        return runs[max(0, math.ceil(part * len(runs)) - 1)]


class RuntimePredictor:
    """Run times by kind, and the accuracy of predictions. Only apply() changes it.

    1. `learn`, when a job ends by itself or by its limit: add the run time to its kind, and to the kind for
       all sizes. A cancelled job, or the rest of a run after a checkpoint, is left out.
    2. `predict`: the `quantile` of the runs of the kind, or else of all sizes, at most the job's limit.
    3. Each kind has at most MAX_RUNS runs, so a change of the program is learnt within that many.

    Example: the last five runs of ada's `train` on 8 GPUs took 50, 55, 58, 60 and 90 minutes. With a
    quantile of 0.9 the next is predicted to take 90 minutes, with 0.8 60 minutes.
    """

    def __init__(self, known: RuntimePredictor | None = None) -> None:
        self.runs: OrderedDict[RunKind, RunHistory] = OrderedDict() if known is None else known.runs
        """The kind with the latest run is last."""
        self.scores: dict[str, PredictionScore] = {}
        """By user."""
        self.changed: dict[RunKind, None] = {}
        """Kinds whose row has to be written."""
        self.starts: dict[str, StartScore] = {} if known is None else known.starts
        """The accuracy of start estimates, by kind of estimate."""
        self.rescored: dict[str, None] = {}
        """Kinds of start estimates whose row has to be written."""
        self._learns = known is None

    def read_only(self) -> RuntimePredictor:
        """The same history for a copy of the state, which learns nothing."""
        return RuntimePredictor(self)

    def predict(self, job: Job, rules: PredictionConfig) -> float | None:
        """The predicted run time in seconds, at most the limit; None with too few similar runs."""
        if not self.runs:
            return None
        kind = kind_of(job)
        for each in (kind, (*kind[:2], ANY_SIZE)):
            found = self.runs.get(each)
            if found is not None and len(found.sorted) >= rules.least:
                return min(max(SHORTEST_S, found.quantile(rules.quantile)), job.limit)
        return None

    def learn(self, job: Job, state: JobState, reason: Reason, at: float) -> None:
        """Learn the run time of a job that has ended, and score its prediction."""
        if (
            not self._learns
            or job.started_at is None
            or state is JobState.CANCELLED
            or reason not in _LEARNT_ENDS
        ):
            return
        if job.attempt > 1 and job.checkpoint is not None:
            return  # because it is only the rest of a run
        run_s = at - job.started_at
        if job.predicted_s is not None:
            self.scores.setdefault(job.user, PredictionScore()).add(run_s, job.predicted_s, job.limit)
        kind = kind_of(job)
        for each in ((*kind[:2], ANY_SIZE), kind):
            self._add_run(each, run_s, at)

    def score_starts(self, job: Job, at: float) -> None:
        """Score the start estimates of a job that starts now."""
        for each in job.foreseen if self._learns else ():
            self.starts.setdefault(each.kind, StartScore()).add(each, at)
            self.rescored[each.kind] = None

    def _add_run(self, kind: RunKind, run_s: float, at: float) -> None:
        found = self.runs.get(kind)
        if found is None:
            found = self.runs[kind] = RunHistory()
            if len(self.runs) > MAX_KINDS:
                oldest, _ = self.runs.popitem(last=False)
                self.changed[oldest] = None
        self.runs.move_to_end(kind)
        found.learn(run_s, at)
        self.changed[kind] = None

    def load_runs(self, kind: RunKind, at: float, recent: Iterable[float]) -> None:
        """Take the runs of a row. Rows have to come in the order of `at`."""
        self.runs[kind] = RunHistory(at, recent)


def kind_of(job: Job) -> RunKind:
    """The kind of a job's runs."""
    return job.user, stem_of(job.name), size_of(job.spec)


@lru_cache(4_096)
def stem_of(name: str) -> str:
    """The name without the number at its end, because `train-07` and `train-08` are runs of one program."""
    return _NUMBER.sub("", name)[:LONGEST_STEM] or name[:LONGEST_STEM]


def size_of(spec: JobSpec) -> str:
    """The size of a job, such as `8g` (GPUs) or `4c` (CPUs)."""
    if spec.gpus:
        return f"{gpus_text(spec.gpus)}g"
    return f"{spec.cpu_milli * (spec.nodes or 1) / WHOLE_GPU:g}c"


def extended_estimate(elapsed_s: float, limit_s: float) -> float | None:
    """The run time to plan with after a job has outlived its prediction; None: its limit."""
    longer = max(2 * elapsed_s, elapsed_s + SHORTEST_S)
    return longer if longer < limit_s else None
