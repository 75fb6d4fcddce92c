"""What jobs ask of nodes, through the command line, a controller and agents."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exits import NEVER_FITS
from tests.systems import System
from wire.words import JobState


class Desk:
    """A system and its command line."""

    def __init__(self, system: System) -> None:
        self.system = system
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
        self.environment = {**kept, "CORRAL_URL": f"unix://{system.socket}"}

    def corral(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "cli", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if not code else done.stderr

    def submit(self, *words: str) -> int:
        return int(self.corral("submit", *words, "--", "sleep", "1000"))

    def runs_on(self, job: int, *nodes: str) -> None:
        """Until the job runs there."""

        def there() -> bool:
            with self.system.client() as client:
                view = client.job(job).job
            return view.state is JobState.RUNNING and tuple(held.node for held in view.held) == nodes

        self.system.until(there, f"job {job} runs on {', '.join(nodes)}")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    system = System(tmp_path, ("gpu01", "gpu02"))
    system.sections["nodes"]["gpu02"]["labels"] = {"zone": "west"}
    system.sections["nodes"]["gpu02"]["gpus"] = "simulated:4xH100,1xA100-40G:1g.5gb*7"
    try:
        yield Desk(system.start())
    finally:
        system.end()


def test_a_job_goes_where_its_affinity_says_and_leaves_when_a_taint_says_so(desk: Desk) -> None:
    west = desk.submit("--gpus", "1", "--prefer", "zone in west")
    stays = desk.submit("--gpus", "1", "--affinity", "zone exists", "--tolerate", "broken:NoExecute")
    desk.runs_on(west, "gpu02")
    desk.runs_on(stays, "gpu02")
    desk.corral("nodes", "taint", "gpu02", "broken:NoExecute")
    desk.runs_on(west, "gpu01")
    assert "broken:NoExecute" in desk.corral("nodes", "show", "gpu02")
    shown = desk.corral("job", "show", str(stays))
    assert "zone exists" in shown
    assert "broken:NoExecute" in shown
    desk.runs_on(stays, "gpu02")
    assert "has to leave: taint broken:NoExecute of gpu02" in desk.corral("events", "-o", "json")


def test_labels_can_be_set_live_and_outlive_the_controller(desk: Desk) -> None:
    assert "can never be placed" in desk.corral(
        "submit", "--affinity", "rack in r9", "--", "true", code=NEVER_FITS
    )
    desk.corral("nodes", "label", "gpu01", "rack=r9")
    desk.runs_on(desk.submit("--affinity", "rack in r9"), "gpu01")
    desk.system.stop()
    desk.system.start()
    desk.corral("nodes", "label", "gpu01", "rack-")
    assert "'rack in r9'" in desk.corral("submit", "--affinity", "rack in r9", "--", "true", code=NEVER_FITS)


def test_jobs_ask_for_mig_instances_memory_and_links(desk: Desk) -> None:
    sliced = desk.submit("--gpus", "2", "--mig", "1g.5gb")
    part = desk.submit("--gpu-memory", "20G")
    linked = desk.submit("--gpus", "4", "--nvlink", "require", "--numa", "prefer", "--compute", "9.0")
    desk.runs_on(sliced, "gpu02")
    desk.runs_on(part, "gpu01")
    desk.runs_on(linked, "gpu01")
    with desk.system.client() as client:
        uuids = [gpu.uuid for gpu in client.job(sliced).job.held[0].gpus]
        (share,) = client.job(part).job.held[0].gpus
    assert len(uuids) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert share.milli == 252  # 20 GiB of the 79.6 that an H100 has
    assert "NVLink required" in desk.corral("job", "show", str(linked))
    assert "150: one NUMA node, linked" in desk.corral("job", "show", str(linked))
    apart = desk.corral(
        "submit", "--gpus", "8", "--nodes", "2", "--same", "rack", "--", "true", code=NEVER_FITS
    )
    assert "--same: can never be placed: it needs 2 nodes" in apart


def test_jobs_keep_near_each_other_and_apart(desk: Desk) -> None:
    server = desk.submit("--label", "app=ps", "--affinity", "zone exists")
    desk.runs_on(server, "gpu02")
    near = desk.submit("--near", "app=ps on node")
    apart = desk.submit("--apart", "app=ps on node")
    desk.runs_on(near, "gpu02")
    desk.runs_on(apart, "gpu01")
    assert "near app=ps on node" in desk.corral("job", "show", str(near))
