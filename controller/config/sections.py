"""The tables of scheduler.toml with their default values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from controller.config.ceilings import LimitsSection, ProjectSection
from controller.config.fields import Name, NodeName, Plugin, Section, WeightedPlugin
from controller.config.key_positions import DELIMITER, PREFIX, Source
from controller.config.profiles import ProfileSection
from controller.config.strategies import STRATEGIES, Strategy, with_strategy
from controller.core.model.request import JobDefaults
from wire import gpudescription
from wire.agent.job_policy import JobPolicy
from wire.cluster import hosts
from wire.cluster.hosts import HostSpec
from wire.codec import decode
from wire.http import addresses
from wire.job.affinity import parse_taint
from wire.job.images import mount_problem
from wire.job.licences import MAX_PER_LICENCE, NAME

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")


def _absolute(text: str) -> str:
    # Because the working directory of a daemon depends on how it was started.
    if text and not Path(text).expanduser().is_absolute():
        raise ValueError(f"{text!r} is not an absolute path; start it with / or ~/")
    return text


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if text and (match is None or int(match[2]) > 65_535):
        raise ValueError(f'cannot read {text!r} as an address; write "127.0.0.1:7070", or "" for none')
    return text


def _ssh(text: str) -> str:
    if text:
        hosts.parse_ssh_address(text)
    return text


def _taint(text: str) -> str:
    parse_taint(text)
    return text


def _root(text: str) -> str:
    # Because the paths of jobs are compared with it letter by letter.
    if not text.startswith("/") or "//" in text or {".", ".."} & set(text.split("/")):
        raise ValueError(f"{text!r} is not a plain absolute path; start it with / and leave out . and ..")
    return text


PlainPath = Annotated[str, AfterValidator(_root)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


def _resource(name: str) -> str:
    if name not in ("cpu", "memory", "gpu") and not name.startswith("gpu."):
        raise ValueError(f'there is no {name!r} to bill; "cpu", "memory", "gpu", or a model as "gpu.H100"')
    return name


def _licence(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a licence: letters, digits, '.', '_', '@' and '-'")
    return name


Resource = Annotated[str, AfterValidator(_resource)]
LicenceName = Annotated[str, AfterValidator(_licence)]
LicenceCount = Annotated[int, Field(ge=0, le=MAX_PER_LICENCE)]
Billing = Annotated[float, Field(ge=0, le=1e12)]
Weight = Annotated[float, Field(gt=0, le=1_000_000)]


class ClusterSection(Section):
    """The name of the cluster, and what its hosts share."""

    name: Name = "corral"
    shared: list[PlainPath] = []


class ControllerSection(Section):
    """Paths and limits of the controller."""

    state_dir: AbsolutePath = ""
    socket: AbsolutePath = ""
    keep_ended: int = Field(10_000, ge=0, le=1_000_000)
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class StoreSection(Section):
    """The database of journal and rows."""

    url: str = ""


class RetentionSection(Section):
    """How long the store keeps ended jobs and journal entries; 0 means no limit."""

    jobs_days: float = Field(365.0, ge=0, le=36_500)
    jobs: int = Field(500_000, ge=0, le=1_000_000_000)
    journal_days: float = Field(365.0, ge=0, le=36_500)
    journal_entries: int = Field(2_000_000, ge=0, le=1_000_000_000)


class ApiSection(Section):
    """Address and limits of the HTTP API."""

    listen: Annotated[str, AfterValidator(_address)] = ""
    max_body: int = Field(1 << 20, ge=1 << 10, le=1 << 28)
    max_connections: int = Field(1_000, ge=1, le=100_000)


class QuestionsSection(Section):
    """Limits for `corral explain`, `corral what-if` and previews."""

    at_once: int = Field(0, ge=0, le=64)
    budget_s: float = Field(2.0, ge=0.1, le=60)
    longest_s: float = Field(10.0, ge=0.1, le=600)
    memory_mib: int = Field(1_024, ge=64, le=1 << 20)


class AccessSection(Section):
    """Operators, and what other users may do. Root and the controller's user may do everything."""

    operators: list[Name] = []
    others: Literal["submit", "view"] = "submit"
    limits: LimitsSection = LimitsSection()


class FairShareSection(Section):
    """Accounting of use, and shares."""

    half_life_s: float = Field(86_400.0, ge=60, le=315_360_000)
    window_s: float | None = Field(None, ge=60, le=315_360_000)
    billing: dict[Resource, Billing] = {"gpu": 1.0}
    charge: Literal["sum", "dominant"] = "sum"
    held_hours: float = Field(1.0, ge=0, le=1_000)
    organisations: dict[Name, list[Name]] = {}
    weights: dict[Name, Weight] = {}
    soft_limits: dict[Name, Billing] = {}
    hard_limits: dict[Name, Billing] = {}
    off_queue: str = ""

    @field_validator("organisations")
    @classmethod
    def _one_place_each(cls, found: dict[str, list[str]]) -> dict[str, list[str]]:
        seen = dict.fromkeys(found, "is an organisation itself")
        for organisation, projects in found.items():
            for project in projects:
                if project in seen:
                    raise ValueError(f"the project {project!r} of {organisation!r} {seen[project]}")
                seen[project] = f"is one of {organisation!r} already"
        return found


FILTERS = ("available", "capacity", "gpu", "image", "selector", "affinity", "taints", "company")


class WaitingSection(Section):
    """Rules for jobs that wait for a dependency, data or a begin time."""

    hopeless: Literal["cancel", "hold"] = "cancel"
    data_roots: list[PlainPath] = []
    data_check_s: float = Field(10.0, ge=0.1, le=86_400)
    promote_after_s: float | None = Field(None, ge=60, le=31_536_000)
    promote_by: int = Field(10, ge=1, le=100)
    promote_most: int = Field(75, ge=0, le=100)


class SchedulerSection(Section):
    """The scheduling policy: order, backfill, filters, scorers, and what follows when a node is lost."""

    order: Plugin = Plugin(name="priority")
    then: Plugin | None = None
    backfill: str = "easy"
    backfill_delay_s: float = Field(600.0, ge=0, le=31_536_000)
    backfill_depth: int = Field(1_000, ge=1, le=1_000_000)
    on_node_lost: Literal["wait", "requeue-after-lease", "manual"] = "wait"
    lease_s: float = Field(300.0, ge=1, le=86_400)
    lease_margin_s: float = Field(30.0, ge=0, le=86_400)
    down_after_s: float = Field(60.0, ge=0, le=86_400)
    heartbeat_s: float = Field(5.0, ge=0.1, le=3_600)
    filters: list[Plugin] = [Plugin(name=name) for name in FILTERS]
    strategy: Strategy = "thrift"
    scorers: dict[str, WeightedPlugin] = {
        name: WeightedPlugin(weight=weight) for name, weight in STRATEGIES["thrift"][0].items()
    }
    picker: Plugin = Plugin(name="thrift")
    waiting: WaitingSection = WaitingSection()

    @property
    def beat_s(self) -> float:
        """Seconds between two pings to an agent: at least six in a lease."""
        return min(self.heartbeat_s, self.lease_s / 6)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, section: Any) -> Any:
        return with_strategy(section)


class BackfillSection(Section):
    """The run times that backfill and estimates assume, and the protection of deadlines."""

    estimate: Literal["limit", "predicted"] = "limit"
    quantile: float = Field(0.9, gt=0, le=1)
    least_runs: int = Field(5, ge=1, le=32)
    deadlines: Literal["none", "guard", "lift"] = "none"
    score_starts_s: float = Field(300.0, ge=0, le=86_400)


class OvercommitSection(Section):
    """The part of a node's CPUs and memory that jobs may get; above 1 it is more than the node has."""

    cpu: float = Field(1.0, ge=0.1, le=100)
    memory: float = Field(1.0, ge=0.1, le=100)


Cpus = Annotated[float, Field(gt=0, le=10_000)]
Memory = Annotated[str, AfterValidator(hosts.checked_memory)]


class SizesSection(Section):
    """CPU and memory of jobs that ask for none. Values that are left out are computed from the nodes."""

    cpus: Cpus | None = None
    memory: Memory | None = None
    cpus_per_gpu: Cpus | None = None
    memory_per_gpu: Memory | None = None

    @property
    def defaults(self) -> JobDefaults:
        """The same in the units of the engine."""
        return JobDefaults(
            _milli(self.cpus), _mib(self.memory), _milli(self.cpus_per_gpu), _mib(self.memory_per_gpu)
        )


def _milli(cpus: float | None) -> int | None:
    return None if cpus is None else max(1, round(cpus * 1_000))


def _mib(memory: str | None) -> int | None:
    return None if memory is None else hosts.memory_mib(memory)


class QueueSection(SizesSection):
    """One queue: its limits and the defaults of its jobs."""

    priority: int = Field(0, ge=-1_000, le=1_000)
    max_running: int | None = Field(None, ge=0, le=1_000_000)
    default_time_limit_s: float | None = Field(None, gt=0, le=315_360_000)
    max_time_limit_s: float | None = Field(None, gt=0, le=315_360_000)
    users: list[Name] = []
    projects: list[Name] = []
    select: dict[str, str] = {}

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        least, most = self.default_time_limit_s, self.max_time_limit_s
        if least is not None and most is not None and least > most:
            raise ValueError("default_time_limit_s is more than max_time_limit_s")
        return self


class QuotaSection(BaseModel):
    """The plugin that gives quotas, with its options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    provider: Name = "local"
    window_s: float = Field(604_800.0, ge=3_600, le=2_678_400)
    reclaim: Literal["wait", "preempt"] = "wait"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the plugin."""
        return self.model_extra or {}


class PreemptionSection(Section):
    """Which jobs may preempt others, and how running jobs are protected. Off by default."""

    strategies: list[Plugin] = []
    grace_s: float = Field(60.0, ge=0, le=86_400)
    min_runtime_s: float = Field(300.0, ge=0, le=31_536_000)
    max_per_job: int = Field(3, ge=1, le=1_000_000)
    cooldown_s: float = Field(900.0, ge=0, le=31_536_000)
    rate: int = Field(100, ge=1, le=100_000)
    window_s: float = Field(3_600.0, gt=0, le=31_536_000)


class RebalanceSection(Section):
    """Whether running jobs are moved to other nodes, and at what cost. Off by default."""

    mode: Literal["off", "propose", "auto"] = "off"
    interval_s: float = Field(300.0, ge=1, le=604_800)
    kinds: list[Literal["defragment", "drain", "load"]] = ["defragment", "drain"]
    max_moves: int = Field(4, ge=1, le=1_000)
    max_gpu_hours: float = Field(8.0, ge=0, le=1_000_000)
    min_ratio: float = Field(2.0, ge=0, le=1_000_000)
    restart_s: float = Field(60.0, ge=0, le=86_400)
    horizon_s: float = Field(86_400.0, ge=1, le=31_536_000)
    gathered_hours: float = Field(1.0, ge=0, le=1_000)
    load_gap: float = Field(0.5, gt=0, le=1)
    without_checkpoint: bool = False


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
    """How container images are run."""

    command: list[str] = []
    options: list[str] = []
    mounts: list[Annotated[str, AfterValidator(_mount)]] = []


class JobsSection(SizesSection):
    """How agents run jobs."""

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
        """The same in the form that agents get."""
        return decode(JobPolicy, self.model_dump(exclude=set(SizesSection.model_fields)))


def _xids(table: dict[str, str]) -> dict[str, str]:
    wrong = next((code for code in table if not (code.isascii() and code.isdigit() and len(code) < 6)), None)
    if wrong is not None:
        raise ValueError(f'{wrong!r} is no number of an Xid; write xid = {{ 13 = "ignore" }}')
    return table


Remedy = Literal["ignore", "suspect", "cordon", "reset", "reboot"]


class GpuRulesSection(Section):
    """The actions on GPU readings, and their thresholds."""

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
    """Checks and actions for GPUs in trouble, and for idle GPUs."""

    check_s: float = Field(30.0, gt=0, le=86_400)
    check_most_s: float = Field(3_600.0, gt=0, le=604_800)
    checks: int = Field(3, ge=1, le=100)
    reset: list[str] = ["nvidia-smi", "--gpu-reset", "-i"]
    idle_after_s: float = Field(1_800.0, ge=0, le=31_536_000)
    idle: Literal["flag", "requeue", "cancel"] = "flag"
    idle_grace_s: float = Field(600.0, ge=0, le=31_536_000)
    rules: GpuRulesSection = GpuRulesSection()
    xid: Annotated[
        dict[str, Literal["ignore", "blame", "suspect", "cordon", "reset", "reboot"]], AfterValidator(_xids)
    ] = {}


class NodeSection(Section):
    """One host. The host itself reports the values that are left out."""

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
        """The host of the agent; without an SSH address it is the controller's own machine."""
        return HostSpec(**self.model_dump(exclude={"link", "taints"}))

    @property
    def host(self) -> HostSpec | None:
        """The host behind an SSH address; None for an agent on this machine."""
        return self.agent if self.link == "ssh" else None

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, value: Any) -> Any:
        """An `ssh` address implies a link by SSH."""
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


class PluginsSection(Section):
    """Plugin files, hooks and metrics."""

    files: list[Name] = []
    hooks: list[Plugin] = []
    metrics: list[Plugin] = []


class _Environment(EnvSettingsSource):
    """Reads lists and tables as JSON. Other text stays text and is refused with the variable's name."""

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class Config(BaseSettings):
    """The whole file, overridden by environment variables `CORRAL_<TABLE>__<KEY>`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        allow_inf_nan=False,
    )

    cluster: ClusterSection = ClusterSection()
    controller: ControllerSection = ControllerSection()
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    api: ApiSection = ApiSection()
    access: AccessSection = AccessSection()
    questions: QuestionsSection = QuestionsSection()
    projects: dict[Name, ProjectSection] = {}
    plugins: PluginsSection = PluginsSection()
    scheduler: SchedulerSection = SchedulerSection()
    backfill: BackfillSection = BackfillSection()
    overcommit: OvercommitSection = OvercommitSection()
    queues: dict[Name, QueueSection] = {}
    quota: QuotaSection = QuotaSection()
    licences: dict[LicenceName, LicenceCount] = {}
    preemption: PreemptionSection = PreemptionSection()
    rebalance: RebalanceSection = RebalanceSection()
    fair_share: FairShareSection = FairShareSection()
    jobs: JobsSection = JobsSection()
    gpus: GpusSection = GpusSection()
    profiles: dict[Name, ProfileSection] = {}
    nodes: dict[NodeName, NodeSection] = {}

    _source: Source = PrivateAttr(default_factory=Source)

    @property
    def source(self) -> Source:
        """The lines of the keys, for messages about mistakes that are found later."""
        return self._source

    @property
    def state_dir(self) -> Path:
        """The directory of journal, token and local spools; its mode is 0700."""
        return _path(self.controller.state_dir) or addresses.state_dir()

    @property
    def socket(self) -> Path:
        """The path of the unix socket."""
        return _path(self.controller.socket) or addresses.socket_path()

    @property
    def store_url(self) -> str:
        """The URL of the database."""
        return self.store.url or f"sqlite:///{self.state_dir / 'corral.db'}"

    @property
    def plugin_files(self) -> tuple[Path, ...]:
        """The plugin files. A relative path begins at the directory of the configuration file."""
        beside = Path(self._source.name).parent if self._source.name else Path()
        return tuple((beside / Path(each).expanduser()).resolve() for each in self.plugins.files)

    @property
    def named_projects(self) -> set[str]:
        """The projects that the tables name, apart from weights and limits of shares."""
        return {
            *self.projects,
            *self.access.limits.projects,
            *(self.quota.options.get("projects") or {}),
            *(project for projects in self.fair_share.organisations.values() for project in projects),
            *(project for queue in self.queues.values() for project in queue.projects),
            *(project for profile in self.profiles.values() for project in profile.projects),
        }

    def of_profile(self, name: str) -> Config:
        """This configuration with the policy of one profile for all jobs."""
        if name not in self.profiles:
            return self.model_copy(update={"profiles": {}})
        said = self.profiles[name]
        scheduler = self.scheduler.model_copy(update=said.policy)
        preemption = self.preemption.model_copy(update=said.preemption.said)
        return self.model_copy(update={"scheduler": scheduler, "preemption": preemption, "profiles": {}})

    def spool(self, node: str) -> Path:
        """The directory in which the agent of a local node keeps attempts and logs."""
        return _path(self.nodes[node].spool) or self.state_dir / "nodes" / node

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment overrides the values that load() has read from the file."""
        return _Environment(settings_cls), init_settings


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
