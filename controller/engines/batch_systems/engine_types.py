"""The engines `slurm` and `pbs`: the options of their tables in scheduler.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from controller.engines.batch_systems.batch_engine import BatchEngine, BatchSettings
from controller.engines.batch_systems.command_runner import CommandRunner, LocalRunner, SshRunner
from controller.engines.batch_systems.pbs.pbs_commands import PbsCommands
from controller.engines.batch_systems.slurm.slurm_commands import SlurmCommands
from controller.engines.contract import EngineScope

Place = Literal["partition", "node"]


@dataclass(frozen=True, slots=True)
class SlurmEngineType:
    """Runs jobs by sbatch, on this machine or on the login node `login` by SSH."""

    name: ClassVar[str] = "slurm"

    login: str = ""
    identity: str = ""
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = "gpu"
    place: Place = "partition"
    records: str = "~/.corral/batch"
    shared_account: bool = False
    gpu_memory_mib: int = 0
    json: bool = False
    options: tuple[str, ...] = ()

    def connect(self, scope: EngineScope) -> BatchEngine:
        commands = SlurmCommands(json=self.json, partitions=self.partitions)
        return BatchEngine(commands, _runner(self, scope), _settings(self, self.gres), scope.tag_prefix)


@dataclass(frozen=True, slots=True)
class PbsEngineType:
    """Runs jobs by qsub, on this machine or on the login node `login` by SSH. The options of OpenPBS and PBS
    Professional are the default; with `openpbs = false`, the options of Torque are used.
    """

    name: ClassVar[str] = "pbs"

    login: str = ""
    identity: str = ""
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    constraint: str = ""
    place: Place = "partition"
    records: str = "~/.corral/batch"
    shared_account: bool = False
    gpu_memory_mib: int = 0
    openpbs: bool = True
    options: tuple[str, ...] = ()

    def connect(self, scope: EngineScope) -> BatchEngine:
        commands = PbsCommands(openpbs=self.openpbs)
        return BatchEngine(commands, _runner(self, scope), _settings(self, "gpu"), scope.tag_prefix)


def _runner(kind: SlurmEngineType | PbsEngineType, scope: EngineScope) -> CommandRunner:
    if kind.login:
        return SshRunner(kind.login, kind.identity, scope.timeout_s)
    return LocalRunner(scope.timeout_s)


def _settings(kind: SlurmEngineType | PbsEngineType, gres: str) -> BatchSettings:
    return BatchSettings(
        kind.partitions,
        kind.account,
        kind.qos,
        kind.constraint,
        gres,
        kind.place,
        kind.records,
        kind.shared_account,
        kind.gpu_memory_mib,
        kind.options,
    )
