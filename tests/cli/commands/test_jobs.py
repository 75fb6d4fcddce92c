"""From flags, the environment and scripts to a JobSpec."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import NOT_FOUND, CommandError
from cli.spec.job_script import MAX_SCRIPT_BYTES, script_of
from cli.spec.spec_builder import spec_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submit_options.table import OPTIONS
from wire.job.gangs import Gang, MemberFailure
from wire.job.placement.affinity import parse_term
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, OnNodeLost, Restart, RestartWhen, Until


def asked(flags: str = "") -> SubmitOptions:
    """The values that typer parses from these flags."""
    made = SubmitOptions()
    words = shlex.split(flags)
    while words:
        name = words.pop(0)[2:].replace("-", "_")
        if OPTIONS[name].is_switch:
            made[name] = True
        elif OPTIONS[name].repeats:
            made.setdefault(name, []).append(words.pop(0))
        else:
            made[name] = words.pop(0)
    return made


def command(flags: str = "", **environment: str) -> JobSpec:
    """The job of `corral submit FLAGS -- train --epochs 3`."""
    words = ["/opt/bin/train", "--epochs", "3"]
    return spec_of(asked(flags), words, is_command=True, environment=environment)


def script(path: Path, text: str, flags: str = "", *arguments: str, **environment: str) -> JobSpec:
    """The job of `corral submit FLAGS train.sh ARGUMENTS`."""
    (path / "train.sh").write_text(text)
    words = [str(path / "train.sh"), *arguments]
    return spec_of(asked(flags), words, is_command=False, environment=environment)


def test_minimal_submit_is_a_small_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("/opt/bin/train", "--epochs", "3")
    assert command() == JobSpec(command=words, name="train", workdir=str(tmp_path))


def test_every_submit_option_is_in_the_job() -> None:
    spec = command(
        "--name n --project p --queue q --priority high --cpus 0.5 --memory 16G --gpus 8 --nodes 2 "
        "--gpu-model H100 --gpu-model A100 --select rack=r1 --select zone=b --env A=1 --env HOME "
        "--workdir /data --time 2h --grace 30s --array 0-3 --hold --not-preemptible --min-runtime 1h "
        "--min-nodes 1 --assembly-time 5m --on-member-failure continue --elastic "
        "--checkpoint-command 'save --to disk' --checkpoint-signal sigusr1 --checkpoint-dir /shared "
        "--checkpoint-time 5m --checkpoint-keep 2 --warn-signal USR2 --warn-time 90s --tasks-per-node 4 "
        "--begin 2030-05-01T08:00+00:00 --deadline 2030-05-02T08:00+00:00 --timeout 1h "
        "--after 5,6_1 --after-ok 7 --after-data /data/x --after-count 3 --after-timeout 2h "
        "--relax select --relax gpu-model --relax-after 10m "
        "--restart on-failure:5 --restart-delay 5s:1m --restart-codes 75,137",
        HOME="/root",
    )
    assert spec == JobSpec(
        command=("/opt/bin/train", "--epochs", "3"),
        name="n",
        project="p",
        queue="q",
        priority=75,
        cpu_milli=500,
        memory_mib=16_384,
        gpus=8,
        nodes=2,
        gpu_models=("H100", "A100"),
        selector={"rack": "r1", "zone": "b"},
        env={"A": "1", "HOME": "/root"},
        workdir="/data",
        time_limit_s=7_200,
        grace_s=30,
        array="0-3",
        hold=True,
        preemptible=False,
        min_runtime_s=3_600,
        gang=Gang(1, 300, MemberFailure.CONTINUE, elastic=True),
        checkpoint_command=("save", "--to", "disk"),
        after=(
            Dependency(Until.STARTED, "5"),
            Dependency(Until.STARTED, "6_1"),
            Dependency(Until.OK, "7"),
            Dependency(Until.DATA, path="/data/x"),
        ),
        relax=("selector", "gpu_models"),
        relax_after_s=600,
        after_count=3,
        after_within_s=7_200,
        begin_at=1_903_852_800.0,
        deadline_at=1_903_939_200.0,
        start_within_s=3_600,
        restart=Restart(RestartWhen.ON_FAILURE, 5, 5, 60, (75, 137)),
        checkpoint_signal="USR1",
        checkpoint_dir="/shared",
        checkpoint_s=300,
        checkpoint_keep=2,
        warn_signal="USR2",
        warn_s=90,
        tasks_per_node=4,
    )


@pytest.mark.parametrize(
    ("flags", "gpus", "nodes"),
    [
        ("", 0, None),
        ("--gpus 0.25", 0.25, None),
        ("--gpus 16", 16, None),
        ("--gpus-per-node 8", 8, 1),
        ("--gpus-per-node 8 --nodes 2", 16, 2),
        ("--gpus-per-node 8 --gpus 16", 16, 2),
        ("--gpus-per-node 8 --gpus 16 --nodes 2", 16, 2),
    ],
)
def test_gpus_are_a_total_or_per_node(flags: str, gpus: float, nodes: int | None) -> None:
    spec = command(flags)
    assert (spec.gpus, spec.nodes) == (gpus, nodes)


def test_flags_override_the_environment_and_the_environment_the_script(tmp_path: Path) -> None:
    text = "#CORRAL --gpus 1 --memory 1G --cpus 1 --env A=script --env B=script\ntrue\n"
    spec = script(
        tmp_path,
        text,
        "--gpus 3 --env A=flag",
        CORRAL_SUBMIT_GPUS="2",
        CORRAL_SUBMIT_MEMORY="2G",
        CORRAL_SUBMIT_ENV="C=environment A=environment",
        CORRAL_SUBMIT_HOLD="1",
    )
    assert (spec.gpus, spec.memory_mib, spec.cpu_milli, spec.hold) == (3, 2_048, 1_000, True)
    assert spec.env == {"A": "flag", "B": "script", "C": "environment"}


# --- scripts ---


def test_script_is_submitted_as_text(tmp_path: Path) -> None:
    text = "#!/bin/bash -e\necho $0 $1\n"
    spec = script(tmp_path, text, "", "one", "two")
    assert spec.command == ("/bin/bash", "-e", "-c", f"{text}\n#", "train.sh", "one", "two")
    assert script_of(spec.command) == text
    assert spec.name == "train.sh"


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        ("true", ("/bin/bash", "-c")),
        ("#!/bin/sh", ("/bin/sh", "-c")),
        ("#! /usr/bin/env bash", ("/usr/bin/env", "bash", "-c")),
        ("#!/usr/bin/env -S bash -e", ("/usr/bin/env", "-S", "bash", "-e", "-c")),
        ("#!/usr/bin/env python3", ("/usr/bin/env", "python3", "-c")),
        ("#!/opt/python3.11 -u", ("/opt/python3.11", "-u", "-c")),
    ],
)
def test_the_first_line_names_the_interpreter(
    tmp_path: Path, first: str, interpreter: tuple[str, ...]
) -> None:
    spec = script(tmp_path, first + "\n")
    assert spec.command[: len(interpreter)] == interpreter


def test_directives_are_read_up_to_the_first_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
#!/bin/bash

# a comment
#CORRAL --gpus 2 --name 'two words'   # and why
  # another
#CORRAL --gpu-model=H100 --hold
##CORRAL --gpus 7
#CORRALS --gpus 7
cd /data
#CORRAL --gpus 8
"""
    spec = script(tmp_path, text)
    assert (spec.gpus, spec.name, spec.gpu_models, spec.hold) == (2, "two words", ("H100",), True)
    assert "train.sh line 10: ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--job-name=x", {"name": "x"}),
        ("-J x -p long -A vision", {"name": "x", "queue": "long", "project": "vision"}),
        ("-c4", {"cpu_milli": 4_000}),
        ("--cpus-per-task 4", {"cpu_milli": 4_000}),
        ("--mem=16G", {"memory_mib": 16_384}),
        ("--mem=1000", {"memory_mib": 1_000}),
        ("--time=90", {"time_limit_s": 5_400}),
        ("-t 90:30", {"time_limit_s": 5_430}),
        ("-t 2:00:00", {"time_limit_s": 7_200}),
        ("-t 1-12", {"time_limit_s": 129_600}),
        ("-t 1-12:30", {"time_limit_s": 131_400}),
        ("--gres=gpu:2", {"gpus": 2, "nodes": 1}),
        ("--gres=gpu:h100:2 --nodes=2", {"gpus": 4, "nodes": 2, "gpu_models": ("h100",)}),
        ("--gres=gpu", {"gpus": 1, "nodes": 1}),
        ("-G 4", {"gpus": 4, "nodes": None}),
        ("--gpus=h100:4", {"gpus": 4, "gpu_models": ("h100",)}),
        ("--gpus-per-node=8 -N2", {"gpus": 16, "nodes": 2}),
        ("-N 2-2 --ntasks-per-node=1 --gpus=2", {"nodes": 2}),
        ("-a 0-9:3", {"array": "0-9:3"}),
        ("--array=0-9%2", {"array": "0-9%2"}),
        ("-D /data", {"workdir": "/data"}),
        ("-H", {"hold": True}),
        ("-d afterok:5:6_1", {"after": (Dependency(Until.OK, "5"), Dependency(Until.OK, "6_1"))}),
        (
            "--dependency=afterany:5?after:6",
            {"after": (Dependency(Until.STARTED, "6"), Dependency(Until.ENDED, "5")), "after_count": 1},
        ),
        ("--begin=2030-05-01T08:00:00+00:00", {"begin_at": 1_903_852_800.0}),
        ("--deadline 2030-05-01T08:00:00+00:00", {"deadline_at": 1_903_852_800.0}),
        ("--export=NONE", {"env": {}}),
        ("--export=ALL,A=2", {"env": {"A": "2", "LANG": "C"}}),
        ("--ntasks-per-node=4 --cpus-per-task=4", {"cpu_milli": 16_000, "tasks_per_node": 4, "batch": True}),
        ("-N 2 -n 8 -c 2 --mem-per-cpu=2G", {"cpu_milli": 8_000, "memory_mib": 16_384, "nodes": 2}),
        ("-n 6 --ntasks-per-node=2", {"nodes": 3, "tasks_per_node": 2, "cpu_milli": 2_000}),
        ("--ntasks=8", {"nodes": 1, "tasks_per_node": 8, "cpu_milli": 8_000}),
        ("--nodes=2 --ntasks-per-node=4 --gpus-per-task=1", {"gpus": 8, "nodes": 2}),
        ("--gpus-per-node=4 --mem-per-gpu=10G --cpus-per-gpu=6", {"memory_mib": 40_960, "cpu_milli": 24_000}),
        ("--nodes=2-4", {"nodes": 4, "gang": Gang(min_nodes=2)}),
        ("--mem=16GB", {"memory_mib": 16_384}),
        ("--mem=0 --exclusive", {"memory_mib": 0}),
        ("-o %x-%j.out -e %j.err --open-mode=append", {"output": "%x-%j.out", "error": "%j.err"}),
        ("--time=8:00:00 --time-min=90", {"time_limit_s": 28_800.0, "time_min_s": 5_400.0}),
        ("--signal=B:USR1@120", {"warn_signal": "USR1", "warn_s": 120.0}),
        ("--requeue", {"on_node_lost": OnNodeLost.REQUEUE}),
        ("-x gpu[01-02],bad", {"affinity": (parse_term("node not in gpu01,gpu02,bad"),)}),
        ("-w gpu[1-2]", {"affinity": (parse_term("node in gpu1,gpu2"),), "nodes": 2}),
        ("-C gpu&a100 -G 1", {"gpu_models": ("a100",)}),
        ("--nice=100", {"priority": 25}),
        ("-p gpu,long", {"queue": "gpu"}),
        ("--container-image=nvcr.io#nvidia/pytorch:24.01", {"image": "nvcr.io/nvidia/pytorch:24.01"}),
        ("--mail-type=END --mail-user=a@b --gpu-bind=closest --threads-per-core=1", {"batch": True}),
        ("--export=A=1,HOME", {"env": {"A": "1", "HOME": "/root"}}),
    ],
)
def test_sbatch_directives_are_understood(tmp_path: Path, line: str, expected: dict[str, Any]) -> None:
    spec = script(tmp_path, f"#!/bin/bash\n#SBATCH {line}\n", HOME="/root", LANG="C")
    assert {name: getattr(spec, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#CORRAL --gpsu 2", "line 2: '--gpsu' is not an option of a job. Did you mean '--gpus'?"),
        ("#CORRAL gpus 2", "line 2: 'gpus' is not an option"),
        ("#CORRAL --gpus", "line 2: --gpus needs a value"),
        ("#CORRAL --hold=yes", "line 2: --hold takes no value"),
        ("#CORRAL --name 'x", "line 2: no closing quotation"),
        ("#CORRAL --memory 16", "line 2: --memory: '16' has no unit"),
        ("#CORRAL --time 90", "line 2: --time: '90' has no unit"),
        ("#CORRAL --env NOT_SET_ANYWHERE", "line 2: --env: 'NOT_SET_ANYWHERE' is not set"),
        ("#SBATCH --output=%q.txt", "--output: '%q' is not a pattern"),
        ("#SBATCH --priority=5", "line 2: Corral has no counterpart for #SBATCH --priority. Write #CORRAL"),
        ("#SBATCH hetjob", "line 2: Corral has no counterpart for #SBATCH hetjob. Submit a job for each"),
        ("#SBATCH -C bigmem", "line 2: --constraint: 'bigmem' is a node feature; Corral has labels instead"),
        ("#SBATCH --gres=license:1", "line 2: --gres: 'license:1' requests something other"),
        ("#SBATCH -d singleton", "line 2: --dependency: 'singleton' is not a dependency"),
        ("#SBATCH -d after:5+10", "line 2: --dependency: 'after:5+10' requests a delay"),
        (
            "#SBATCH -d after:5,after:6?after:7",
            "line 2: --dependency: 'after:5,after:6?after:7' mixes",
        ),
        ("#CORRAL --after-ok x", "line 2: --after-ok: 'x' is not a job; write 12"),
        ("#SBATCH --gpus=many", "line 2: --gpus: 'many' is not a number of GPUs"),
        ("#SBATCH --nodes=some", "line 2: --nodes: 'some' is not a number of nodes"),
        ("#SBATCH --mem-per-gpu=8G", "line 2: --mem-per-gpu: the job requests no GPUs"),
        ("#SBATCH --time=forever", "line 2: --time: 'forever' is not a time"),
        ("#SBATCH --mem=lots", "line 2: --mem: 'lots' is not an amount of memory"),
        ("#SBATCH --array=0-9%", "--array: cannot read '%'"),
        ("#SBATCH --nodes", "line 2: --nodes: a value is missing"),
        ("#SBATCH train", "line 2: Corral has no counterpart for #SBATCH tr"),
    ],
)
def test_unsupported_directive_is_named(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(CommandError) as caught:
        script(tmp_path, f"#!/bin/bash\n{line}\n")
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00", "not a text script"),
        (b"#!/bin/sh\n\xff\n", "not a text script"),
        (b"#!/bin/bash\r\ntrue\r\n", "DOS line ends"),
        (b"#!\ntrue\n", "names no interpreter"),
        (b"#!bash\ntrue\n", "names no interpreter"),
        (b"#!/usr/bin/perl\nprint 1\n", "a script for 'perl' cannot be sent"),
        (b"#" * (MAX_SCRIPT_BYTES + 1), "may have at most 131,069"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_file_that_is_no_script_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(data)
    with pytest.raises(CommandError, match=told) as caught:
        spec_of(SubmitOptions(), [str(path)], is_command=False, environment={})
    assert caught.value.hint


def test_missing_script_is_refused_with_a_hint_for_commands(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no script 'python'") as caught:
        spec_of(SubmitOptions(), ["python", "train.py"], is_command=False, environment={})
    assert "-- python" in caught.value.hint
    assert caught.value.code == NOT_FOUND
    with pytest.raises(CommandError, match="Is a directory"):
        spec_of(SubmitOptions(), [str(tmp_path)], is_command=False, environment={})


# --- invalid jobs ---


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--gpus 1.5", "--gpus: must be a whole number"),
        ("--gpus 7 --nodes 2", "--gpus: 7 GPUs cannot be divided evenly"),
        ("--gpus 8 --gpus-per-node 3", "do not agree for 3 nodes"),
        ("--cpus 0", "--cpus: '0' is not a number of cores"),
        ("--memory 9999999T", "--memory: must be positive and at most 1024T"),
        ("--time 9999d", "--time: must be positive"),
        ("--grace 2h", "--grace: must lie between"),
        ("--checkpoint-signal KILL", "--checkpoint-signal: 'KILL' is not a signal for a job"),
        ('--checkpoint-command "\'"', "--checkpoint-command"),
        ("--checkpoint-time 2d", "--checkpoint-time: must be positive and at most a day"),
        ("--array 5-1", "--array: '5-1' counts backwards"),
        ("--project ''", "--project: must not be empty"),
        ("--priority urgent", "--priority: 'urgent' is not a priority"),
        ("--select rack", "--select: 'rack' is not KEY=VALUE"),
        ("--env =x", "--env: '=x' is not KEY=VALUE"),
        ("--nodes 0", "--nodes: '0' is not a whole number"),
    ],
)
def test_invalid_option_is_named_by_its_flag(flags: str, told: str) -> None:
    with pytest.raises(CommandError) as caught:
        command(flags)
    assert told in caught.value.message


def test_invalid_environment_variable_is_named() -> None:
    with pytest.raises(CommandError, match="CORRAL_SUBMIT_MEMORY: '16' has no unit"):
        command(CORRAL_SUBMIT_MEMORY="16")


def test_command_that_linux_cannot_run_is_not_sent() -> None:
    with pytest.raises(CommandError, match="the command: must be Unicode text without NUL"):
        spec_of(SubmitOptions(), ["echo", "\udcff"], is_command=True, environment={})
    with pytest.raises(CommandError, match="an argument has 131,072 bytes"):
        spec_of(SubmitOptions(), ["echo", "é" * (64 * 1024)], is_command=True, environment={})


def test_submit_without_a_command_is_refused() -> None:
    with pytest.raises(CommandError, match="nothing to run"):
        spec_of(SubmitOptions(), [], is_command=False, environment={})


def test_removed_working_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CommandError, match="current directory is gone"):
        command()
