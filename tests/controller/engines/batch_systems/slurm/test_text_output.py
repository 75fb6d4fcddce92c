"""The text of squeue, sacct and sinfo, as Slurm 22.05 printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.engines.batch_systems.batch_job import Cause, Phase, Unreadable
from controller.engines.batch_systems.slurm.text_output import (
    closed_reason,
    parse_sacct,
    parse_sinfo,
    parse_squeue,
    parse_submitted,
)

GOLDEN = Path(__file__).parents[4] / "golden" / "engines" / "batch_systems"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_jobs_of_squeue() -> None:
    jobs = {each.id: each for each in parse_squeue(golden("slurm-22.05-squeue.txt"))}
    assert {name: (each.phase, each.reason) for name, each in jobs.items()} == {
        "45_[2-5%2]": (Phase.WAITING, "JobArrayTaskLimit"),
        "47": (Phase.HELD, "JobHeldAdmin"),
        "44": (Phase.HELD, "JobHeldUser"),
        "42": (Phase.ENDED, ""),
        "45_0": (Phase.RUNNING, ""),
        "45_1": (Phase.RUNNING, ""),
        "43": (Phase.RUNNING, ""),
        "46": (Phase.ENDED, "TimeLimit"),
        "11": (Phase.ENDED, "TimeLimit"),
        "48": (Phase.ENDED, ""),
    }
    assert jobs["42"].cause is Cause.PREEMPTED
    assert jobs["46"].cause is Cause.TIME_LIMIT
    assert (jobs["43"].tag, jobs["43"].node, jobs["43"].partition) == ("corral-pre-2", "n2", "gpu")
    assert (jobs["43"].started_at, jobs["43"].ended_at) == (1_795_159_379, None)


def test_a_name_may_have_the_character_between_columns() -> None:
    jobs = {each.id: each for each in parse_squeue(golden("slurm-22.05-squeue.txt"))}
    assert jobs["47"].tag == "odd|name"


def test_a_forecast_of_the_start_is_no_start() -> None:
    [job] = parse_squeue("7|7|N/A|gpu|PENDING|Priority|1795158609|1795159020|N/A||x\n")
    assert job.started_at is None


def test_a_line_that_was_cut_off_is_not_read() -> None:
    text = golden("slurm-22.05-squeue.txt")
    with pytest.raises(Unreadable, match="expected 11 columns"):
        parse_squeue(text[: text.index("PREEMPTED")])


def test_runs_of_sacct() -> None:
    runs = {each.id: each for each in parse_sacct(golden("slurm-22.05-sacct.txt"))}
    assert {
        name: (each.code, each.signal, each.cause) for name, each in runs.items() if each.phase is Phase.ENDED
    } == {
        "1": (0, None, Cause.CANCELLED),
        "4_0": (0, None, Cause.CANCELLED),
        "4_1": (0, None, Cause.CANCELLED),
        "5": (3, None, Cause.EXIT),
        "6": (None, 9, Cause.EXIT),
        "10": (0, None, Cause.TIME_LIMIT),
        "11": (0, None, Cause.TIME_LIMIT),
        "12": (3, None, Cause.EXIT),
        "13": (None, 9, Cause.EXIT),
        "14": (0, None, Cause.TIME_LIMIT),
        "15": (0, None, Cause.EXIT),
        "16": (0, None, Cause.EXIT),
        "17": (0, None, Cause.EXIT),
        "18": (0, None, Cause.EXIT),
        "19": (3, None, Cause.EXIT),
        "42": (0, None, Cause.PREEMPTED),
        "46": (0, None, Cause.TIME_LIMIT),
        "48": (0, None, Cause.EXIT),
    }
    assert {name for name in runs if "_" in name} == {"4_0", "4_1", "45_0", "45_1"}
    assert (runs["43"].phase, runs["43"].code) == (Phase.RUNNING, None)


def test_a_run_that_slurm_has_ended_to_queue_the_job_again() -> None:
    first = "7|7|gpu|REQUEUED|0:0|1795158609|1795158610|1795158620|n1|x\n"
    [run] = parse_sacct(first)
    assert run.phase is Phase.WAITING
    run, again = parse_sacct(first + "7|7|gpu|FAILED|75:0|1795158609|1795158650|1795158660|n2|x\n")
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.NODE_FAILED)
    assert (again.phase, again.code) == (Phase.ENDED, 75)


def test_a_run_that_is_not_stored_completely_has_an_unknown_phase() -> None:
    [run] = parse_sacct("57|57||FAILED|75:0|1795160302|1795160304|1795160304|n1|allocation\n")
    assert (run.phase, run.code) == (Phase.UNKNOWN, None)


def test_nodes_of_sinfo() -> None:
    first, second = parse_sinfo(golden("slurm-22.05-sinfo.txt"))
    assert (first.name, first.partitions, first.why) == ("n1", ("urgent", "gpu"), "")
    assert (first.cpus, first.memory_mib, first.gpus, first.gpu_model) == (16, 100_000, 4, "a100")
    assert (first.cpus_used, second.cpus_used) == (2, 16)
    assert second.why == "draining: fan broken"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("idle", ""),
        ("mixed-", ""),
        ("idle~", ""),
        ("allocated+", ""),
        ("down*", "down and not responding: none yet"),
        ("drained", "drained: none yet"),
    ],
)
def test_states_of_nodes(state: str, why: str) -> None:
    assert closed_reason(state, "none yet") == why


def test_the_id_of_a_submit_is_on_the_last_line() -> None:
    assert parse_submitted("Welcome, your project has 7 hours left\n17;emu\n") == "17"
    with pytest.raises(Unreadable, match="did not print the id"):
        parse_submitted("Submitted\n")
