"""Predicts how long jobs will run, from the run times of similar earlier jobs."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field

from controller.core.estimates.pool_backfill import PoolJob
from controller.core.estimates.prediction_guard import PredictionGuard
from controller.core.estimates.similar_jobs import SimilarityKey, similarity_keys
from controller.core.model.job import NEVER, Job
from controller.core.model.start_estimates import StartScore
from wire.job.spec import JobSpec
from wire.job.start_conditions import RestartWhen
from wire.names import WHOLE_GPU, JobState, Reason

MAX_RUNS = 32
"""The most run times that are kept for one group of similar jobs. Older run times are dropped, because they
predict the next run badly.
"""
MAX_GROUPS = 20_000
"""The most groups of similar jobs that are kept. When there are more, the group with the oldest last
run is dropped.
"""
MAX_RUNS_OF_ARRAY = 3
"""The most runs of one array in a group of similar jobs, except in the group of the array itself.
Elements of one array are alike. Many runs of few arrays would hide the differences between arrays.
"""
SHORTEST_S = 1.0

Run = tuple[float, int | None]
"""(run time of a job in seconds, id of its array). The id is None if the job belongs to no array."""

LEARNT_ENDS = (Reason.NONE, Reason.EXIT_NONZERO, Reason.SIGNAL, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY)
"""Run times are learned from ends with these reasons: the program has ended by itself, or a limit of the job
has ended it. The next run will probably take equally long.
"""


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """The settings of run time predictions: whether backfill uses predictions, and how predictions are
    computed.
    """

    predicted: bool = False
    """True: backfill uses predictions, while the guard of predictions permits it. False: backfill uses time
    limits. Predictions then only replace missing time limits (`default_s`), and their accuracy is recorded.
    """
    quantile: float = 0.9
    """A fraction from 0 to 1. The prediction is the run time that this fraction of the kept runs did not
    exceed.
    """
    least: int = 5
    """The least number of runs of similar jobs for a prediction."""
    default_s: float = NEVER
    """The setting `default_time_limit_s`: the run time in seconds that plans assume for jobs without a time
    limit and without a prediction. NEVER: the setting is not used.
    """
    replaces_limits: bool = field(init=False)
    """True if scheduling plans may assume a run time other than the time limit: `predicted` is True, or
    `default_s` is set.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "replaces_limits", self.predicted or self.default_s < NEVER)


NO_PREDICTION = PredictionConfig()


@dataclass(slots=True)
class PredictionScore:
    """The accuracy of the run time predictions for one user's ended jobs. Fields that end in `_s` are sums of
    seconds over these jobs.
    """

    jobs: int = 0
    run_s: float = 0.0
    bias_s: float = 0.0
    """The sum of (run time - prediction) in seconds. It is positive if jobs ran longer than predicted on
    average.
    """
    error_s: float = 0.0
    """The sum of the absolute differences between run time and prediction, in seconds."""
    outlived: int = 0
    """The number of jobs that ran longer than predicted."""
    limited: int = 0
    """The number of jobs with a time limit. `limit_error_s` is the sum of the absolute differences between
    their limits and run times.
    """
    limit_error_s: float = 0.0

    def add(self, run_s: float, predicted_s: float, limit_s: float) -> None:
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
        """Return the values of the fields, in their order, for the store."""
        return list(astuple(self))


class RunHistory:
    """The run times, in seconds, of the last jobs of one group of similar jobs. `recent` contains the run
    times in the order in which the jobs ended. `arrays` contains for each of these jobs the id of its array.
    The entry is None for a job of no array, and in the history of a whole array.
    """

    __slots__ = ("_sorted", "arrays", "at", "recent")

    def __init__(self, at: float = 0.0, recent: Iterable[Run] = ()) -> None:
        self.at = at
        """The time at which the last run ended."""
        runs = list(recent)
        self.recent = [run_s for run_s, _ in runs]
        self.arrays = [array for _, array in runs]
        self._sorted: list[float] | None = None
        """The run times in ascending order. None: sort them when they are needed next, because most groups
        are changed more often than they are read.
        """

    def learn(self, run_s: float, at: float, array: int | None = None) -> None:
        """Add the run time of a job that ended at `at`. `array` is the id of its array. With None, step 1 is
        left out.

        1. If the history has MAX_RUNS_OF_ARRAY runs of this array, drop the oldest run of the array.
        2. Otherwise, if the history has MAX_RUNS runs, drop the oldest run.
        """
        self.at = at
        drop = None
        if array is not None and self.arrays.count(array) >= MAX_RUNS_OF_ARRAY:
            drop = self.arrays.index(array)
        elif len(self.recent) >= MAX_RUNS:
            drop = 0
        if drop is not None:
            del self.recent[drop], self.arrays[drop]
        self.recent.append(run_s)
        self.arrays.append(array)
        self._sorted = None

    def quantile(self, part: float) -> float:
        """Return a stored run time, in seconds, that the next run exceeds with a probability of at most 1 -
        `part`. If there are too few runs for this probability, return the longest run time.

        If the order of the run times is random, the next run takes longer than the k-th shortest of n runs
        with the probability 1 - k / (n + 1).
        """
        if self._sorted is None:
            self._sorted = sorted(self.recent)
        runs = self._sorted
        return runs[min(len(runs), max(1, math.ceil(part * (len(runs) + 1)))) - 1]

    def reaches(self, part: float) -> bool:
        """Return whether there are enough runs for `quantile(part)`: enough that the next run exceeds the
        result with a probability of at most 1 - `part`. MAX_RUNS runs always count as enough.
        """
        count = len(self.recent)
        return count >= MAX_RUNS or part * (count + 1) <= count


class RuntimePredictor:
    """Predicts run times, and records how accurate predictions were. Only events of the journal change the
    predictor.

    A job belongs to several groups of similar earlier jobs (see SimilarityKey): jobs of its array; jobs with
    its name, size and command; jobs with its name and size; and jobs with its name.

    1. `learn`: when a job has exited or reached a limit, add its run time to all its groups. Cancelled jobs,
       and attempts that continued from a checkpoint, are left out.
    2. `predict`: take the first group of the job that has at least `PredictionConfig.least` runs. Predict the
       run time that the configured fraction of these runs (`quantile`) did not exceed, but at most the job's
       time limit. The job's array is used only when enough of its elements have ended for the quantile
       (`RunHistory.reaches`). With fewer elements the prediction would be too short, because short elements
       end first.
    3. Each group keeps its last MAX_RUNS runs. At most MAX_RUNS_OF_ARRAY of these runs are of the same array,
       except in the group of the array itself.

    Example: the last five runs of ada's `train` on 8 GPUs took 50, 55, 58, 60 and 90 minutes. With a quantile
    of 0.9 the prediction for the next run is 90 minutes; with 0.6 the prediction is 60 minutes.
    """

    def __init__(self, known: RuntimePredictor | None = None) -> None:
        self.runs: OrderedDict[SimilarityKey, RunHistory] = OrderedDict() if known is None else known.runs
        """The runs of each group of similar jobs. The group with the latest run is last."""
        self.scores: dict[str, PredictionScore] = {}
        """The accuracy of run time predictions, by user."""
        self.changed: dict[SimilarityKey, None] = {}
        """The groups of similar jobs that the next commit must write to the store."""
        self.starts: dict[str, StartScore] = {} if known is None else known.starts
        """The accuracy of start estimates, by the method of the estimate, such as `likely`."""
        self.rescored: dict[str, None] = {}
        """The methods of start estimates whose accuracy has changed. The next commit must write it to the
        store.
        """
        self.guard: PredictionGuard | None = None if known is None else known.guard
        """Decides whether backfill may use predictions. None if the configuration uses no predictions, or if
        no engine has been created yet.
        """
        self.dropped_guard_rows: dict[int | None, None] = {}
        """The keys of the rows of a guard that `use_guard` has dropped. The next commit must delete these
        rows, or replace them by the rows of the new guard.
        """
        self._learns = known is None
        self._versions: dict[str, int] = {}
        """A number for each user, which increases when `runs` changes for this user. Older entries of
        `_usual` are then out of date.
        """
        self._usual: dict[int, tuple[JobSpec, PredictionConfig, int, float | None]] = {}
        """A cache by job id, because backfill calls `usual_run_s` for each waiting job in each cycle. An
        entry contains the spec of the job, the rules, the user's number in `_versions`, and the result.
        """

    def use_guard(self, rules: PredictionConfig, *, shortest_first: bool) -> None:
        """Create the guard of predictions if the configuration uses predictions, and drop the guard
        otherwise. `shortest_first`: backfill tries short jobs first; if this has changed, the guard starts
        again.
        """
        if self.guard is not None and rules.predicted and self.guard.shortest_first == shortest_first:
            return
        if self.guard is not None:
            self.dropped_guard_rows |= dict.fromkeys((None, *self.guard.rows))
        self.guard = PredictionGuard(shortest_first=shortest_first) if rules.predicted else None

    @property
    def trusted(self) -> bool:
        """True if the guard permits predictions, or if there is no guard."""
        return self.guard is None or self.guard.trusted

    def read_only(self) -> RuntimePredictor:
        """Return a predictor with the same history for a copy of the cluster state. Job ends in the copy are
        only simulated, so its `learn` does nothing.
        """
        return RuntimePredictor(self)

    def predict(self, job: Job, rules: PredictionConfig) -> float | None:
        """Return the predicted run time in seconds, but at most the time limit. Return None if too few
        similar jobs have ended.
        """
        usual = self.usual_run_s(job, rules)
        return None if usual is None else min(usual, job.limit)

    def usual_run_s(self, job: Job, rules: PredictionConfig) -> float | None:
        """Return the run time in seconds that the configured fraction (`PredictionConfig.quantile`) of the
        similar jobs did not exceed. The result may be longer than the job's time limit. Return None if too
        few similar jobs have ended.
        """
        if not self.runs:
            return None
        spec, version = job.spec, self._versions.get(job.user, 0)
        known = self._usual.get(job.id)
        if known is not None and known[0] is spec and known[1] is rules and known[2] == version:
            return known[3]
        usual = self._find_usual_run_s(job, rules)
        if job.ended_at is None:
            self._usual[job.id] = spec, rules, version, usual
        return usual

    def _find_usual_run_s(self, job: Job, rules: PredictionConfig) -> float | None:
        """Compute the result of `usual_run_s`."""
        for place, key in enumerate(similarity_keys(job)):
            found = self.runs.get(key)
            if found is None or len(found.recent) < rules.least:
                continue
            of_array = place == 0 and job.array is not None
            if not of_array or found.reaches(rules.quantile):
                return max(SHORTEST_S, found.quantile(rules.quantile))
        return None

    def planned(self, job: Job, rules: PredictionConfig) -> float | None:
        """Return the run time in seconds that the scheduler assumes for the job in its plans. None means that
        the scheduler assumes the job's time limit plus its grace time, and no end for a job without a time
        limit.

        The first rule that applies decides:
        1. A replica of a service, or a job that is always restarted, without a time limit: None. Plans assume
           no end.
        2. The setting `estimate` is "predicted", the guard permits predictions, and there is a prediction:
           the prediction.
        3. The job has no time limit, and `default_time_limit_s` is set: the prediction; if there is none,
           `default_time_limit_s`.
        4. All other cases: None.
        """
        if job.limit == NEVER and (job.replica is not None or job.spec.restart.when is RestartWhen.ALWAYS):
            return None
        limited = job.limit < NEVER or rules.default_s == NEVER
        uses = not limited or (rules.predicted and self.trusted)
        predicted = self.predict(job, rules) if self.runs and uses else None
        return rules.default_s if predicted is None and not limited else predicted

    def learn(self, job: Job, state: JobState, reason: Reason, at: float, units: float = 0.0) -> None:
        """Add the run time of a job that has ended, and record how accurate its prediction was.

        `units` is the number of GPUs in the cluster, or of CPU cores if the cluster has no GPUs.
        """
        self._usual.pop(job.id, None)
        if (
            not self._learns
            or job.started_at is None
            or state is JobState.CANCELLED
            or reason not in LEARNT_ENDS
        ):
            return
        if job.attempt > 1 and job.checkpoint is not None:
            # The attempt continued from a checkpoint, so its run time is only a part of the whole run time.
            return
        run_s = at - job.started_at
        if job.predicted_s is not None:
            self.scores.setdefault(job.user, PredictionScore()).add(run_s, job.predicted_s, job.limit)
        if self.guard is not None and units and job.limit < NEVER:
            held = job.spec.gpus or job.spec.cpu_milli * (job.spec.nodes or 1) / WHOLE_GPU
            ran = PoolJob(job.id, job.submitted_at, run_s, min(held, units), job.limit, job.limit)
            self.guard.learn(ran, job.predicted_s, units)
        self._forget(job.user)
        keys = similarity_keys(job)
        if job.array is not None:
            self._add_run(keys[0], run_s, at, None)
            keys = keys[1:]
        for key in reversed(keys):
            self._add_run(key, run_s, at, job.array)

    def score_starts(self, job: Job, at: float) -> None:
        """Record how far the start estimates of a job were from its real start. The job started at the time
        `at`.
        """
        for each in job.foreseen if self._learns else ():
            self.starts.setdefault(each.kind, StartScore()).add(each, at)
            self.rescored[each.kind] = None

    def _forget(self, user: str) -> None:
        """Mark the cached predictions for the user's jobs as out of date."""
        self._versions[user] = self._versions.get(user, 0) + 1

    def _add_run(self, key: SimilarityKey, run_s: float, at: float, array: int | None) -> None:
        found = self.runs.get(key)
        if found is None:
            found = self.runs[key] = RunHistory()
            if len(self.runs) > MAX_GROUPS:
                oldest, _ = self.runs.popitem(last=False)
                self.changed[oldest] = None
                self._forget(oldest[0])
        self.runs.move_to_end(key)
        found.learn(run_s, at, array)
        self.changed[key] = None

    def load_runs(self, key: SimilarityKey, at: float, recent: Iterable[Run]) -> None:
        """Load the run times of one group of similar jobs from the store. `at` is the time at which
        the last of these jobs ended.

        Call this for all groups in ascending order of `at`, because `runs` is sorted by the last end.
        """
        self.runs[key] = RunHistory(at, recent)


def extended_estimate(elapsed_s: float, limit_s: float) -> float | None:
    """Return a new, longer prediction of the whole run time, in seconds, for a job that has already run for
    `elapsed_s` seconds and longer than predicted. Return None if the longer prediction would reach the time
    limit.
    """
    longer = max(2 * elapsed_s, elapsed_s + SHORTEST_S)
    return longer if longer < limit_s else None
