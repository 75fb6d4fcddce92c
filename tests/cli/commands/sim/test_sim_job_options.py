"""The columns of a job table for corral sim run that have the names of options of corral submit."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.commands.sim.option_columns import option_columns
from cli.main import main
from controller.sim.logs.job_log import read_log
from controller.sim.logs.log_file import LogRefused
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until

ROOT = Path(__file__).parents[4]
Put = Callable[[str], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def writing(text: str) -> Path:
        path = tmp_path / "jobs.csv"
        path.write_text(text)
        return path

    return writing


def table(path: Path, *, skip_bad: bool = False) -> list[Any]:
    return read_log(path, skip_bad=skip_bad, options=option_columns()).table


def run(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[list[str]], Any]:
    """Return job, submit, start and end of each job, and the figures."""
    starts = path.with_suffix(".starts")
    words = ["sim", "run", str(path), "-o", "json", "--jobs-csv", str(starts), *arguments]
    assert main(words) == 0
    rows = list(csv.reader(starts.read_text().splitlines()))[1:]
    return rows, json.loads(capsys.readouterr().out)


def test_columns_are_read_as_the_options_of_submit(put: Put) -> None:
    (job,) = table(
        put(
            "submit,duration,gpus,nodes,array,min_nodes,assembly_time,min_gpu_memory,near,licence,restart,elastic\n"
            "0,10,32,4,0-9%4,2,5m,40G,app=ps on node|app=db on rack,matlab:2|ansys,on-failure:2,no\n"
        )
    )
    spec = job.spec
    assert (spec.array, job.count, spec.gang.min_nodes, spec.gang.assembly_s) == ("0-9%4", 10, 2, 300)
    assert (spec.gpu.least_mib, [term.value for term in spec.company]) == (40 * 1024, ["ps", "db"])
    assert (spec.licences, spec.gang.elastic) == ({"matlab": 2, "ansys": 1}, False)
    assert spec.restart == Restart(RestartWhen.ON_FAILURE, 2)


def test_dependencies_name_jobs_by_number_or_name(put: Put) -> None:
    jobs = table(
        put(
            "job,name,submit,duration,after_ok,after_end,after_timeout\n"
            "11,eval,30,10,prep,12_3|17,2h\n"
            "12,prep,20,10,,,\n"
            "17,prep,10,10,,,\n"
            "18,prep,30,10,,,\n"
        )
    )
    after = [Dependency(Until.OK, "17"), Dependency(Until.OK, "12")]
    after += [Dependency(Until.ENDED, "12_3"), Dependency(Until.ENDED, "17")]
    assert (jobs[0].number, jobs[0].spec.after, jobs[0].spec.after_within_s) == (11, tuple(after), 7_200)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("array", "9-0", "array: '9-0' counts backwards"),
        ("min_nodes", "0", "min_nodes: '0' is not a whole number above zero"),
        ("min_nodes", "3", "min_nodes: "),
        ("min_gpu_memory", "40", "min_gpu_memory: '40' has no unit"),
        ("elastic", "perhaps", "elastic: 'perhaps' is neither true nor false"),
        ("on_node_lost", "weep", "on_node_lost: 'weep' is none of"),
        ("after_ok", "9", "after_ok: no job with the number or name '9' is submitted before this job"),
        ("after_ok", "2", "after_ok: job 2 is not submitted before this job"),
        ("after_timeout", "2h", "after_timeout: must be positive"),
    ],
)
def test_invalid_cells_are_refused_by_line_and_column(put: Put, column: str, value: str, why: str) -> None:
    path = put(f"submit,duration,gpus,nodes,{column}\n0,10,,,\n1,10,16,2,{value}\n")
    with pytest.raises(LogRefused) as refused:
        table(path)
    assert str(refused.value).startswith(f"{path}: line 3: {why}")
    assert len(table(path, skip_bad=True)) == 1


def test_simulated_jobs_obey_array_begin_and_dependencies(
    put: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(
        "job,name,submit,duration,estimate,gpus,array,begin,after_ok,after_not_ok,code\n"
        "7,prep,0,100,200,1,,,,,\n"
        "8,sweep,5,50,100,1,0-3%2,,prep,,\n"
        "9,late,6,10,100,1,,500,,,\n"
        "10,fails,7,10,100,1,,,,,1\n"
        "11,alarm,8,10,100,1,,,,10,\n"
        "12,never,9,10,100,1,,,10,,\n"
    )
    rows, body = run(path, capsys, "--nodes", "1", "--gpus", "8")
    assert [(row[0], row[2]) for row in rows] == [
        ("7", "0"),
        *[("8", "100")] * 2,
        *[("8", "150")] * 2,
        ("9", "500"),
        ("10", "7"),
        ("11", "17"),
    ]
    assert body["jobs"] == 8


def test_a_job_that_depends_on_a_refused_job_is_refused(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    path = put("job,submit,duration,gpus,array,after_ok\n1,0,10,99,,\n2,1,10,1,0-1,1\n3,2,10,1,,\n")
    rows, body = run(path, capsys, "--nodes", "1", "--gpus", "8")
    assert ([row[0] for row in rows], body["dropped"]) == (["3"], {"refused": 3})


def test_a_preempted_job_continues_from_its_last_checkpoint(
    put: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Job 1 writes a checkpoint every 40 s. It is preempted after 100 s and loses 20 s of 8 GPUs."""
    config = tmp_path / "scheduler.toml"
    config.write_text('[preemption]\nstrategies = ["priority"]\nmin_runtime_s = 0\n')
    path = put(
        "submit,duration,estimate,gpus,priority,checkpoint_every\n0,200,900,8,LOW,40s\n100,50,900,8,HIGH,\n"
    )
    rows, body = run(path, capsys, "--nodes", "1", "--gpus", "8", "--config", str(config))
    assert rows == [["1", "0", "150", "270"], ["2", "100", "100", "150"]]
    assert body["gpu_hours_lost"] == pytest.approx(8 * 20 / 3_600)


def test_docs_list_every_column() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text()
    columns = option_columns()
    named = [*columns.names, *columns.dependencies, *columns.after_all]
    assert [name for name in named if f"`{name}`" not in page] == []
