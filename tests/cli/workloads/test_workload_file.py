"""Workload files: the jobs that they describe, and error messages that list all mistakes with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import CommandError
from cli.spec.submitter_environment import Submitter
from cli.workloads.workload_file import workload_of
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until
from wire.workload.spec import OnFailure, TaskDependency, WorkloadSpec, WorkloadTask, job_specs

EXAMPLES = Path(__file__).parents[3] / "examples"


def read(tmp_path: Path, text: str, name: str = "w.toml") -> WorkloadSpec:
    (tmp_path / name).write_text(text)
    return workload_of(str(tmp_path / name), {"DATA": "/d"}, Submitter(0o22, {}))


def commands(task: WorkloadTask) -> list[str]:
    return [" ".join(spec.command) for spec in job_specs(task)]


def errors(tmp_path: Path, text: str, name: str = "w.toml") -> list[str]:
    with pytest.raises(CommandError) as refused:
        read(tmp_path, text, name)
    return [line.removeprefix(f"{name} line ") for line in str(refused.value).splitlines()]


def test_options_of_defaults_and_task_are_those_of_submit(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        """
        max_parallel = 3
        on_failure = "stop"
        [defaults]
        gpus = 1
        time = "2h"
        env = { A = "1", B = 2 }
        [tasks.one]
        command = "echo $HOME | wc"
        retries = 2
        env = ["DATA", "A=3"]
        gpu-model = ["H100", "A100"]
        after = ["two", 12]
        after_end = "7_3"
        [tasks.two]
        command = ["sleep", 5]
        requeue = "x"
        """.replace('requeue = "x"', "gpus = 0"),
    )
    one, two = spec.tasks
    assert (spec.name, spec.max_parallel, spec.on_failure) == ("w", 3, OnFailure.STOP)
    assert one.spec.command == ("/bin/sh", "-c", "echo $HOME | wc")
    assert (one.spec.gpus, one.spec.time_limit_s, one.spec.env) == (
        1,
        7_200,
        {"A": "3", "B": "2", "DATA": "/d"},
    )
    assert one.spec.gpu_models == ("H100", "A100")
    assert (one.spec.restart.when, one.spec.restart.limit) == (RestartWhen.ON_FAILURE, 2)
    assert one.after == (TaskDependency("two"),)
    assert one.spec.after == (Dependency(Until.OK, "12"), Dependency(Until.ENDED, "7_3"))
    assert (two.spec.command, two.spec.gpus, two.spec.restart) == (("sleep", "5"), 0, Restart())


def test_no_retries_override_those_of_the_defaults(tmp_path: Path) -> None:
    text = """
    [defaults]
    retries = 2
    [tasks.one]
    command = "true"
    [tasks.two]
    command = "true"
    retries = 0
    """
    one, two = read(tmp_path, text).tasks
    assert (one.spec.restart.limit, two.spec.restart) == (2, Restart())


@pytest.mark.parametrize(
    ("matrix", "error"),
    [
        ("{ lr = [2, 3], seed = [1] }", "7: 'train' has no job with the values of the job lr=3, seed=1"),
        ("{ rate = [1] }", "7: this task and 'train' have no variable in common"),
    ],
)
def test_a_job_without_a_partner_is_named(tmp_path: Path, matrix: str, error: str) -> None:
    text = f"""[tasks.train]
command = "true"
matrix = {{ lr = [1, 2] }}
[tasks.test]
command = "true"
matrix = {matrix}
after_same = ["train"]
"""
    assert errors(tmp_path, text) == [error]


def test_a_matrix_fills_command_name_and_options(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        """
        [tasks.train]
        command = "train --lr {lr} --out {task}-{index} ${HOME} {{raw}}"
        env = { RATE = "{lr}" }
        gpus = "{gpus}"
        matrix = { lr = [0.1, 1e-4], gpus = [1, 2] }
        include = [{ lr = 1, gpus = 8 }]
        exclude = [{ lr = 0.1, gpus = 2 }]
        max_parallel = 2
        [tasks.test]
        command = "test {lr} {run}"
        matrix = { lr = ["0.1", 1] }
        count = 2
        after_same = ["train"]
        """,
    )
    train, test = spec.tasks
    assert commands(train)[0] == "/bin/sh -c train --lr 0.1 --out train-0 ${HOME} {raw}"
    jobs = job_specs(train)
    assert [(job.name, job.gpus, job.env["RATE"]) for job in jobs] == [
        ("train-0.1-1", 1, "0.1"),
        ("train-0.0001-1", 1, "0.0001"),
        ("train-0.0001-2", 2, "0.0001"),
        ("train-1-8", 8, "1"),
    ]
    assert (jobs[3].array, train.max_parallel) == ("0-3%2", 2)
    assert commands(test) == ["test 0.1 0", "test 0.1 1", "test 1 0", "test 1 1"]
    assert test.after == (TaskDependency("train", Until.OK, ((0,), (0,), (3,), (3,))),)


def test_all_errors_of_a_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = """\
colour = 1
on_failure = "go on"
[defaults]
time = "soon"
[tasks.a]
command = "x {lr} {rl}"
matrix = { lr = [1, 1] }
[tasks.b]
gpuss = 1
after = ["aa"]
[tasks.c]
command = "c {rl}"
count = 2
gpus = -1
"""
    found = errors(tmp_path, text)
    assert found[2].startswith("4: time: ")
    assert found[:2] + found[3:-1] == [
        "1: unknown key 'colour'.",
        "2: on_failure must be continue or stop, not 'go on'",
        "7: lr has the same value twice",
        "8: task 'b' needs one of command and script",
        "9: unknown key 'gpuss'. Did you mean 'gpus'?",
        "10: there is no task 'aa'. Did you mean 'a'?",
        "12: there is no variable 'rl'; there are run, index, task. For the text {rl} itself write {{rl}}",
    ]
    assert found[-1].startswith("14: gpus: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[tasks.c]\ncommand = 'c {rl}'\ncount = 2",
            "2: there is no variable 'rl'; there are run, index, task.",
        ),
        ("[tasks.c]\ncommand = 'c'\n\ngpus = -1", "4: gpus: "),
        ("[[tasks]]\nname = 'a'\ncommand = 'x'\n[[tasks]]\nname = 'a'", "4: there are two tasks 'a'"),
        ("[tasks.c]\ncommand = 'c'\narray = '1-2'", "3: unknown key 'array'. Use matrix or count."),
        (
            "[tasks.a]\ncommand = 'a'\nafter = 'b'\n[tasks.b]\ncommand = 'b'\nafter = 'a'",
            "3: after depend on each other in a cycle: a, b",
        ),
        ("[tasks.9]\ncommand = 'c'", "1: 9 must begin with a letter"),
        ("x = 1", "1: there are no tasks: write [tasks.NAME] for each task"),
    ],
)
def test_an_error_names_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert any(line.startswith(expected) for line in errors(tmp_path, text)), errors(tmp_path, text)


DATA: dict[str, Any] = {
    "tasks": [
        {"name": "a", "command": "a {x}", "matrix": {"x": [1, True]}},
        {"name": "b", "command": ["b"], "after": ["a"], "gpu": 1},
    ]
}


def test_json_has_the_same_keys_and_lines(tmp_path: Path) -> None:
    text = json.dumps(DATA, indent=1)
    line = text.splitlines().index('   "gpu": 1') + 1
    assert errors(tmp_path, text, "w.json")[0].startswith(f"{line}: unknown key 'gpu'")
    spec = read(tmp_path, text.replace('"gpu"', '"gpus"'), "w.json")
    assert commands(spec.tasks[0]) == ["a 1", "a true"]


def test_yaml_has_the_same_keys_and_lines(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the YAML library (extra 'yaml') is not installed")
    text = (
        "tasks:\n  a:\n    command: a {x}\n    matrix: {x: [1, true]}\n  b:\n    command: [b]\n    gpu: 1\n"
    )
    assert errors(tmp_path, text, "w.yaml")[0].startswith("7: unknown key 'gpu'")
    spec = read(tmp_path, text.replace("gpu:", "gpus:"), "w.yaml")
    assert commands(spec.tasks[0]) == ["a 1", "a true"]


def test_a_broken_file_is_refused_with_the_place(tmp_path: Path) -> None:
    assert "line 2" in errors(tmp_path, "a = 1\nb = ,\nc = 1")[0]
    assert "w.json line 1: Expecting property name" in errors(tmp_path, "{", "w.json")[0]
    assert "must end with .toml" in errors(tmp_path, "", "w.txt")[0]


def test_the_example_file_is_valid() -> None:
    spec = workload_of(str(EXAMPLES / "workloads" / "sweep.toml"), {}, Submitter(0o22, {}))
    assert [(task.name, task.size) for task in spec.tasks] == [
        ("prepare", 1),
        ("train", 5),
        ("evaluate", 4),
        ("report", 1),
    ]
