"""Logs of ended attempts are deleted beyond the limits per user, per node and by age."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from agent.attempts.log_retention import SettledLogs
from tests.agent.agent_process import AgentProcess, eventually
from wire.agent.job_policy import JobPolicy
from wire.agent.orders import Settle

Run = Callable[..., AgentProcess]


def policy(**jobs: object) -> tuple[str, ...]:
    return "--jobs", json.dumps(jobs)


def write(agent: AgentProcess, job: int, user: str, kib: int) -> None:
    """Runs a job that prints this much, and settles it."""
    agent.start(job, "head", "-c", str(kib << 10), "/dev/zero", user=user)
    assert agent.ended(job).code == 0
    agent.send(Settle(job, 1))
    eventually(lambda: not (agent.spool / "attempts" / f"{job}.1").exists())


def kept(agent: AgentProcess) -> set[str]:
    return {*os.listdir(agent.spool / "settled")}


def test_oldest_logs_of_a_user_are_deleted_beyond_the_user_limit(run: Run) -> None:
    agent = run(*policy(log_user_mib=1))
    write(agent, 1, "ada", 600)
    write(agent, 2, "bob", 600)
    write(agent, 3, "ada", 300)
    eventually(lambda: kept(agent) == {"1.1", "2.1", "3.1"})
    agent.start(4, "sh", "-c", "head -c 2000000 /dev/zero; sleep 600", user="ada")
    agent.started(4)  # because job 5 may end before the supervisor of job 4 has opened its log
    write(agent, 5, "ada", 600)
    eventually(lambda: kept(agent) == {"2.1", "3.1", "5.1"})
    assert (agent.spool / "attempts" / "4.1" / "stdout").exists()  # logs of running jobs are never deleted
    agent.kill()
    again = run(*policy(log_user_mib=1))
    write(again, 6, "ada", 300)  # the next agent counts existing logs
    eventually(lambda: kept(again) == {"2.1", "5.1", "6.1"})
    assert [again.log(job) for job in (5,)] == [bytes(600 << 10)]


def test_oldest_logs_are_deleted_beyond_the_node_limit(run: Run) -> None:
    agent = run(*policy(log_node_mib=1))
    for job, user in ((1, "ada"), (2, "bob"), (3, "eve")):
        write(agent, job, user, 450)
    eventually(lambda: kept(agent) == {"2.1", "3.1"})


def test_expired_logs_are_deleted_when_an_agent_starts(run: Run) -> None:
    agent = run(*policy(log_days=1))
    write(agent, 1, "ada", 1)
    assert kept(agent) == {"1.1"}
    agent.kill()
    again = run(*policy(log_days=1e-9))
    eventually(lambda: kept(again) == set())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3 << 20)), max_size=40))
def test_log_sums_match_the_kept_logs(ended: list[tuple[str, int]]) -> None:
    kept, logs = SettledLogs(JobPolicy(log_user_mib=4, log_node_mib=8)), dict[int, tuple[str, int]]()
    for number, (user, size) in enumerate(ended):
        logs[number] = (user, size)
        kept.add((number, 1), user, size, float(number))
        for job, _ in kept.take_surplus(0.0, user):
            over_user_limit = _sum(logs, user) > 4 << 20  # the user limit is applied first
            assert job == min(each for each in logs if logs[each][0] == user or not over_user_limit)
            del logs[job]
        assert _sum(logs) <= 8 << 20
        assert all(_sum(logs, each) <= 4 << 20 for each in "abc")


def _sum(logs: dict[int, tuple[str, int]], whose: str = "abc") -> int:
    return sum(size for user, size in logs.values() if user in whose)
