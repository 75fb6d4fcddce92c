"""Node requirements of jobs, through the command line, a controller and agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import NEVER_FITS
from tests.programs import run_corral
from tests.systems import System
from wire.names import JobState


class TaintCluster:
    """A system and its command line."""

    def __init__(self, system: System) -> None:
        self.system = system
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
        self.environment = {**kept, "CORRAL_URL": f"unix://{system.socket}"}

    def corral(self, *words: str, code: int = 0) -> str:
        done = run_corral(*words, environment=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if not code else done.stderr

    def submit(self, *words: str) -> int:
        small = ("--cpus", "1", "--memory", "1G")
        return int(self.corral("submit", *small, *words, "--", "sleep", "1000"))

    def runs_on(self, job: int, *nodes: str) -> None:
        """Wait until the job runs on these nodes."""

        def placed() -> bool:
            with self.system.client() as client:
                view = client.job(job).job
            return view.state is JobState.RUNNING and tuple(held.node for held in view.held) == nodes

        self.system.until(placed, f"job {job} runs on {', '.join(nodes)}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TaintCluster]:
    system = System(tmp_path, ("gpu01", "gpu02"))
    system.sections["nodes"]["gpu02"]["labels"] = {"zone": "west"}
    system.sections["nodes"]["gpu02"]["gpus"] = "simulated:4xH100,1xA100-40G:1g.5gb*7"
    try:
        yield TaintCluster(system.start())
    finally:
        system.end()


def test_job_is_placed_by_affinity_and_evicted_by_a_taint(cluster: TaintCluster) -> None:
    west = cluster.submit("--gpus", "1", "--prefer", "zone in west")
    stays = cluster.submit("--gpus", "1", "--affinity", "zone exists", "--tolerate", "broken:NoExecute")
    cluster.runs_on(west, "gpu02")
    cluster.runs_on(stays, "gpu02")
    cluster.corral("nodes", "taint", "gpu02", "broken:NoExecute")
    cluster.runs_on(west, "gpu01")
    assert "broken:NoExecute" in cluster.corral("nodes", "show", "gpu02")
    shown = cluster.corral("job", "show", str(stays))
    assert "zone exists" in shown
    assert "broken:NoExecute" in shown
    cluster.runs_on(stays, "gpu02")
    assert "is being evicted: taint broken:NoExecute of gpu02" in cluster.corral("events", "-o", "json")


def test_live_labels_survive_the_controller(cluster: TaintCluster) -> None:
    assert "can never be placed" in cluster.corral(
        "submit", "--affinity", "rack in r9", "--", "true", code=NEVER_FITS
    )
    cluster.corral("nodes", "label", "gpu01", "rack=r9")
    cluster.runs_on(cluster.submit("--affinity", "rack in r9"), "gpu01")
    cluster.system.stop()
    cluster.system.start()
    cluster.corral("nodes", "label", "gpu01", "rack-")
    assert "'rack in r9'" in cluster.corral(
        "submit", "--affinity", "rack in r9", "--", "true", code=NEVER_FITS
    )


def test_jobs_request_mig_instances_memory_and_links(cluster: TaintCluster) -> None:
    sliced = cluster.submit("--gpus", "2", "--mig", "1g.5gb")
    part = cluster.submit("--gpu-memory", "20G")
    linked = cluster.submit("--gpus", "4", "--nvlink", "require", "--numa", "prefer", "--compute", "9.0")
    cluster.runs_on(sliced, "gpu02")
    cluster.runs_on(part, "gpu01")
    cluster.runs_on(linked, "gpu01")
    with cluster.system.client() as client:
        uuids = [gpu.uuid for gpu in client.job(sliced).job.held[0].gpus]
        (share,) = client.job(part).job.held[0].gpus
    assert len(uuids) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert share.milli == 252  # 20 GiB of the 79.6 that an H100 has
    assert "NVLink required" in cluster.corral("job", "show", str(linked))
    assert "150: one NUMA node, linked" in cluster.corral("job", "show", str(linked))
    apart = cluster.corral(
        "submit", "--gpus", "8", "--nodes", "2", "--same", "rack", "--", "true", code=NEVER_FITS
    )
    assert "--same: can never be placed: it needs 2 nodes" in apart


def test_job_affinity_places_jobs_near_and_apart(cluster: TaintCluster) -> None:
    server = cluster.submit("--label", "app=ps", "--affinity", "zone exists")
    cluster.runs_on(server, "gpu02")
    near = cluster.submit("--near", "app=ps on node")
    apart = cluster.submit("--apart", "app=ps on node")
    cluster.runs_on(near, "gpu02")
    cluster.runs_on(apart, "gpu01")
    assert "near app=ps on node" in cluster.corral("job", "show", str(near))
