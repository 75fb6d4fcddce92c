"""Flags printed for changes are parsed back to the same changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cli.spec.edit_fields import changes_of
from cli.spec.spec_to_flags import flags_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from tests.cli.flag_groups import parsed
from wire.codec import encode
from wire.job.gangs import Gang, MemberFailure
from wire.job.placement.affinity import parse_term
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec

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
        ({"selector": {"engine": "slurm", "rack": "r1"}}, "--select rack=r1 --engine slurm"),
        ({"licences": {"matlab": 2, "ansys": 1}}, "--licence matlab:2 --licence ansys:1"),
        ({"licences": {}}, "--clear licence"),
        ({"gpu": GpuWish(numa="prefer", compute="9.0")}, "--compute 9.0 --numa prefer"),
        ({"topology": Topology("rack", 1, True)}, "--same rack:prefer"),
        ({"topology": Topology("rack", None, True)}, "--different rack:prefer"),
        ({"topology": Topology("rack", 2, True)}, "--domains rack=2:prefer"),
        ({"affinity": (parse_term("zone not in a,b"),)}, "--affinity zone not in a,b"),
        (
            {"company": (parse_job_term("app=x on rack", 1), parse_job_term("app=y on node=2:prefer", 0))},
            "--near app=x on rack --over app=y on node=2:prefer",
        ),
        ({"gang": Gang(2, 60.0, MemberFailure.RESTART, True)}, None),
        ({"topology": None, "company": (), "gpu": None}, "--clear same,near,gpu-memory"),
        ({"selector": {}, "affinity": (), "gpu_models": ()}, "--clear select,affinity,gpu-model"),
    ],
)
def test_printed_flags_are_parsed_back(changes: dict[str, Any], options: str | None) -> None:
    spec = encode(replace(SPEC, **changes))
    told = {name: spec[name] for name in changes}
    words = flags_of(told)
    assert options in (None, " ".join(words))
    cleared = {name: None for name in told if not changes[name]}
    assert meant(words) == {**told, **cleared}


def meant(words: list[str]) -> dict[str, Any]:
    """The changes that `corral job set` parses from these flags."""
    flags = [word for word in words if word != "--clear"]
    clear = words[words.index("--clear") + 1] if "--clear" in words else ""
    return changes_of(parsed(SubmitOptions, *(word for word in flags if word != clear)), clear)
