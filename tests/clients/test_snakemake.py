"""Snakemake with its executor for Slurm, unmodified: a workflow of three jobs."""

from __future__ import annotations

from pathlib import Path

from tests.clients.clients import client_place, needs

SNAKEFILE = """
rule all:
    input: "total.txt"

rule part:
    output: "part{n}.txt"
    resources: mem_mb=1000, runtime=5, slurm_partition="gpu"
    shell: "echo {wildcards.n} > {output}"

rule total:
    input: "part1.txt", "part2.txt"
    output: "total.txt"
    resources: mem_mb=1000, runtime=5, slurm_partition="gpu"
    shell: "cat {input} > {output}"
"""


@needs("snakemake")
def test_workflow_runs_to_its_end(tmp_path: Path) -> None:
    with client_place(tmp_path) as client:
        (client.place / "Snakefile").write_text(SNAKEFILE)
        account = ("--default-resources", "slurm_account=default")
        done = client.run("snakemake", "--executor", "slurm", "-j", "4", *account)
        assert done.returncode == 0, done.stderr
        assert (client.place / "total.txt").read_text() == "1\n2\n"
        states = client.run("sacct", "-n", "-X", "-P", "-o", "State").stdout.split()
        assert states == ["COMPLETED"] * 3
