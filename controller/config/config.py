"""The complete configuration: all tables of scheduler.toml, and the environment variables that override keys
of scheduler.toml.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from controller.config.key_positions import DELIMITER, PREFIX, Source
from controller.config.tables.access import AccessSection
from controller.config.tables.engines import EngineName, EngineSection
from controller.config.tables.failures import FailuresSection
from controller.config.tables.fields import Name, NodeName
from controller.config.tables.nodes import GpusSection, JobsSection, NodeSection
from controller.config.tables.notify import NotifySection
from controller.config.tables.policy.hours import HoursSection
from controller.config.tables.policy.profiles import ProfileSection
from controller.config.tables.policy.scheduler import (
    BackfillSection,
    FairShareSection,
    LicenceCount,
    LicenceName,
    OvercommitSection,
    PreemptionSection,
    QuotaSection,
    RebalanceSection,
    SchedulerSection,
)
from controller.config.tables.projects import BudgetsSection, ProjectSection
from controller.config.tables.queues import QueueSection
from controller.config.tables.service import (
    ApiSection,
    ClusterSection,
    ControllerSection,
    PluginsSection,
    QuestionsSection,
    RetentionSection,
    StoreSection,
)
from controller.config.tables.services import ServiceName, ServiceSection
from controller.config.tables.topology import DatasetsSection, TopologySection
from wire.agent.job_policy import JobPolicy
from wire.http import addresses


class _Environment(EnvSettingsSource):
    """Parses the values of environment variables as JSON if the key in scheduler.toml is a list or a table.

    A value that is not valid JSON is kept as a string. The later check of types refuses such a string, with a
    message that names the variable.
    """

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class Config(BaseSettings):
    """All tables of scheduler.toml. Environment variables `CORRAL_<TABLE>__<KEY>` override values of the
    file.
    """

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
    budgets: BudgetsSection = BudgetsSection()
    plugins: PluginsSection = PluginsSection()
    scheduler: SchedulerSection = SchedulerSection()
    backfill: BackfillSection = BackfillSection()
    topology: TopologySection = TopologySection()
    datasets: DatasetsSection = DatasetsSection()
    overcommit: OvercommitSection = OvercommitSection()
    queues: dict[Name, QueueSection] = {}
    quota: QuotaSection = QuotaSection()
    hours: dict[Name, HoursSection] = {}
    licences: dict[LicenceName, LicenceCount] = {}
    preemption: PreemptionSection = PreemptionSection()
    rebalance: RebalanceSection = RebalanceSection()
    fair_share: FairShareSection = FairShareSection()
    jobs: JobsSection = JobsSection()
    gpus: GpusSection = GpusSection()
    failures: FailuresSection = FailuresSection()
    profiles: dict[Name, ProfileSection] = {}
    services: dict[ServiceName, ServiceSection] = {}
    notify: NotifySection = NotifySection()
    nodes: dict[NodeName, NodeSection] = {}
    engines: dict[EngineName, EngineSection] = {}

    _source: Source = PrivateAttr(default_factory=Source)

    @property
    def source(self) -> Source:
        """Return the name and text of the file, and the line of each key, for messages about mistakes."""
        return self._source

    @property
    def state_dir(self) -> Path:
        """Return the directory with the database, the access token and the spools of local agents. Its mode
        is 0700.
        """
        return _path(self.controller.state_dir) or addresses.state_dir()

    @property
    def socket(self) -> Path:
        """Return the path of the unix socket on which the controller serves its API."""
        return _path(self.controller.socket) or addresses.socket_path()

    @property
    def job_policy(self) -> JobPolicy:
        """Return the settings for jobs in the form that agents receive."""
        return replace(self.jobs.policy, cluster_name=self.cluster.name)

    @property
    def store_url(self) -> str:
        return self.store.url or f"sqlite:///{self.state_dir / 'corral.db'}"

    @property
    def plugin_files(self) -> tuple[Path, ...]:
        """Return the absolute paths of the plugin files. A relative path in scheduler.toml is relative to the
        directory of scheduler.toml.
        """
        beside = Path(self._source.name).parent if self._source.name else Path()
        return tuple((beside / Path(each).expanduser()).resolve() for each in self.plugins.files)

    @property
    def named_projects(self) -> set[str]:
        """Return the names of all projects in the configuration. Names that occur only in the weights or
        limits of [fair_share] are left out, because they may also be names of organisations or users.
        """
        return {
            *self.projects,
            *self.access.limits.projects,
            *(self.quota.options.get("projects") or {}),
            *(project for each in self.hours.values() for project in each.quota.get("projects") or {}),
            *(project for projects in self.organisations.values() for project in projects),
            *(project for queue in self.queues.values() for project in queue.projects),
            *(service.project for service in self.services.values()),
            *(project for profile in self.profiles.values() for project in profile.projects),
        }

    @property
    def organisations(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the projects by organisation, from [fair_share] organisations and from the key
        `organisation` of projects.
        """
        found = {name: tuple(projects) for name, projects in self.fair_share.organisations.items()}
        for name, project in self.projects.items():
            if project.organisation is not None:
                found[project.organisation] = (*found.get(project.organisation, ()), name)
        return found

    @property
    def share_weights(self) -> dict[str, float]:
        """Return the weights of tenants, from [fair_share] weights and from the key `weight` of projects."""
        of_projects = {name: each.weight for name, each in self.projects.items() if each.weight is not None}
        return {**self.fair_share.weights, **of_projects}

    def of_profile(self, name: str) -> Config:
        """Return a copy of this configuration without scheduler profiles. The keys that the profile `name`
        sets replace those of [scheduler] and [preemption]. If there is no such profile, these tables stay the
        same.
        """
        if name not in self.profiles:
            return self.model_copy(update={"profiles": {}})
        section = self.profiles[name]
        scheduler = self.scheduler.model_copy(update=section.policy)
        preemption = self.preemption.model_copy(update=section.preemption.keys_set)
        return self.model_copy(update={"scheduler": scheduler, "preemption": preemption, "profiles": {}})

    def spool(self, node: str) -> Path:
        """Return the directory in which the agent of a local node keeps its attempts and logs."""
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
        """Return the sources of values in the order of precedence: the environment variables, and then the
        values that load() has read from the file.
        """
        return _Environment(settings_cls), init_settings


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
