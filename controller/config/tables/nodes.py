"""Tables with the settings of nodes, GPUs and the agents that run jobs: [jobs], [gpus] and [nodes]."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from controller.config.tables.fields import AbsolutePath, Section, SizesSection
from wire import gpudescription
from wire.agent.job_policy import JobPolicy
from wire.cluster import hosts
from wire.cluster.hosts import HostSpec
from wire.codec import decode
from wire.job.images import mount_problem
from wire.job.placement.affinity import parse_taint


def _ssh(text: str) -> str:
    if text:
        hosts.parse_ssh_address(text)
    return text


def _taint(text: str) -> str:
    parse_taint(text)
    return text


def _hook(command: list[str]) -> list[str]:
    if command and not command[0].startswith("/"):
        raise ValueError(
            f'{command[0]!r} is no absolute path; write ["/etc/corral/prolog"], arguments behind it'
        )
    return command


Hook = Annotated[list[str], AfterValidator(_hook)]


def _mount(text: str) -> str:
    wrong = mount_problem(text)
    if wrong:
        raise ValueError(wrong)
    return text


class ContainersSection(Section):
    """Sets how agents run container images: [jobs.containers]."""

    command: list[str] = []
    options: list[str] = []
    mounts: list[Annotated[str, AfterValidator(_mount)]] = []


class JobsSection(SizesSection):
    """Sets how agents run jobs, and the run time that the scheduler assumes for jobs without a time limit:
    [jobs]."""

    default_time_limit_s: float = Field(86_400.0, ge=0, le=315_360_000)
    owners_may_extend: bool = True
    limit_warning_s: float = Field(600.0, ge=0, le=315_360_000)
    limits: Literal["auto", "none"] = "auto"
    bind: Literal["cores", "numa", "none"] = "cores"
    max_processes: int = Field(16_384, ge=16, le=4_000_000)
    prolog: Hook = []
    epilog: Hook = []
    hook_s: float = Field(60.0, gt=0, le=86_400)
    log_mib: int = Field(1_024, ge=0, le=1 << 30)
    log_running_mib: int = Field(8_192, ge=0, le=1 << 30)
    log_user_mib: int = Field(20_480, ge=0, le=1 << 30)
    log_node_mib: int = Field(102_400, ge=0, le=1 << 30)
    log_days: float = Field(365.0, ge=0, le=36_500)
    log_attempts: int = Field(10_000, ge=1, le=1_000_000)
    scratch_overuse: Literal["end", "flag"] = "end"
    checkpoint_look_s: float = Field(30.0, ge=0.1, le=86_400)
    containers: ContainersSection = ContainersSection()

    @property
    def policy(self) -> JobPolicy:
        """Return these settings of [jobs] in the form that agents receive."""
        of_agents = {each.name for each in fields(JobPolicy)}
        return decode(JobPolicy, self.model_dump(include=of_agents))


def _xids(table: dict[str, str]) -> dict[str, str]:
    wrong = next((code for code in table if not (code.isascii() and code.isdigit() and len(code) < 6)), None)
    if wrong is not None:
        raise ValueError(f'{wrong!r} is no number of an Xid; write xid = {{ 13 = "ignore" }}')
    return table


Remedy = Literal["ignore", "suspect", "cordon", "reset", "reboot"]


class GpuRulesSection(Section):
    """The actions after GPU problems such as ECC errors, and the thresholds at which measurements count as a
    problem: [gpus.rules].
    """

    ecc_uncorrected: Remedy = "cordon"
    ecc_corrected: Remedy = "suspect"
    corrected_per_hour: int = Field(1_000, ge=1, le=1_000_000_000)
    row_remap: Remedy = "reset"
    nvlink: Remedy = "cordon"
    slowdown: Remedy = "suspect"
    slowdown_s: float = Field(60.0, gt=0, le=86_400)
    memory: Remedy = "suspect"
    memory_s: float = Field(60.0, gt=0, le=86_400)


class GpusSection(Section):
    """Sets how unhealthy GPUs are checked, and what happens to unhealthy GPUs and to jobs whose GPUs are
    idle: [gpus]."""

    check_s: float = Field(30.0, gt=0, le=86_400)
    check_most_s: float = Field(3_600.0, gt=0, le=604_800)
    checks: int = Field(3, ge=1, le=100)
    most_out: float = Field(0.25, gt=0, le=1)
    reset: list[str] = ["nvidia-smi", "--gpu-reset", "-i"]
    idle_after_s: float = Field(1_800.0, ge=0, le=31_536_000)
    idle: Literal["flag", "requeue", "cancel"] = "flag"
    idle_grace_s: float = Field(600.0, ge=0, le=31_536_000)
    idle_keep_most_s: float = Field(43_200.0, ge=0, le=31_536_000)
    rules: GpuRulesSection = GpuRulesSection()
    xid: Annotated[
        dict[str, Literal["ignore", "blame", "suspect", "cordon", "reset", "reboot"]], AfterValidator(_xids)
    ] = {}


class NodeSection(Section):
    """One node: [nodes.NAME]. If a value such as the memory is not set, the value that the node's agent
    reports is used.
    """

    link: Literal["local", "ssh"] = "local"
    ssh: Annotated[str, AfterValidator(_ssh)] = ""
    identity: AbsolutePath = ""
    address: str = ""
    gpus: Annotated[str, AfterValidator(gpudescription.checked_description)] = "auto"
    cpus: int | None = Field(None, ge=1, le=10_000)
    memory: Annotated[str, AfterValidator(hosts.checked_memory)] | None = None
    labels: dict[str, str] = {}
    taints: list[Annotated[str, AfterValidator(_taint)]] = []
    run_as_self: bool = False
    python: AbsolutePath = ""
    spool: AbsolutePath = ""
    scratch: Annotated[str, AfterValidator(hosts.checked_memory)] | None = None
    scratch_dir: AbsolutePath = ""

    @property
    def agent(self) -> HostSpec:
        """Return the settings with which the node's agent is started: on the controller's machine, or on
        another host by SSH if the settings have an SSH address.
        """
        return HostSpec(**self.model_dump(exclude={"link", "taints"}))

    @property
    def host(self) -> HostSpec | None:
        """Return the SSH settings of the node's host; None if the agent runs on the controller's machine."""
        return self.agent if self.link == "ssh" else None

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, value: Any) -> Any:
        """Return the node's table. Add `link = "ssh"` if the table has the key `ssh` and no key `link`."""
        if isinstance(value, dict) and value.get("ssh") and "link" not in value:
            return {**value, "link": "ssh"}
        return value

    @model_validator(mode="after")
    def _both_or_neither(self) -> NodeSection:
        if self.link == "ssh" and not self.ssh:
            raise ValueError('has no address; write ssh = "user@host:port"')
        if self.link == "local" and (self.ssh or self.identity or self.address):
            raise ValueError('has link = "local"; ssh, identity and address are for link = "ssh"')
        if self.host is not None:
            for where, message in hosts.host_problems(self.host):
                raise ValueError(f"{where}: {message}")
        return self
