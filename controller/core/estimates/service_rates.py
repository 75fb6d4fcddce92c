"""Learns from earlier attempts how likely a job is to end soon, given how long it has run."""

from __future__ import annotations

import math
from collections.abc import Iterable

from controller.core.model.job import Job

SHORTEST_S = 600.0
"""The first bin (a range of run times) ends at this many seconds. Each later bin ends at twice the end of the
bin before it.
"""
BINS = 24
PRIOR_RATE = 0.5
"""Before any job has ended, the assumed rate of a bin (ends per second) is PRIOR_RATE divided by the middle
of the bin in seconds.
"""
WEIGHT_OF_PRIOR, WEIGHT_OF_ALL = 1.0, 3.0
"""The weights k of the formula in the docstring of ServiceRates. The assumed rate (PRIOR_RATE) counts like
WEIGHT_OF_PRIOR ends in the rate of all jobs. That rate counts like WEIGHT_OF_ALL ends in the rate of the jobs
with one number of GPUs.
"""
ALL_SIZES = 0.0
_EDGES = tuple(SHORTEST_S * 2.0**index for index in range(BINS))
_SMALLEST = 1e-12


def bin_of(run_s: float) -> int:
    """Return the index of the bin (range of run times) that contains the run time `run_s`."""
    if run_s < SHORTEST_S:
        return 0
    return min(math.floor(math.log2(run_s / SHORTEST_S)) + 1, BINS - 1)


class ServiceRates:
    """The rates at which jobs end, by how long the jobs have run. Only the ends of attempts change the stored
    rates. Running attempts count too, but only until the next cycle.

    A bin is a range of run times: 0 to 10 minutes, 10 to 20 minutes, 20 to 40 minutes, and so on.

    Algorithm
    1. `learn`: an attempt took a job from one run time to another. Add to each bin the seconds that the job
       ran inside the bin, whether the job has ended or not. If the job has ended, add one end to its last
       bin. Do this for all jobs together, and for the jobs with the same number of GPUs.
    2. `_rates`: the rate of a bin is (ends + k) / (seconds + k / r), where r is the rate of the next larger
       group of jobs. For all jobs, r is 0.5 / (middle of the bin), with k = 1. For the jobs with the same
       number of GPUs, r is the rate of all jobs, with k = 3. Without any ends, the rate so falls with the run
       time, and the jobs that have run least come first.
    3. `seconds_per_end`: let a job run until a horizon h and then stop it. The result is the least value,
       over all horizons, of (expected seconds until the end or h) / (probability of an end before h). This is
       the Gittins index of the job, as seconds for each end.

    Invariant: the same attempts in the same order give the same rates. Cost: O(BINS) for each attempt, and
    O(BINS) for the index of one bin.

    Example: 10 jobs ran through the bin from 600 s to 1,200 s, and 5 of them ended there after 300 s on
    average. The bin has 5 * 600 + 5 * 300 = 4,500 s and 5 ends. With a prior of 0.5 / 900 its rate is
    (5 + 1) / (4,500 + 1,800), so that one job ends for every 1,050 s of run time.
    """

    def __init__(self) -> None:
        self.seconds: dict[float, list[float]] = {}
        self.ends: dict[float, list[int]] = {}
        """The seconds that jobs ran in each bin, and the jobs that ended in each bin, by number of GPUs.
        ALL_SIZES has the sums over all jobs.
        """
        self._running: dict[float, list[float]] = {}
        """The seconds that the running attempts of the last `observe_running` ran in each bin, by number of
        GPUs.
        """
        self.changed: dict[float, None] = {}
        """The numbers of GPUs whose rows the next commit must write to the store."""
        self._indices: dict[tuple[float, int, float, float], float] = {}
        self._by_size: dict[float, list[float]] = {}

    def learn(self, gpus: float, before_s: float, after_s: float, *, ended: bool) -> None:
        """Add an attempt. The job had run for `before_s` seconds before the attempt, and for `after_s`
        seconds after it. `ended` is True if the job has ended, and False if it will run again.
        """
        for size in (ALL_SIZES, float(gpus)):
            _add(self.seconds.setdefault(size, [0.0] * BINS), before_s, after_s)
            ends = self.ends.setdefault(size, [0] * BINS)
            if ended:
                ends[bin_of(after_s)] += 1
            self.changed[size] = None
        self._indices.clear()
        self._by_size.clear()

    def observe_running(self, attempts: Iterable[tuple[float, float, float]]) -> None:
        """Count the running attempts, each as (GPUs, run time before the attempt, run time now), until the
        next call of this method. Jobs that have run for long without an end lower the rates, although they
        have not ended.
        """
        self._running = {}
        for gpus, before_s, now_s in attempts:
            for size in (ALL_SIZES, float(gpus)):
                _add(self._running.setdefault(size, [0.0] * BINS), before_s, now_s)
        self._indices.clear()
        self._by_size.clear()

    def copy(self) -> ServiceRates:
        """Return a copy without the running attempts, for a copy of the cluster state."""
        copied = ServiceRates()
        for size, seconds in self.seconds.items():
            copied.load(size, seconds, self.ends[size])
        return copied

    def load(self, size: float, seconds: Iterable[float], ends: Iterable[int]) -> None:
        """Load the stored seconds and ends of each bin for the jobs with `size` GPUs."""
        self.seconds[size], self.ends[size] = list(seconds), list(ends)

    def seconds_per_end(self, gpus: float, run_s: float, extra_s: float, least_s: float) -> float:
        """Return the expected seconds of run time for each end, for a job that has run for `run_s` seconds.

        All jobs of one bin have the same result, that of a job at the beginning of the bin. `extra_s` is
        added to the expected time: the time that a restart of the job takes. Horizons are at least `least_s`
        seconds long.
        """
        key = gpus, bin_of(run_s), extra_s, least_s
        found = self._indices.get(key)
        if found is None:
            found = self._indices[key] = self._index(*key)
        return found

    def _index(self, gpus: float, first: int, extra_s: float, least_s: float) -> float:
        rates = self._rates(gpus)
        best, alive, expected, horizon = math.inf, 1.0, extra_s, 0.0
        at = _EDGES[first - 1] if first else 0.0
        for index in range(first, BINS):
            left = _EDGES[index] - at
            parts = (
                [least_s - horizon, left - (least_s - horizon)]
                if horizon < least_s < horizon + left
                else [left]
            )
            for part_s in parts:
                survives = math.exp(-rates[index] * part_s)
                expected += alive * (1.0 - survives) / rates[index]
                alive *= survives
                horizon += part_s
                if horizon >= least_s:
                    best = min(best, expected / max(_SMALLEST, 1.0 - alive))
            at = _EDGES[index]
        return best

    def _rates(self, gpus: float) -> list[float]:
        found = self._by_size.get(gpus)
        if found is None:
            found = self._by_size[gpus] = [self._rate(gpus, index) for index in range(BINS)]
        return found

    def _rate(self, gpus: float, index: int) -> float:
        middle_s = _EDGES[index] * (0.75 if index else 0.5)
        rate = PRIOR_RATE / middle_s
        for weight, size in ((WEIGHT_OF_PRIOR, ALL_SIZES), (WEIGHT_OF_ALL, gpus)):
            ends = self.ends[size][index] if size in self.ends else 0
            seconds: float = self.seconds[size][index] if size in self.seconds else 0.0
            seconds += self._running[size][index] if size in self._running else 0.0
            rate = (ends + weight) / (seconds + weight / rate)
        return rate


def _add(seconds: list[float], before_s: float, after_s: float) -> None:
    """Add to each bin of `seconds` the seconds that a job ran inside the bin while its run time grew from
    `before_s` to `after_s`.
    """
    index, at = bin_of(before_s), before_s
    while at < after_s:
        until = after_s if index == BINS - 1 else min(after_s, _EDGES[index])
        seconds[index] += until - at
        at, index = until, min(index + 1, BINS - 1)


def run_s_of(job: Job, now: float) -> float:
    """Return the seconds that all attempts of the job have run until `now`. For a job without GPUs, only the
    present attempt counts.
    """
    return run_s_before(job) + present_run_s(job, now)


def run_s_before(job: Job) -> float:
    """Return the seconds that earlier attempts of the job have run; 0 for a job without GPUs."""
    return job.spent_run_s if job.spec.gpus else 0.0


def present_run_s(job: Job, now: float) -> float:
    """Return the seconds since the start (or, before it, the placement) of the present attempt; 0 if there is
    none.
    """
    began = job.started_at if job.started_at is not None else job.placed_at
    return 0.0 if began is None else max(0.0, now - began)
