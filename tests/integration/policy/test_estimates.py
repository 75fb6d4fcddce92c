"""Predictions through the whole system: learnt from real runs, shown, scored, and kept across a kill -9."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState


def test_earlier_run_times_are_used_for_estimates(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["backfill"] = {"estimate": "predicted", "least_runs": 1, "score_starts_s": 0.2}
    system.start()
    short = JobSpec(("true",), name="short-1", gpus=8, time_limit_s=3_600.0)
    with system.client() as client:
        first = client.submit(short).ids[0]
        system.until(lambda: system.jobs()[first].state is JobState.COMPLETED, "the first has ended")
        assert client.job(first).predicted_s is None
    system.kill()
    system.start()
    with system.client() as client:
        second = client.submit(short).ids[0]
        system.until(lambda: system.jobs()[second].state is JobState.COMPLETED, "the second has ended")
        assert client.job(second).predicted_s == 1.0, "a second is the least that is counted on"
        report = client.estimates()
        assert report.plans == "predicted"
        assert [each.jobs for each in report.runs] == [1]
        assert report.all_runs is not None
        assert report.all_runs.limit_error_s is not None
        assert report.all_runs.limit_error_s > 3_000
        blocking = client.submit(JobSpec(("sleep", "600"), name="long", gpus=8, time_limit_s=600.0)).ids[0]
        system.until(lambda: system.jobs()[blocking].state is JobState.RUNNING, "another runs")
        third = client.submit(short).ids[0]
        assert client.explain(third).predicted_s is not None
        for told in (system.corral("job", "show", str(third)), system.corral("explain", str(third))):
            assert "as similar jobs did (1h00m at most)" in told
        assert "(all)" in system.corral("report", "estimates")
        assert json.loads(system.corral("report", "estimates", "-o", "json"))["runs"][0]["jobs"] == 1
        kinds = {"latest", "likely"}
        system.until(
            lambda: kinds <= {each.kind for each in client.job(third).foreseen}, "both are estimated"
        )
        client.cancel(blocking)
        system.until(lambda: system.jobs()[third].state is JobState.COMPLETED, "the third has run")
        assert {each.kind for each in client.job(third).foreseen} >= {"latest", "likely"}
        assert "at the latest, estimated at" in system.corral("job", "show", str(third))
        starts = {each.kind: each for each in client.estimates().starts}
        assert {*starts} >= {"latest", "likely"}
        assert starts["latest"].bias_s < -100, "what it waited for was cancelled long before its limit"
        for told in (system.corral("report", "estimates"), system.corral("report", "starts")):
            assert "ESTIMATES" in told
