"""The job that sbatch makes from options and variables, and the words with which it refuses them."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from cli.slurm.programs import SlurmError
from cli.slurm.submit.sbatch_to_spec import BatchRequest, batch_job
from tests.limits import PATIENCE_S
from wire.job.spec import JobSpec

SHELL = {"COLOUR": "red", "SIZE": "2", "PATH": "/usr/bin"}
NO_ARRAY = "Batch job submission failed: Invalid job array specification"
NO_ACCOUNT = "Batch job submission failed: Invalid account or account/partition combination specified"
NO_FEATURE = "Batch job submission failed: Invalid feature specification"
NO_PARTITION = "Batch job submission failed: Invalid partition name specified"
NO_DEPENDENCY = "Batch job submission failed: Job dependency problem"


def made(*words: str, script: str = "#!/bin/sh\n", **environment: str) -> JobSpec:
    """The job of an sbatch with these options, each as --name=value."""
    options = [word.removeprefix("--").partition("=")[::2] for word in words]
    given = {**SHELL, **environment}
    return batch_job(BatchRequest(script, "job.sh", (), tuple(options), given, "/work", "login")).spec


def variables(*words: str) -> dict[str, str]:
    """The variables of a job, without those that every job gets."""
    env = made(*words).env
    assert (env["SLURM_SUBMIT_DIR"], env["SLURM_SUBMIT_HOST"]) == ("/work", "login")
    return {name: env[name] for name in env if not name.startswith("SLURM_SUBMIT_")}


@pytest.mark.parametrize(
    ("words", "code", "first", "last"),
    [
        (["--time=soon"], 255, "Invalid --time specification: 'soon' is not a time", ""),
        (["--mem=lots"], 255, "Invalid --mem specification: 'lots' is not an amount", ""),
        (["--open-mode=other"], 255, "Invalid --open-mode specification: must be one of append", ""),
        (["--bb=x"], 255, "command line: Corral has no counterpart for #SBATCH --bb. Write #CORRAL", ""),
        (
            ["--mem=1G", "--mem-per-cpu=1G"],
            255,
            "Invalid --mem-per-cpu specification: --mem and --mem-per",
            "",
        ),
        (
            ["--ntasks=9", "--nodes=2", "--ntasks-per-node=4"],
            *(
                255,
                "Invalid --ntasks specification: 2 nodes with --ntasks-per-node=4 hold 8 of the 9 tasks;",
                "",
            ),
        ),
        (
            ["--nodes=2-1"],
            255,
            "Invalid --nodes specification: '2-1' has a minimum number of nodes above",
            "",
        ),
        (["--signal=99"], 255, "Invalid --signal specification: '99' is not a signal for a job", ""),
        (["--mem-per-gpu=1G"], 255, "Invalid --mem-per-gpu specification: the job requests no GPUs", ""),
        (["--time="], 255, "Invalid --time specification: a value is missing: write --time=…", ""),
        (["--ntasks=0"], 1, 'Invalid numeric value "0" for --ntasks.', ""),
        (["--cpus-per-task=x"], 1, 'Invalid numeric value "x" for --cpus-per-task.', ""),
        (["--constraint=ib"], 1, "Invalid --constraint specification: 'ib' is a node feature", NO_FEATURE),
        (["--account="], 1, "Invalid --account specification: a value is missing", NO_ACCOUNT),
        (["--partition="], 1, "Invalid --partition specification: a value is missing", NO_PARTITION),
        (["--dependency=nonsense:1"], 1, "Invalid --dependency specification: 'nonsense:1'", NO_DEPENDENCY),
        (
            ["--dependency=aftercorr:7"],
            1,
            "Invalid --dependency specification: 'aftercorr:7' pa",
            NO_DEPENDENCY,
        ),
        (["--dependency=afterok:"], 1, "Invalid --dependency specification: 'afterok:'", NO_DEPENDENCY),
        (["--dependency=afterok:1,after:2?any"], 1, "Invalid --dependency specification: ", NO_DEPENDENCY),
        (["--dependency=x", "--time=soon"], 255, "Invalid --dependency specification: 'x'", ""),
        (["--array=5-1"], 1, "array: '5-1' counts backwards", NO_ARRAY),
        (["--array=x"], 1, "array: cannot read 'x'", NO_ARRAY),
        (["--array=0-10000"], 1, "array: has more than 10000 elements", NO_ARRAY),
        (["--array=x", "--open-mode=other"], 255, "", ""),
    ],
)
def test_refusals(words: list[str], code: int, first: str, last: str) -> None:
    """sbatch itself refuses options with 255. It exits with 1 for what the controller of Slurm refuses."""
    with pytest.raises(SlurmError) as refused:
        made(*words)
    lines = refused.value.lines
    assert refused.value.code == code
    assert any(line.startswith(first) for line in lines), lines
    failed = [line for line in lines if line.startswith("Batch job submission failed")]
    assert failed == ([last] if last else [])
    assert not last or lines[-1] == last


def test_an_empty_value_means_the_default() -> None:
    """Scripts write options such as --dependency=$AFTER, and the variable may be empty."""
    names = "array chdir comment constraint dependency error exclude export gpus gpus-per-node gpus-per-task"
    more = "job-name licenses mail-user nodelist output reservation"
    assert made(*(f"--{name}=" for name in f"{names} {more}".split())) == made()
    assert made(script="#!/bin/sh\n#SBATCH --comment=\n").comment == ""
    script = "#!/bin/sh\n#SBATCH --dependency=afterok:7\n"
    assert (len(made(script=script).after), made("--dependency=", script=script).after) == (1, ())


@pytest.mark.parametrize("line", ["#SBATCH--time=5", "#SBATCH-t5", "#SBATCH\t-t 5"])
def test_an_option_may_follow_without_a_space(line: str) -> None:
    assert made(script=f"#!/bin/sh\n{line}\n").time_limit_s == 300


@pytest.mark.parametrize(
    ("script", "first"),
    [
        ("", "Batch script is empty!"),
        (" \n", "Batch script contains only whitespace!"),
        ("echo\n", "This does not look like a batch script.  The first"),
        ("#!/bin/sh\r\ntrue\r\n", "Batch script contains DOS line breaks (\\r\\n)"),
        ("#!/bin/sh\n# caf\udce9\n", "Batch script is not UTF-8 text in line 2"),
        ("#!/bin/sh\n" + "#" * 131_072, "Batch script has more than 131,069 bytes"),
        ("#!/bin/sh\n\0", "The Slurm controller does not allow scripts that"),
    ],
)
def test_texts_that_are_no_scripts(script: str, first: str) -> None:
    with pytest.raises(SlurmError) as refused:
        made(script=script)
    assert (refused.value.code, refused.value.lines[0]) == (1, first)


def test_errors_of_lines_name_the_lines() -> None:
    with pytest.raises(SlurmError) as refused:
        made(script="#!/bin/sh\n#SBATCH --bb=x\n#SBATCH -t soon\n")
    first, second = refused.value.lines
    assert first.startswith("job.sh line 2: Corral has no counterpart for #SBATCH --bb")
    assert second.endswith("(job.sh line 3)")
    assert refused.value.code == 255


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("NONE", {}),
        ("NONE,X=1", {"X": "1"}),
        ("NONE,COLOUR", {"COLOUR": "red"}),
        ("COLOUR,MISSING", {"COLOUR": "red"}),
        ("COLOUR,SIZE=3", {"COLOUR": "red", "SIZE": "3"}),
        ("ALL,X=1", {**SHELL, "X": "1"}),
        ("ALL", SHELL),
        ("", SHELL),
    ],
)
def test_export(text: str, env: dict[str, str]) -> None:
    """A variable that the shell does not have is left out without an error, as in Slurm."""
    assert variables(*([f"--export={text}"] if text else [])) == env


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--mem-per-cpu=100M", "--cpus-per-task=2"], {"SLURM_MEM_PER_CPU": "100"}),
        (["--mem-per-gpu=1G", "--gres=gpu:2"], {"SLURM_MEM_PER_GPU": "1024"}),
        (["--cpus-per-gpu=3", "--gres=gpu:2"], {"SLURM_CPUS_PER_GPU": "3"}),
        (["--gpus-per-node=a100:2", "--nodes=2"], {"SLURM_GPUS_PER_NODE": "a100:2"}),
        (["--mem=100M"], {}),
    ],
)
def test_variables_of_written_sizes(words: list[str], env: dict[str, str]) -> None:
    assert variables("--export=NONE", *words) == env


def test_sizes_per_part_are_sums_per_node() -> None:
    each = made("--mem-per-cpu=100M", "--cpus-per-task=2", "--ntasks=3")
    assert (each.cpu_milli, each.memory_mib) == (6_000, 600)
    gpu = made("--mem-per-gpu=1G", "--cpus-per-gpu=3", "--gres=gpu:2")
    assert (gpu.cpu_milli, gpu.memory_mib, gpu.gpus) == (6_000, 2_048, 2)


def test_memory_of_the_command_line_overrides_a_variable() -> None:
    job = made("--mem-per-cpu=2G", "--cpus-per-task=2", SBATCH_MEM_PER_NODE="500M")
    assert job.memory_mib == 4_096


def test_signal_as_a_number() -> None:
    assert made("--signal=B:10@30").warn_signal == made("--signal=B:USR1@30").warn_signal == "USR1"


@pytest.mark.parametrize(("word", "hour"), [("midnight", 0), ("tomorrow", 0), ("noon", 12), ("teatime", 16)])
def test_words_for_the_begin(word: str, hour: int) -> None:
    begin = made(f"--begin={word}").begin_at
    assert begin is not None
    assert time.localtime(begin)[3:6] == (hour, 0, 0)
    assert 0 < begin - time.time() <= 90_000


def test_sbatch_imports_no_libraries() -> None:
    """Their import would take more time than the rest of sbatch."""
    code = "import sys, cli.slurm.submit.sbatch; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    loaded = set(done.stdout.split())
    assert "wire.http.transport" in loaded
    assert loaded & {"typer", "difflib", "pydantic", "wire.http.client", "controller"} == set()


def test_job_gets_the_first_of_several_reservations_and_a_warning() -> None:
    options = (("reservation", "course,maint"),)
    job = batch_job(BatchRequest("#!/bin/sh\n", "job.sh", (), options, SHELL, "/work", "login"))
    assert job.spec.reservation == "course"
    assert job.reservations == ("course", "maint")
    assert "--reservation: only course is used" in job.warnings
