"""The lines of a job's details."""

from __future__ import annotations

from tests.tui.recorded import NOW, everything, job
from tui.data.model import ClusterModel
from tui.job.facts import job_facts
from tui.job.why import why_lines
from wire.api.forecasts import Explanation
from wire.api.jobs import JobDetail
from wire.api.reasons import Why
from wire.job.spec import JobSpec
from wire.names import Reason


def test_the_reason_why_no_job_is_preempted_is_shown() -> None:
    waiting, why = job(7), Why(Reason.RESOURCES, "needs 1 node with 8 GPUs")
    detail = JobDetail(waiting, JobSpec(command=("true",)), why)

    def lines(explanation: Explanation) -> list[str]:
        found = why_lines(waiting, detail, explanation, (), (), NOW, 120)
        return ["".join(text for text, _ in line).strip() for line in found]

    reason = "4 jobs would have to be preempted for it at once, and [preemption] rate allows 3 in 1h00m"
    plain = lines(Explanation(waiting, why))
    assert not any(line.startswith("preempts") for line in plain)
    more = lines(Explanation(waiting, why, no_preemption=reason))
    assert [line for line in more if line not in plain] == [f"preempts  no job now: {reason}"]


def test_the_qos_class_of_a_job_is_named() -> None:
    told = ClusterModel(lambda: NOW)
    told.apply(everything())
    first, *_ = job_facts(job(7, qos="burstable"), None, told, 120)
    assert "".join(text for text, _ in first).endswith(" · burstable")
