"""Turns a start order into a launch spec (the settings for a supervisor): chooses user, environment, CPUs,
cgroups, scratch and container.
"""

from __future__ import annotations

import os
import pwd
import signal
from dataclasses import field
from typing import Callable, Mapping, Optional, Sequence

from agent.attempts.launch import environment
from agent.attempts.launch.cpu_allocation import CpuAllocator
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey, format_key
from agent.isolation.cgroup_limits import HostCgroups
from agent.isolation.container_runtimes import CannotUseContainer, ContainerRuntime
from agent.isolation.scratch import ScratchArea
from agent.processes.process_marks import MARK_VARIABLE, mark_code
from wire.agent.job_policy import JobPolicy
from wire.agent.orders import Start
from wire.agent.reports import GpuFacts
from wire.dataclass import dataclass


class CannotLaunch(Exception):
    """Raised if an attempt cannot run on this host. The message is the reason."""


class HostUnfit(CannotLaunch):
    """Raised if the attempt cannot run on this host but may run on other nodes. The controller then tries
    another node.
    """


@dataclass(frozen=True)
class UnixAccount:
    """The Unix user of a job. `switch` is (uid, gid, groups), or None if the agent already runs as this
    user.
    """

    name: str
    home: str
    shell: str
    switch: tuple[int, int, list[int]] | None = None


@dataclass
class UnixAccounts:
    """Maps the user of a job to a Unix account. An agent that runs as root uses the account of the submitting
    user. Any other agent uses its own account.
    """

    run_as_self: bool

    def describe(self) -> str:
        """Return a text for `corral nodes show` that names the Unix account with which jobs run."""
        if os.geteuid() == 0 and not self.run_as_self:
            return "the user that submitted the job"
        return f"{_own_account(os.geteuid()).name}, for the jobs of all users"

    def account_of(self, user: str) -> UnixAccount:
        """Return the account for jobs of this user. Raise CannotLaunch if this host has no such account.

        The account is looked up for each launch, so that added and removed groups take effect at once.
        """
        own = os.geteuid()
        if self.run_as_self or own != 0:
            return _own_account(own)
        try:
            entry = pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise CannotLaunch(f"there is no user {user!r} on this host") from None
        if entry.pw_uid == own:
            return _own_account(own)
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return UnixAccount(entry.pw_name, entry.pw_dir, entry.pw_shell, (entry.pw_uid, entry.pw_gid, groups))


def _own_account(uid: int) -> UnixAccount:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        # If the agent itself runs in a container, its uid often has no account. Use the uid as account name.
        return UnixAccount(str(uid), "/", "/bin/sh")
    return UnixAccount(entry.pw_name, entry.pw_dir, entry.pw_shell)


@dataclass
class LaunchBuilder:
    """Builds launch specs: the settings with which supervisors run attempts.

    Algorithm of `build`
    1. Look up the Unix account of the job's user.
    2. Choose CPUs and NUMA nodes.
    3. Copy the order into a launch spec: command, environment, limits, checkpoints.
    4. Add the settings of the site: cgroups, prolog, epilog, log limit, and the signed variables that mark
       the job's processes.
    5. Add the scratch directory, if the job requests scratch.
    6. If the job has an image, put the command that runs a container before the job's command.

    Step 6 is the last step, because it needs the scratch directory and the complete environment.
    """

    accounts: UnixAccounts
    cpus: CpuAllocator
    cgroups: HostCgroups
    policy: JobPolicy
    runtime: Optional[ContainerRuntime] = None
    scratch: ScratchArea = field(default_factory=lambda: ScratchArea("", "none"))
    mark_key: str = ""
    gpus: Callable[[], Sequence[GpuFacts]] = tuple
    """Returns the GPUs of this host."""

    def build(self, key: AttemptKey, directory: str, order: Start | None) -> LaunchSpec:
        """Return the launch spec of an attempt. If `order` is None, the supervisor starts nothing. It only
        kills the processes that an earlier supervisor of the attempt has left, and records the end.

        Raise CannotLaunch if the attempt cannot run at all, or HostUnfit if the attempt may run on another
        node.
        """
        name = format_key(key)
        cgroups = self.cgroups.parts(name, order, self.policy.max_processes)
        if order is None:
            spec = LaunchSpec(name, directory)
            spec.cgroups, spec.mark_key = cgroups, self.mark_key
            return spec
        account = self.accounts.account_of(order.user)
        spec = spec_from_order(name, directory, order, account)
        spec.cpus, spec.numa = self.cpus.choose(key, order)
        spec.cgroups = cgroups
        policy = self.policy
        spec.prolog, spec.epilog = list(policy.prolog), list(policy.epilog)
        spec.hook_timeout_s = policy.hook_s
        spec.hook_env = environment.hook_variables(order, account, directory)
        spec.log_bytes = policy.log_mib << 20
        spec.barrier = order.barrier
        spec.is_first_rank = order.rank == 0 and "MASTER_PORT" in spec.env
        if spec.checkpoint_dir and order.attempt > 1:
            # Set CORRAL_CHECKPOINT to an empty value if the start order does not set it. The supervisor then
            # looks for a checkpoint that an earlier attempt wrote but could not report to the controller.
            spec.env.setdefault("CORRAL_CHECKPOINT", "")
        self._add_mark(spec)
        self._add_host_variables(spec, order)
        spec.end_if_scratch_full = policy.scratch_overuse == "end"
        self._add_scratch(spec, order)
        self._add_container(spec, order)
        return spec

    def build_user_spec(self, directory: str, order: Start) -> LaunchSpec:
        """Return a launch spec for a child process of the agent that runs as the job's user. The child scans
        for checkpoints, or carries out a health check of a URL or a file. The launch spec does not start a
        job.
        """
        return spec_from_order("", directory, order, self.accounts.account_of(order.user))

    def build_exec(
        self,
        key: AttemptKey,
        directory: str,
        order: Start,
        command: tuple[str, ...],
        term: str,
        variables: Mapping[str, str],
    ) -> LaunchSpec:
        """Return the launch spec of a `corral exec` command, which runs in the allocation of a running job.
        If `command` is empty, a login shell runs instead.

        The command has the user, environment, cgroups, scratch and container of the job. The prolog, the time
        limit and the logs of the job do not apply to the command. `variables` are added to the environment of
        the command, but do not replace CORRAL_MARK, CORRAL_SCRATCH and the variables of `host_variables`.
        """
        account = self.accounts.account_of(order.user)
        spec = spec_from_order(format_key(key), directory, order, account)
        spec.argv = list(command) or [account.shell or "/bin/sh", "-l"]
        spec.env.update(variables)
        if term:
            spec.env["TERM"] = term
        self._add_mark(spec)
        self._add_host_variables(spec, order)
        self._add_scratch(spec, order)
        self._add_container(spec, order)
        if self.runtime is not None and order.image:
            spec.argv = self.runtime.exec_command(spec, command, bool(term), variables)
        spec.cgroups = self.cgroups.parts(format_key(key), None, 0)
        return spec

    def _add_mark(self, spec: LaunchSpec) -> None:
        uid = os.geteuid() if spec.user is None else spec.user[0]
        spec.mark_key = self.mark_key
        spec.env[MARK_VARIABLE] = mark_code(self.mark_key, spec.key, uid)

    def _add_host_variables(self, spec: LaunchSpec, order: Start) -> None:
        indices = {gpu.uuid: gpu.index for gpu in self.gpus()}
        held = [indices[hold.uuid] for hold in order.gpus if hold.uuid in indices]
        spec.env.update(environment.host_variables(self.policy.cluster_name, held))

    def _add_scratch(self, spec: LaunchSpec, order: Start) -> None:
        if order.scratch_mib:
            problem = self.scratch.prepare()
            if problem:
                raise HostUnfit(f"no scratch: {problem}")
            spec.scratch_dir, spec.scratch_mib = self.scratch.directory(spec.key), order.scratch_mib
            spec.env["CORRAL_SCRATCH"] = spec.hook_env["CORRAL_SCRATCH"] = spec.scratch_dir

    def _add_container(self, spec: LaunchSpec, order: Start) -> None:
        if not order.image:
            return
        if self.runtime is None:
            raise CannotLaunch(
                "no container runtime on this host: neither podman, docker nor apptainer works here"
            )
        try:
            self.runtime.add_container(spec, order)
        except CannotUseContainer as error:
            raise CannotLaunch(str(error)) from None


def spec_from_order(key: str, directory: str, order: Start, account: UnixAccount) -> LaunchSpec:
    """Return a launch spec with the values that come from the start order and the account. The other fields
    have their defaults.
    """
    spec = LaunchSpec(key, directory)
    spec.argv = list(order.command)
    spec.cwd = order.workdir or environment.home_directory(account)
    checkpoints = environment.checkpoint_variables(order, spec.cwd)
    cpus = max(1, order.cpu_milli // 1_000)
    spec.env = {**environment.job_variables(order, account, directory, cpus), **checkpoints}
    spec.tasks = environment.task_variables(order)
    spec.user = account.switch
    spec.umask = order.umask
    spec.output, spec.error = order.output, order.error
    spec.append, spec.merge_output = order.append, order.merge_output
    if order.output and "SLURM_SUBMIT_HOST" in order.env:
        # Only jobs of sbatch have the variable SLURM_SUBMIT_HOST.
        spec.slurm_job = f"JOB {order.job} ON {order.env.get('SLURMD_NODENAME', '')}"
    spec.memory_mib = order.most_memory_mib or 0
    spec.oom_score = _oom_score(order)
    spec.time_limit_s, spec.grace_s, spec.lease_s = order.time_limit_s, order.grace_s, order.lease_s
    spec.warn = (_signal_number(order.warn_signal), order.warn_s) if order.warn_signal else None
    spec.checkpoint_command = list(order.checkpoint_command)
    spec.checkpoint_signal = _signal_number(order.checkpoint_signal)
    spec.checkpoint_dir = checkpoints.get("CORRAL_CHECKPOINT_DIR", "")
    spec.checkpoint_keep, spec.checkpoint_mib = order.checkpoint_keep, order.checkpoint_mib
    return spec


def _oom_score(order: Start) -> int:
    """Return the value of oom_score_adj for the processes of a job, 0 to 1000. If the host runs out of
    memory, the kernel first kills best-effort jobs, and then jobs with memory limits above their requests.
    """
    if order.best_effort:
        return 1_000
    most = order.most_memory_mib or order.memory_mib
    return 500 if most > order.memory_mib else 0


def _signal_number(name: str) -> int:
    return signal.Signals[f"SIG{name}"].value if name else 0
