"""Predicts how long jobs will run, from the run times of jobs with the same user, name and size (kind)."""

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
"""The most runs kept of one kind of job. Older runs are dropped, because they predict the next run badly."""
MAX_KINDS = 20_000
"""The most kinds that are kept. Beyond that, the kind with the oldest last run is dropped."""
LONGEST_STEM = 80
ANY_SIZE = ""
SHORTEST_S = 1.0

RunKind = tuple[str, str, str]
"""(user, job name without its number, size). The size ANY_SIZE is for the runs of all sizes together."""

_NUMBER = re.compile(r"[\W_]*\d*$")
_LEARNT_ENDS = (Reason.NONE, Reason.EXIT_NONZERO, Reason.SIGNAL, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY)
"""Reasons of an end by the program itself or by its limits. The next run will probably take as long."""


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """Whether backfill uses predictions, and how cautious they are."""

    predicted: bool = False
    """True: backfill uses predictions. False: it uses time limits, and predictions are only scored."""
    quantile: float = 0.9
    """The fraction of the kept runs (0 to 1) that did not take longer than the prediction."""
    least: int = 5
    """The least number of runs for a prediction."""
    default_s: float = NEVER
    """The run time that plans assume for jobs without a time limit and without a prediction; NEVER: none."""


NO_PREDICTION = PredictionConfig()


@dataclass(slots=True)
class PredictionScore:
    """How accurate run time predictions were for one user's jobs. Each time is a sum over these jobs,
    in seconds.
    """

    jobs: int = 0
    run_s: float = 0.0
    bias_s: float = 0.0
    """The sum of run time minus prediction: above 0 if jobs ran longer than predicted."""
    error_s: float = 0.0
    """The sum of the absolute differences between run time and prediction."""
    outlived: int = 0
    """The number of jobs that ran longer than predicted."""
    limited: int = 0
    """The number of jobs with a time limit. `limit_error_s` sums the differences of limit and run time."""
    limit_error_s: float = 0.0

    def add(self, run_s: float, predicted_s: float, limit_s: float) -> None:
        """Count a job that has ended, with its run time, its prediction and its time limit."""
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
        """Return the values to write to the store, in the order of the fields."""
        return list(astuple(self))


class RunHistory:
    """The run times, in seconds, of the last jobs of one kind (the same user, name and size). `recent` is in
    the order in which the jobs ended, `sorted` in ascending order.
    """

    __slots__ = ("at", "recent", "sorted")

    def __init__(self, at: float = 0.0, recent: Iterable[float] = ()) -> None:
        self.at = at
        """The end of the last run."""
        self.recent = deque(recent)
        self.sorted = tuple(sorted(self.recent))

    def learn(self, run_s: float, at: float) -> None:
        """Add the run time of a job that ended at `at`."""
        self.at = at
        self.recent.append(run_s)
        if len(self.recent) > MAX_RUNS:
            self.recent.popleft()
        # Make a new tuple, because copies of the history may still read the old one.
        self.sorted = tuple(sorted(self.recent))

    def quantile(self, part: float) -> float:
        """Return the shortest stored run time such that at least the fraction `part` of the runs took no
        longer.
        """
        runs = self.sorted
        return runs[max(0, math.ceil(part * len(runs)) - 1)]


class RuntimePredictor:
    """Predicts run times, and records how accurate predictions were. Only events of the journal change it.

    Jobs of one kind have the same user, name (without a number at its end) and size.

    1. `learn`: when a job has exited or reached a limit, add its run time to the runs of its kind, and to
       those of user and name with any size. Cancelled jobs, and attempts that continued from a checkpoint,
       are left out.
    2. `predict`: take the `quantile` of the runs of the job's kind; if there are too few, use the runs with
       any size. The prediction is at most the job's time limit.
    3. Each kind keeps at most MAX_RUNS runs, so old runs no longer count after that many new ones.

    Example: the last five runs of ada's `train` on 8 GPUs took 50, 55, 58, 60 and 90 minutes. With a
    quantile of 0.9 the prediction for the next run is 90 minutes; with 0.8 it is 60 minutes.
    """

    def __init__(self, known: RuntimePredictor | None = None) -> None:
        self.runs: OrderedDict[RunKind, RunHistory] = OrderedDict() if known is None else known.runs
        """The runs by kind. The kind with the latest run is last."""
        self.scores: dict[str, PredictionScore] = {}
        """The accuracy of run time predictions, by user."""
        self.changed: dict[RunKind, None] = {}
        """The kinds to write to the store next."""
        self.starts: dict[str, StartScore] = {} if known is None else known.starts
        """The accuracy of start estimates, by kind of estimate."""
        self.rescored: dict[str, None] = {}
        """The kinds of start estimates to write to the store next."""
        self._learns = known is None

    def read_only(self) -> RuntimePredictor:
        """Return a predictor with the same history, for a copy of the state. Its `learn` does nothing."""
        return RuntimePredictor(self)

    def predict(self, job: Job, rules: PredictionConfig) -> float | None:
        """Return the predicted run time in seconds, at most the time limit; None with too few runs."""
        if not self.runs:
            return None
        kind = kind_of(job)
        for each in (kind, (*kind[:2], ANY_SIZE)):
            found = self.runs.get(each)
            if found is not None and len(found.sorted) >= rules.least:
                return min(max(SHORTEST_S, found.quantile(rules.quantile)), job.limit)
        return None

    def planned(self, job: Job, rules: PredictionConfig) -> float | None:
        """Return the run time in seconds that plans assume for the job; None means its time limit plus its
        grace.

        1. With `estimate = "predicted"`: the prediction, if there is one.
        2. Otherwise the time limit, if the job has one.
        3. For a job without a time limit: the prediction, if there is one, otherwise `default_s`.
        """
        limited = job.limit < NEVER or rules.default_s == NEVER
        predicted = self.predict(job, rules) if rules.predicted or not limited else None
        return rules.default_s if predicted is None and not limited else predicted

    def learn(self, job: Job, state: JobState, reason: Reason, at: float) -> None:
        """Add the run time of a job that has ended, and record how accurate its prediction was."""
        if (
            not self._learns
            or job.started_at is None
            or state is JobState.CANCELLED
            or reason not in _LEARNT_ENDS
        ):
            return
        if job.attempt > 1 and job.checkpoint is not None:
            return  # An attempt that continued from a checkpoint is only a part of a run.
        run_s = at - job.started_at
        if job.predicted_s is not None:
            self.scores.setdefault(job.user, PredictionScore()).add(run_s, job.predicted_s, job.limit)
        kind = kind_of(job)
        for each in ((*kind[:2], ANY_SIZE), kind):
            self._add_run(each, run_s, at)

    def score_starts(self, job: Job, at: float) -> None:
        """Record how accurate the start estimates of a job were. The job starts at `at`."""
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
        """Load the run times of one kind from the store. `at` is the time at which its last run ended.

        Call this for all kinds in ascending order of `at`.
        """
        self.runs[kind] = RunHistory(at, recent)


def kind_of(job: Job) -> RunKind:
    """Return the kind of the job: user, job name without the number at its end, and size."""
    return job.user, stem_of(job.name), size_of(job.spec)


@lru_cache(4_096)
def stem_of(name: str) -> str:
    """Return the name without a number at its end, because jobs such as `train-07` and `train-08` usually run
    the same program.
    """
    return _NUMBER.sub("", name)[:LONGEST_STEM] or name[:LONGEST_STEM]


def size_of(spec: JobSpec) -> str:
    """Return the size of a job as a text: its GPUs, such as `8g`; without GPUs its CPUs, such as `4c`."""
    if spec.gpus:
        return f"{gpus_text(spec.gpus)}g"
    return f"{spec.cpu_milli * (spec.nodes or 1) / WHOLE_GPU:g}c"


def extended_estimate(elapsed_s: float, limit_s: float) -> float | None:
    """Return the new prediction, in seconds, for a job that has run longer than predicted.

    None if the new prediction would not be below the time limit.
    """
    longer = max(2 * elapsed_s, elapsed_s + SHORTEST_S)
    return longer if longer < limit_s else None
