"""From an order to a launch: as whom, with which environment, on which CPUs."""

from __future__ import annotations

import os
import pwd
import signal
import time
from dataclasses import dataclass, field
from typing import Optional

from agent import environment
from agent.cgroups import Cgroups
from agent.containers import CannotContain, Runtime
from agent.cores import Cores
from agent.launch import Launch
from agent.scratch import Area
from agent.spool import Key, name_of
from wire.frames import Start
from wire.policy import JobPolicy

_REMEMBER_S = 60.0


class CannotRun(Exception):
    """This order cannot run on this host; says in words why."""


@dataclass(frozen=True)
class Account:
    """Somebody as whom jobs run; `switch` is None when that is already who we are."""

    name: str
    home: str
    shell: str
    switch: tuple[int, int, list[int]] | None = None


@dataclass
class Accounts:
    """As whom a job runs: the submitting user where we may switch, else who we are."""

    run_as_self: bool
    _known: dict[str, tuple[float, Account]] = field(default_factory=dict)

    def of(self, user: str) -> Account:
        """The account for jobs of this user; looked up again every minute."""
        until, account = self._known.get(user, (0.0, None))
        if account is None or time.monotonic() > until:
            account = self._find(user)
            self._known[user] = (time.monotonic() + _REMEMBER_S, account)
        return account

    def describe(self) -> str:
        """As whom jobs run here, in words for people."""
        if os.geteuid() == 0 and not self.run_as_self:
            return "whoever submitted the job"
        return f"{_own_account(os.geteuid()).name}, whoever submitted the job"

    def _find(self, user: str) -> Account:
        own = os.geteuid()
        if self.run_as_self or own != 0:
            return _own_account(own)
        try:
            entry = pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise CannotRun(f"there is no user {user!r} on this host") from None
        if entry.pw_uid == own:
            return _own_account(own)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        switch = (entry.pw_uid, entry.pw_gid, groups)
        return Account(entry.pw_name, entry.pw_dir, entry.pw_shell, switch)


def _own_account(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a container often has no name for its user
        return Account(str(uid), "/", "/bin/sh")
    return Account(entry.pw_name, entry.pw_dir, entry.pw_shell)


@dataclass
class Preparation:
    """All that turns orders into launches on this host."""

    accounts: Accounts
    cores: Cores
    cgroups: Cgroups
    policy: JobPolicy
    runtime: Optional[Runtime] = None
    area: Area = field(default_factory=lambda: Area("", "none"))

    def launch(self, key: Key, place: str, order: Start | None) -> Launch:
        """Make ready for the nursery; without an order there is only something to end."""
        name = name_of(key)
        groups = self.cgroups.parts(name, order, self.policy.max_processes)
        if order is None:
            return Launch(name, place, groups=groups)
        account = self.accounts.of(order.user)
        cpus, numa = self.cores.choose(key, order)
        launch = launch_of(name, place, order, account, max(1, order.cpu_milli // 1_000))
        launch.cpus, launch.numa, launch.groups = cpus, numa, groups
        policy = self.policy
        launch.prolog, launch.epilog, launch.hook_s = list(policy.prolog), list(policy.epilog), policy.hook_s
        launch.hook_env = environment.of_hooks(order, account, place)
        launch.scratch_end = policy.scratch_overuse == "end"
        self._give_scratch(launch, order)
        launch.barrier = order.barrier
        launch.log_bytes = policy.log_mib << 20
        self._contain(launch, order)
        return launch

    def _give_scratch(self, launch: Launch, order: Start) -> None:
        if order.scratch_mib:
            launch.scratch, launch.scratch_mib = self.area.place(launch.key), order.scratch_mib
            launch.env["CORRAL_SCRATCH"] = launch.hook_env["CORRAL_SCRATCH"] = launch.scratch

    def _contain(self, launch: Launch, order: Start) -> None:
        if not order.image:
            return
        if self.runtime is None:
            raise CannotRun(
                "no container runtime on this host: neither podman, docker nor apptainer works here"
            )
        try:
            self.runtime.contain(launch, order)
        except CannotContain as error:
            raise CannotRun(str(error)) from None

    def saving(self, order: Start, place: str) -> Launch:
        """Only where an attempt saves, and as whom."""
        account = self.accounts.of(order.user)
        return launch_of("", place, order, account, 1)

    def shell(self, key: Key, place: str, order: Start, command: tuple[str, ...], term: str) -> Launch:
        """A command beside the job: all that the job has, and nothing of what happens around it."""
        account = self.accounts.of(order.user)
        launch = launch_of(name_of(key), place, order, account, max(1, order.cpu_milli // 1_000))
        launch.argv = list(command) or [account.shell or "/bin/sh", "-l"]
        if term:
            launch.env["TERM"] = term
        self._give_scratch(launch, order)
        self._contain(launch, order)
        if self.runtime is not None and order.image:
            launch.argv = self.runtime.shell(launch, command, bool(term))
        launch.groups = self.cgroups.parts(name_of(key), None, 0)
        return launch


def launch_of(key: str, place: str, order: Start, account: Account, cpus: int) -> Launch:
    """What the order says, looked up."""
    cwd = order.workdir or environment.home(account)
    saved = environment.of_checkpoints(order, cwd)
    return Launch(
        key,
        place,
        argv=list(order.command),
        env={**environment.shared(order, account, place, cpus), **saved},
        tasks=environment.of_tasks(order),
        cwd=cwd,
        user=account.switch,
        memory_mib=order.most_memory_mib or 0,
        oom_score=_oom_score(order),
        limit_s=order.time_limit_s,
        grace_s=order.grace_s,
        warn=(_number(order.warn_signal), order.warn_s) if order.warn_signal else None,
        checkpoint_command=list(order.checkpoint_command),
        checkpoint_signal=_number(order.checkpoint_signal),
        checkpoint_dir=saved.get("CORRAL_CHECKPOINT_DIR", ""),
        checkpoint_keep=order.checkpoint_keep,
        lease_s=order.lease_s,
    )


def _oom_score(order: Start) -> int:
    """Who is ended first when the host runs out of memory: who was promised least of what it may use."""
    if order.best_effort:
        return 1_000
    most = order.most_memory_mib or order.memory_mib
    return 500 if most > order.memory_mib else 0


def _number(name: str) -> int:
    return signal.Signals[f"SIG{name}"].value if name else 0
