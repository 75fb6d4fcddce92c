"""The limits of accounts and QOS. The outputs are those of Slurm 22.05.8, shortened."""

from __future__ import annotations

import pytest

from controller.engines.batch_systems.slurm.account_limits import quota_of
from controller.engines.contract import EngineUnavailable, ForeignQuota
from controller.plugins.quotas.slurm import SlurmQuotas
from wire.cluster.quota import Limits

ACCOUNTS = """root||||
root|root|root||
vision||root|5|cpu=8,gres/gpu=4,mem=2G
vision|ada|||gres/gpu=1
team||vision||gres/gpu=6,gres/gpu:a100=2
plain||root||
"""
QOS = "normal||\ntight|3|gres/gpu=1,mem=1500M\n"
IN_USE = """ClusterName=emu Account=vision UserName= Partition= Priority=0 ID=5 GrpJobs=5(2) \
GrpSubmitJobs=N(2) GrpWall=N(0.00) GrpTRES=cpu=8(3),mem=2048(100),node=N(1),gres/gpu=4(3) GrpTRESMins=cpu=N(0)
ClusterName=emu Account=team UserName= Partition= Priority=0 ID=6 GrpJobs=N(1) GrpJobsAccrue=N(0) \
GrpSubmitJobs=N(1) GrpWall=N(0.00) GrpTRES=cpu=N(2),mem=N(100),node=N(1),gres/gpu=6(1) GrpTRESMins=cpu=N(0)
QOS=tight(5) UsageRaw=0.000000 GrpJobs=3(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00) \
GrpTRES=cpu=N(0),mem=1500(0),node=N(0),gres/gpu=1(0) GrpTRESMins=cpu=N(0)
"""


def quota(name: str) -> ForeignQuota:
    return quota_of(name, ACCOUNTS, QOS, IN_USE)


def test_limits_of_an_account_and_the_amounts_in_use() -> None:
    found = quota("account=vision")
    assert found.hard == Limits(cpu_milli=8_000, memory_mib=2_048, gpus=4.0, running=5)
    assert found.used == Limits(cpu_milli=3_000, memory_mib=100, gpus=3.0, running=2)
    assert quota("account=plain") == ForeignQuota(Limits(), Limits())


def test_the_limit_that_leaves_the_least_counts() -> None:
    """Account team has 5 of 6 GPUs free, account vision above it 1 of 4, and the QOS 1 of 1."""
    assert quota("account=team").hard.gpus == 4.0
    assert quota("account=team").used.gpus == 3.0
    both = quota("account=plain,qos=tight")
    assert both.hard == Limits(memory_mib=1_500, gpus=1.0, running=3)
    assert both.used == Limits(memory_mib=0, gpus=0.0, running=0)


@pytest.mark.parametrize("name", ["account=gone", "qos=gone", "account=vision,qos=gone", "vision"])
def test_an_unknown_name_is_an_error_and_no_quota_without_limits(name: str) -> None:
    with pytest.raises(EngineUnavailable, match="Slurm has no"):
        quota(name)


def test_limits_without_amounts_in_use() -> None:
    """With PrivateData, Slurm shows limits and no use."""
    assert quota_of("account=vision", ACCOUNTS, QOS, "") == ForeignQuota(
        Limits(cpu_milli=8_000, memory_mib=2_048, gpus=4.0, running=5), Limits()
    )


def test_names_of_projects() -> None:
    source = SlurmQuotas(
        engine="hpc", accounts={"a": "vision", "b": "team"}, qos={"b": "tight", "c": "normal"}
    )
    assert source.foreign_names == {"a": "account=vision", "b": "account=team,qos=tight", "c": "qos=normal"}
    with pytest.raises(ValueError, match="cannot be a name in Slurm"):
        SlurmQuotas(engine="hpc", qos={"a": "x,account=root"})
    with pytest.raises(ValueError, match=r"name the table \[engines.NAME\]"):
        SlurmQuotas(accounts={"a": "vision"})
