"""Job scripts from the documentation of Slurm sites, unmodified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.exit_codes import CommandError
from cli.spec.sbatch.constraint import gpu_models
from cli.spec.spec_builder import spec_of, submission_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from wire.job.spec import JobSpec

SCRIPTS = Path(__file__).parent
REFUSED = {"hetjob"}
"""Kinds of scripts that are refused: each line is named, with its replacement."""


def read(name: str) -> JobSpec:
    return spec_of(
        SubmitOptions(), [str(SCRIPTS / f"{name}.sh")], is_command=False, environment={"LANG": "C"}
    )


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.stem)
def test_sbatch_script_is_accepted_or_refused_by_line(path: Path) -> None:
    if path.stem in REFUSED:
        with pytest.raises(CommandError) as refused:
            read(path.stem)
        assert f"{path} line 3: Corral has no counterpart for #SBATCH hetjob" in refused.value.message
    else:
        spec = read(path.stem)
        assert spec.batch
        assert spec.command[0] == "/bin/bash"


def test_every_unsupported_directive_is_named_in_one_run(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(
        "#SBATCH --clusters=b\n#SBATCH -N x --frobnicate=1\n#SBATCH --mem=1G\n#SBATCH --input=f\n"
    )
    with pytest.raises(CommandError) as refused:
        spec_of(SubmitOptions(), [str(script)], is_command=False, environment={})
    first, *lines = refused.value.message.splitlines()
    assert first == f"{script}: 4 #SBATCH lines cannot be used:"
    told = [line.strip().removeprefix(f"{script} ") for line in lines]
    assert told[0].startswith(
        "line 1: Corral has no counterpart for #SBATCH --clusters. Choose the controller"
    )
    assert any(line.startswith("line 2: --nodes: 'x' is not a number") for line in told)
    assert any(line.startswith("line 2: Corral has no counterpart for #SBATCH --frobnicate") for line in told)
    assert any(line.startswith("line 4: Corral has no counterpart for #SBATCH --input") for line in told)


def test_ignored_directives_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    read("juwels")
    told = capsys.readouterr().err
    assert "juwels.sh line 11: --hint has no effect" in told
    assert "juwels.sh line 12: --threads-per-core has no effect" in told


def test_sbatch_amounts_are_per_node() -> None:
    ddp, perlmutter, harvard = read("ddp"), read("perlmutter"), read("harvard")
    assert (ddp.nodes, ddp.gpus, ddp.cpu_milli, ddp.memory_mib) == (2, 16, 64_000, 0)
    assert (perlmutter.nodes, perlmutter.gpus, perlmutter.cpu_milli) == (2, 8, 128_000)
    assert (harvard.cpu_milli, harvard.memory_mib, harvard.gpus) == (4_000, 40_960, 1)


def test_corral_directive_overrides_an_sbatch_directive(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("#CORRAL --cpus 3\n#SBATCH --cpus-per-task=4\n")
    assert spec_of(SubmitOptions(), [str(script)], is_command=False, environment={}).cpu_milli == 3_000


def test_wait_comment_and_lost_dependencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "x.sh"
    script.write_text("#SBATCH -W --comment='third try'\n#SBATCH --kill-on-invalid-dep=no\necho\n")
    made = submission_of(SubmitOptions(), [str(script)], is_command=False, environment={})
    assert made.wait
    assert made.spec.comment == "third try"
    assert 'cancels such jobs, unless [scheduler.waiting] hopeless is "hold"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("a100", ["a100"]),
        ("a100|h100", ["a100", "h100"]),
        ("[h100|a100]&gpu", ["h100", "a100"]),
        ("gpu,(v100|a100)", ["v100", "a100"]),
        ("gpu|a100", []),
    ],
)
def test_constraint_expressions_name_gpu_models(text: str, models: list[str]) -> None:
    assert gpu_models(text) == models


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a100&h100", "write a100|h100 for nodes with one of these GPUs"),
        ("[a100*2&h100*1]", "submit a job for each kind of node"),
        ("a100&skylake", "'skylake' is a node feature"),
        ("(a100", "'(' has no ')'"),
        ("a100|", "a feature is missing"),
        ("a100)", "')' in a wrong place"),
        ("(" * 3_000, "has 3000 names and operators, and may have 200"),
        ("&".join(f"(a{n}|h{n})" for n in range(100, 130)), "combines too many features"),
    ],
)
def test_constraints_that_cannot_be_met_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        gpu_models(text)


def test_gpu_type_must_be_one_of_the_constraint(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"

    def models(*lines: str) -> tuple[str, ...]:
        script.write_text("".join(f"#SBATCH {line}\n" for line in lines))
        return spec_of(SubmitOptions(), [str(script)], is_command=False, environment={}).gpu_models

    assert models("-C a100|h100", "--gres=gpu:h100:1") == ("h100",)
    with pytest.raises(CommandError, match="line 2: --gres: --constraint excludes GPUs of type h100"):
        models("-C a100|v100", "--gres=gpu:h100:1")
