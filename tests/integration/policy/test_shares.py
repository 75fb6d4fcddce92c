"""Fair share in a running system: the tenant with less usage comes first, also after a kill -9."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.systems import System
from wire.api.policy.shares import ShareWeight
from wire.job.spec import JobSpec
from wire.names import JobState, Reason


def test_fair_share_turns_survive_a_killed_controller(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["scheduler"] = {"order": {"name": "multifactor", "age": 0.0, "queue": 100.0}}
    system.sections["queues"] = {"short": {"priority": 10}}
    system.start()
    whole = JobSpec(("sleep", "600"), gpus=8, project="vision", cpu_milli=1000, memory_mib=64)
    with system.client() as client:
        first = client.submit(whole).ids[0]
        system.until(lambda: system.jobs()[first].state is JobState.RUNNING, "the first job runs")
        again = client.submit(whole).ids[0]
        other = client.submit(JobSpec(("true",), gpus=8, project="speech", queue="short")).ids[0]
        client.set_share(ShareWeight("vision", 2.0))
    system.kill()
    system.start()
    with system.client() as client:
        shares = {each.share: each for each in client.shares().shares}
        assert (shares["vision"].weight, shares["vision"].held) == (2.0, 8.0)
        assert shares["vision"].used >= 8.0  # held resources count as used for one hour at once
        whys = {job: client.explain(job).why for job in (again, other)}
        assert [whys[job].position for job in (other, again)] == [1, 2]
        for why in whys.values():
            assert [each.name for each in why.receipt] == [
                "priority",
                "age",
                "fair_share",
                "size",
                "deadline",
                "queue",
            ]
            assert all(each.points == each.factor * each.weight for each in why.receipt)
        assert [whys[job].receipt[-1].points for job in (other, again)] == [100.0, 0.0]
        told = system.corral("explain", str(again))
        assert "fair share" in told
        listed = json.loads(system.corral("shares", "-o", "json"))
        assert {each["share"] for each in listed["shares"]} >= {"vision", "speech"}
        client.cancel(first)
        system.until(lambda: system.jobs()[other].state is JobState.COMPLETED, "the other comes first")
        client.cancel(again)


def test_share_at_its_hard_limit_waits_until_the_limit_is_raised(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["fair_share"] = {"hard_limits": {"vision": 1.0}}
    system.start()
    job = JobSpec(("sleep", "600"), gpus=1, project="vision", memory_mib=64, time_limit_s=900.0)
    with system.client() as client:
        first = client.submit(job).ids[0]
        system.until(lambda: system.jobs()[first].state is JobState.RUNNING, "the first job runs")
        second = client.submit(job).ids[0]
        system.until(lambda: system.jobs()[second].reason is Reason.SHARE, "the second waits for its share")
        told = system.corral("explain", str(second))
        assert "share 'vision' has used 1 of 1 units: none of its jobs starts for another" in told
        assert "stopped by the hard limit, for" in system.corral("shares", "-o", "wide")
        client.set_share(ShareWeight("vision", hard=0.5))
    system.kill()
    system.start()
    assert system.jobs()[second].state is JobState.QUEUED
    system.corral("shares", "set", "vision", "--hard", "none")
    system.until(lambda: system.jobs()[second].state is JobState.RUNNING, "it runs once the limit is gone")
    with system.client() as client:
        for each in (first, second):
            client.cancel(each)
