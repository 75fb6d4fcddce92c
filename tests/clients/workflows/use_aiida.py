"""Uses AiiDA as its documentation shows: calculations through Slurm, the record of sacct, and a hold."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from aiida import engine, load_profile, orm
from aiida.storage.sqlite_temp import SqliteTempBackend


def main() -> None:
    """Print one line for each use."""
    load_profile(SqliteTempBackend.create_profile("trial"), allow_switch=True)
    logging.disable(logging.CRITICAL)
    computer: Any = orm.Computer(
        label="here",
        hostname="localhost",
        transport_type="core.local",
        scheduler_type="core.slurm",
        workdir=str(Path.cwd() / "work"),
    ).store()
    computer.set_minimum_job_poll_interval(0.2)
    computer.configure(safe_interval=0.0, use_login_shell=False)
    code: Any = orm.InstalledCode(
        label="add",
        computer=computer,
        filepath_executable="/bin/bash",
        default_calc_job_plugin="core.arithmetic.add",
    ).store()

    def run(first: int, second: int) -> Any:
        builder = code.get_builder()
        builder.x, builder.y = orm.Int(first), orm.Int(second)
        builder.metadata.options.resources = {"num_machines": 1, "num_mpiprocs_per_machine": 1}
        builder.metadata.options.queue_name = "gpu"
        builder.metadata.options.max_wallclock_seconds = 300
        builder.metadata.options.max_memory_kb = 500_000
        builder.metadata.options.withmpi = False
        return engine.run_get_node(builder)

    results, node = run(1, 2)
    print("sum", results["sum"].value, "state", node.get_scheduler_state().value)
    detailed = node.base.attributes.get("detailed_job_info")
    print("sacct", detailed["retval"], "COMPLETED" in detailed["stdout"])
    print("failed", run(1, -2)[1].exit_status)
    scheduler = computer.get_scheduler()
    with computer.get_transport() as transport:
        scheduler.set_transport(transport)
        Path("long.sh").write_text("#!/bin/bash -l\n#SBATCH --mem=100M -p gpu -H\nsleep 600\n")
        job = scheduler.submit_job(str(Path.cwd()), "long.sh")
        [row] = scheduler.get_jobs(jobs=[job])
        print("held", row.job_state.value, row.annotation)
        print("killed", scheduler.kill_job(job), scheduler.get_jobs(jobs=[job], as_dict=True).get(job))


if __name__ == "__main__":
    main()
