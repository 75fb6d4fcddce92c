"""Options made of changes say what the changes said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.asked import Asked, asking
from cli.changes import changes_of
from cli.options import options_of
from wire.affinity import term_of
from wire.codec import encode
from wire.company import job_term_of
from wire.gangs import Gang, MemberFailure
from wire.gpuwish import GpuWish, Topology
from wire.spec import JobSpec

SPEC = JobSpec(("true",))


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"gpus": 4.0}, "--gpus 4"),
        ({"gpus": 16.0, "nodes": 2}, "--gpus 16 --nodes 2"),
        ({"memory_mib": 112 * 1024}, "--memory 112G"),
        ({"memory_mib": 1500}, "--memory 1500M"),
        ({"cpu_milli": 500}, "--cpus 0.5"),
        ({"scratch_mib": 10 * 1024}, "--scratch 10G"),
        ({"time_limit_s": 5_400.0}, "--time 90m"),
        ({"time_limit_s": 7_200.0}, "--time 2h"),
        ({"gpu_models": ("H100", "A100 80GB")}, "--gpu-model H100 --gpu-model A100 80GB"),
        ({"selector": {"disk": "nvme"}}, "--select disk=nvme"),
        ({"licences": {"matlab": 2, "ansys": 1}}, "--licence matlab:2 --licence ansys:1"),
        ({"licences": {}}, "--clear licence"),
        ({"gpu": GpuWish(numa="prefer", compute="9.0")}, "--compute 9.0 --numa prefer"),
        ({"topology": Topology("rack", 1, True)}, "--same rack:prefer"),
        ({"topology": Topology("rack", None, True)}, "--different rack:prefer"),
        ({"topology": Topology("rack", 2, True)}, "--domains rack=2:prefer"),
        ({"affinity": (term_of("zone not in a,b"),)}, "--affinity zone not in a,b"),
        (
            {"company": (job_term_of("app=x on rack", 1), job_term_of("app=y on node=2:prefer", 0))},
            "--near app=x on rack --over app=y on node=2:prefer",
        ),
        ({"gang": Gang(2, 60.0, MemberFailure.RESTART, True)}, None),
        ({"topology": None, "company": (), "gpu": None}, "--clear same,near,numa"),
        ({"selector": {}, "affinity": (), "gpu_models": ()}, "--clear select,affinity,gpu-model"),
    ],
)
def test_there_and_back(changes: dict[str, Any], options: str | None) -> None:
    spec = encode(replace(SPEC, **changes))
    told = {name: spec[name] for name in changes}
    words = options_of(told)
    assert options in (None, " ".join(words))
    cleared = {name: None for name in told if not changes[name]}
    assert meant(words) == {**told, **cleared}


def meant(words: list[str]) -> dict[str, Any]:
    """What `corral job set` makes of them."""
    found: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @asking
    def change(asked: Asked, clear: str = "") -> int:
        found.append(changes_of(asked, clear))
        return 0

    result = CliRunner().invoke(app, words)
    assert not result.exception, result.output
    return found[0]
