"""Additions by the node of a job: the line of slurmstepd about a cancelled job, and host variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.slurm.submit.conftest import SlurmFace
from tests.systems import System, system

CANCELLED = (
    r"slurmstepd: error: \*\*\* JOB {} ON n[12] CANCELLED AT \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d{} \*\*\*\n"
)

SHOW = "echo ${GPU_DEVICE_ORDINAL-none} ${SLURM_STEP_GPUS-none}"
TASKS = f"sorted() {{ srun -l \"$@\" sh -c '{SHOW}' | sort; }}; sorted"
"""Runs a step, and prints the GPUs of each task."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[System]:
    """Two nodes with four GPUs each, in a cluster with a name."""
    with system("n1", "n2") as found:
        found.sections["cluster"] = {"name": "emu"}
        found.sections["queues"] = {"long": {"qos": "patient"}, "short": {}}
        for name in ("n1", "n2"):
            found.sections["nodes"][name] |= {"gpus": "simulated:4xA100"}
        yield found.start()


def wait_for(slurm: SlurmFace, file: str) -> None:
    slurm.cluster.until((slurm.place / file).exists, f"{file} is there")


def test_cancelled_job_has_the_line_in_its_stderr(slurm: SlurmFace) -> None:
    one = slurm.submit("--wrap", "echo begun; touch one; sleep 600")
    deaf = slurm.script("deaf.sh", "#!/bin/sh\n#CORRAL --grace 1s\ntrap '' TERM; touch two; sleep 600\n")
    two = slurm.submit("-o", "two.out", "-e", "two.err", deaf)
    element = slurm.submit("-a", "3", "-o", "element.out", "--wrap", "touch three; sleep 600")
    for file in ("one", "two", "three"):
        wait_for(slurm, file)
    assert slurm.run("scancel", str(one), str(two), f"{element}_3").returncode == 0
    slurm.cluster.await_jobs([one, two, element])
    assert re.fullmatch("begun\n" + CANCELLED.format(one, ""), slurm.output(one))
    assert (slurm.place / "two.out").read_text() == ""
    assert re.match(CANCELLED.format(two, ""), (slurm.place / "two.err").read_text())
    assert re.fullmatch(CANCELLED.format(element, ""), (slurm.place / "element.out").read_text())


def test_the_line_names_the_time_limit_and_a_requeue(slurm: SlurmFace) -> None:
    late = slurm.submit("-t", "0:01", "-o", "late.out", "--wrap", "exec sleep 600")
    again = slurm.submit("-o", "again.out", "--wrap", "test -e again && exit; touch again; exec sleep 600")
    wait_for(slurm, "again")
    assert slurm.run("scontrol", "requeue", str(again)).returncode == 0
    slurm.cluster.await_jobs([late, again])
    assert re.fullmatch(CANCELLED.format(late, " DUE TO TIME LIMIT"), (slurm.place / "late.out").read_text())
    line = CANCELLED.format(again, " DUE TO JOB REQUEUE")
    assert re.fullmatch(line, (slurm.place / "again.out").read_text())


def test_jobs_that_end_by_themselves_and_jobs_of_corral_have_no_line(slurm: SlurmFace) -> None:
    failed = slurm.submit("--wrap", "echo begun; exit 3")
    assert slurm.output(failed) == "begun\n"
    out = slurm.place / "corral.out"
    words = ("submit", "--output", str(out), "--", "sh", "-c", f"touch {slurm.place}/four; exec sleep 600")
    job = int(slurm.cluster.corral(*words).split()[-1])
    wait_for(slurm, "four")
    assert slurm.run("scancel", str(job)).returncode == 0
    slurm.cluster.await_jobs([job])
    assert out.read_text() == ""


def test_deleted_output_file_is_not_made_again(slurm: SlurmFace) -> None:
    job = slurm.submit("-o", "gone.out", "--wrap", "rm gone.out; touch five; exec sleep 600")
    wait_for(slurm, "five")
    assert slurm.run("scancel", str(job)).returncode == 0
    slurm.cluster.await_jobs([job])
    assert not (slurm.place / "gone.out").exists()


def test_name_of_the_cluster(slurm: SlurmFace) -> None:
    job = slurm.submit(
        "--wrap", "echo $SLURM_CLUSTER_NAME $SLURM_WORKING_CLUSTER; srun printenv SLURM_CLUSTER_NAME"
    )
    assert slurm.output(job) == "emu emu\nemu\n"
    assert slurm.run("salloc", "printenv", "SLURM_CLUSTER_NAME").stdout == "emu\n"


def test_the_qos_of_a_queue_is_shown(slurm: SlurmFace) -> None:
    show = "echo $SLURM_JOB_QOS"
    jobs = [slurm.submit("-p", queue, "--wrap", show) for queue in ("long", "short", "default")]
    assert [slurm.output(job) for job in jobs] == ["patient\n", "normal\n", "normal\n"]
    first = str(jobs[0])
    assert slurm.run("sacct", "-n", "-X", "-P", "-j", first, "-o", "QOS").stdout == "patient\n"
    assert "QOS=patient\n" in slurm.run("scontrol", "show", "job", first).stdout
    for command in (["squeue", "-t", "all", "-j", first], ["sacct", "-X", "-j", first]):
        assert '"qos": "patient"' in slurm.run(*command, "--json").stdout
    ids = ",".join(map(str, jobs))
    for qos, count in (("patient", 1), ("normal", 2), ("other", 0)):
        rows = slurm.run("squeue", "-h", "-t", "all", "-j", ids, "--qos", qos, "-o", "%q").stdout
        assert rows == f"{qos}\n" * count
        assert slurm.run("sacct", "-n", "-X", "-P", "-j", ids, "--qos", qos, "-o", "QOS").stdout == rows
    assert slurm.run("salloc", "-p", "long", "printenv", "SLURM_JOB_QOS").stdout == "patient\n"
    names = slurm.run("sacctmgr", "-n", "-P", "show", "qos", "format=name").stdout
    assert names == "normal\npatient\n"
    waits = [slurm.submit("-p", queue, "--hold", "--wrap", "true") for queue in ("long", "short")]
    assert slurm.run("scancel", "--qos=patient", "--state=PENDING").returncode == 0
    left = slurm.run("squeue", "-h", "-t", "PD", "-o", "%i").stdout.split()
    assert (str(waits[0]) in left, str(waits[1]) in left) == (False, True)
    assert slurm.run("scancel", str(waits[1])).returncode == 0


def test_gpus_are_named_by_their_indices(slurm: SlurmFace) -> None:
    """CUDA_VISIBLE_DEVICES has the UUIDs of the same GPUs."""
    show = "echo ${SLURM_JOB_GPUS-none} ${GPU_DEVICE_ORDINAL-none} ${SLURM_STEP_GPUS-none}"
    lines = [
        show,
        f"srun sh -c '{show}'",
        f"srun --gres=gpu:1 sh -c '{show}'",
        f"srun --gres=none sh -c '{show}'",
        "test $(srun -l sh -c 'echo $CUDA_VISIBLE_DEVICES' | tr , '\\n' | wc -l) = 4 && echo four",
    ]
    job = slurm.submit("--gres=gpu:4", "--wrap", "; ".join(lines))
    assert slurm.output(job).splitlines() == [
        "0,1,2,3 0,1,2,3 none",
        "0,1,2,3 0,1,2,3 0,1,2,3",
        "0,1,2,3 0 0",
        "0,1,2,3 none none",
        "four",
    ]
    plain = slurm.submit("--wrap", show)
    assert slurm.output(plain) == "none none none\n"


def test_a_step_that_is_narrower_than_the_job_names_the_number_of_its_gpus(slurm: SlurmFace) -> None:
    show = "echo ${SLURM_GPUS_ON_NODE-none}"
    steps = ["", "--gres=gpu:1", "--gres=gpu:8", "--gpus-per-task=1 --ntasks-per-node=2", "--gres=none"]
    lines = [f"srun -l -N2 {step} sh -c '{show}' | sort" for step in steps]
    job = slurm.submit("-N2", "--gres=gpu:3", "--wrap", "; ".join([show, *lines]))
    assert slurm.output(job).split("\n")[0] == "3"
    assert slurm.output(job).splitlines()[1:] == [
        *("0: 3", "1: 3"),
        *("0: 1", "1: 1"),
        *("0: 3", "1: 3"),
        *("0: 2", "1: 2", "2: 2", "3: 2"),
        *("0: 0", "1: 0"),
    ]


def test_gpus_of_tasks_on_other_nodes(slurm: SlurmFace) -> None:
    """Two GPUs are free on each node. Their indices on n1 differ from those on n2."""
    free = {"n1": "23", "n2": "01"}
    for node in free:
        words = ("-a", "0-3", "--gres=gpu:1", "-w", node, "-o", f"{node}-%a")
        array = slurm.submit(
            *words, "--wrap", f"echo $SLURM_JOB_GPUS; touch {node}-$SLURM_ARRAY_TASK_ID-up; exec sleep 600"
        )
        for index in range(4):
            wait_for(slurm, f"{node}-{index}-up")
        gpus = {(slurm.place / f"{node}-{index}").read_text().strip(): index for index in range(4)}
        assert sorted(gpus) == list("0123")
        assert slurm.run("scancel", *(f"{array}_{gpus[gpu]}" for gpu in free[node])).returncode == 0
    more = [f"{TASKS} --gpus-per-task=1", f"{TASKS} --gres=none"]
    job = slurm.submit("-N2", "--gres=gpu:2", "--wrap", "; ".join([TASKS, *more]))
    assert slurm.output(job).splitlines() == [
        *("0: 2,3 2,3", "1: 0,1 0,1"),
        *("0: 2 2", "1: 0 0"),
        *("0: none none", "1: none none"),
    ]
    assert slurm.run("scancel", "--me").returncode == 0
