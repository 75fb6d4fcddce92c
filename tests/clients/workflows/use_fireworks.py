"""Uses FireWorks' queue adapter as its documentation shows: a launch by sbatch, its id, and the count."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fireworks.user_objects.queue_adapters.common_adapter import CommonAdapter


def main() -> None:
    """Print one line for each use."""
    adapter: Any = CommonAdapter(
        q_type="SLURM",
        q_name="gpu",
        rocket_launch="sleep 600",
        nodes=1,
        ntasks=1,
        walltime="00:05:00",
        queue="gpu",
        job_name="rocket",
        mem="500M",
        launch_dir=".",
    )
    Path("launch.sh").write_text(adapter.get_script_str(str(Path.cwd())))
    before = adapter.get_njobs_in_queue()
    job = adapter.submit_to_queue("launch.sh")
    print("id", int(job) > 0, "more", adapter.get_njobs_in_queue() - before)
    while adapter.get_njobs_in_queue() > before:
        import subprocess

        subprocess.run(["scancel", str(job)], check=True)
        time.sleep(0.2)
    print("none left")


if __name__ == "__main__":
    main()
