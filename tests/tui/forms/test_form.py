"""The submit form: the typed values, the job, and a command that submits the same job."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from cli.commands import submit
from cli.spec.spec_builder import spec_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submit_options.table import BY_FLAG, OPTIONS
from cli.spec.submitter_environment import inherited, submitter
from tui.forms import job as form
from wire.job.spec import JobSpec

FULL = {
    "command": "python train.py --name 'two words'",
    "name": "sft",
    "gpus": "16",
    "gpu model": "H100 H200",
    "nodes": "2",
    "cpus": "2.5",
    "memory": "1.5T",
    "time": "1d2h30m",
    "priority": "HIGH",
    "array": "0-9:3",
    "project": "nlp",
    "queue": "night",
    "reservation": "course",
    "directory": "/home/alice/my data",
    "variables": "A=1 B='x y'",
    "nodes with": "rack=r1 net=ib",
}


def spoken(command: str) -> JobSpec:
    """The job that the command line parses from a command."""
    words = shlex.split(command)[2:]
    cut = words.index("--")
    asked: dict[str, Any] = {}
    for flag, value in zip(words[:cut:2], words[1:cut:2], strict=True):
        option = BY_FLAG[flag]
        if option.repeats:
            asked.setdefault(option.name, []).append(value)
        else:
            asked[option.name] = value
    return spec_of(SubmitOptions(**asked), words[cut + 1 :], is_command=True, environment={})


@pytest.mark.parametrize(
    "typed",
    [
        FULL,
        {"command": "true", "directory": "/"},
        {"command": "/usr/bin/env x", "gpus": "0.25", "time": "90s", "priority": "42", "directory": "/tmp"},
        {"command": "a", "memory": "512MiB", "cpus": "1", "directory": "/", "project": "default"},
    ],
)
def test_shown_command_submits_the_same_job(typed: dict[str, str]) -> None:
    read = form.read(typed)
    assert read.wrong == {}
    assert read.request == spoken(form.command(typed))


def test_every_field_reports_its_mistake() -> None:
    wrong = {
        "command": "'open",
        "gpus": "1.5",
        "nodes": "x",
        "cpus": "-1",
        "memory": "16",
        "time": "5",
        "priority": "urgent",
        "array": "9-0",
        "directory": "here",
        "variables": "=1",
        "nodes with": "rack",
    }
    read = form.read({**FULL, **wrong})
    assert read.wrong.keys() == wrong.keys()
    assert all(read.wrong.values())


def test_empty_form_lacks_only_a_command() -> None:
    assert form.read({}).wrong == {"command": "must name a program to run"}


def test_conflicting_fields_are_reported_at_their_lines() -> None:
    assert form.read({"command": "a", "gpus": "7", "nodes": "2"}).wrong == {
        "gpus": "7 GPUs cannot be divided evenly over 2 nodes"
    }


LEFT_TO_THE_COMMAND = """
    affinity after after_count after_within_s begin_at best_effort checkpoint_command checkpoint_dir
    checkpoint_every_s checkpoint_keep checkpoint_mib checkpoint_s checkpoint_signal company cpu_limit_milli
    datasets deadline_at gang gpu grace_s health hold image labels lease_s licences memory_limit_mib
    min_runtime_s mounts on_node_lost preemptible profile
    preferences relax relax_after_s restart scratch_mib start_within_s tasks_per_node tolerations topology
    time_min_s health warn_s warn_signal
    batch by_default comment error mail_types mail_user merge_output open_mode output umask
"""
"""The form has the fields that most jobs need. A new field of a job gets a line in it, or its name here."""


def test_every_job_field_has_a_line_or_is_left_to_the_command() -> None:
    missing = set(JobSpec.__dataclass_fields__) - {field.target for field in form.FIELDS}
    assert missing == {*LEFT_TO_THE_COMMAND.split()}


def test_errors_of_the_controller_are_shown_at_their_lines() -> None:
    job = form.new_job("/", inherited)
    told = {
        where: job.name_of(where) for where in ("gpus", "spec.gpus", "gpu_models[0]", "env.PATH", "key", "")
    }
    assert told == {
        "gpus": "gpus",
        "spec.gpus": "gpus",
        "gpu_models[0]": "gpu model",
        "env.PATH": "variables",
        "key": "",
        "": "",
    }


def test_a_new_job_takes_along_what_a_submit_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    monkeypatch.setenv("PATH", "/venv/bin:/bin")
    made = form.new_job("/work", inherited)
    typed = {field.name: field.default for field in made.fields} | {"command": "python train.py"}
    spec = made.read(typed).request
    assert spec is not None
    assert made.trial is not None
    asked = made.trial(spec)
    assert asked is not None
    monkeypatch.chdir("/")
    words = shlex.split(made.command(typed))[2:]
    context = typer.main.get_command(submit.app).make_context("submit", words)
    options = SubmitOptions((name, context.params[name]) for name in OPTIONS)
    shell = submitter()
    submitted = spec_of(options, ["python", "train.py"], is_command=True, submitter=shell)
    assert asked.submit == (submitted,)
    assert submitted.env == {"VIRTUAL_ENV": "/venv", "PATH": "/venv/bin:/bin"}
