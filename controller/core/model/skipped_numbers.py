"""The ids and attempt numbers that are not given again after an accepted loss of journal entries."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SkippedNumbers:
    """After `corral admin accept-loss`, users and agents may know jobs and attempts that the database lacks.
    New jobs, arrays and workloads therefore get ids from `first_id`, and new attempts of older jobs get
    numbers from `first_attempt`.

    Example: the database knows jobs 1 to 56, and jobs 57 to 60 were lost. `first_id` is 101,000, so that no
    later job is confused with job 57. Job 50 has attempt 1 in the database; its attempt 2, which a node may
    still run, was lost. Its next attempt is 1,001.
    """

    first_id: int = 1
    first_attempt: int = 1

    def next_attempt(self, job: int, attempt: int) -> int:
        """Return the number of the attempt after `attempt` of this job."""
        return max(attempt + 1, self.first_attempt if job < self.first_id else 1)

    def is_older(self, job: int, attempt: int) -> bool:
        """Return whether this attempt of the job began before the journal entries were lost."""
        return job < self.first_id and attempt < self.first_attempt


NONE_SKIPPED = SkippedNumbers()
