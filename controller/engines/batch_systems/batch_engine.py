"""Runs Corral's jobs as jobs of a batch system, and reads their states from the batch system."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from controller.engines.batch_systems.batch_job import (
    BatchJob,
    BatchNode,
    BatchStatus,
    Phase,
    Unreadable,
)
from controller.engines.batch_systems.command_runner import (
    CommandRunner,
    Completed,
    outputs_of,
    with_sections,
)
from controller.engines.batch_systems.dialect import Dialect, Refusal
from controller.engines.batch_systems.proof_of_end import outcome_of, without_late
from controller.engines.batch_systems.wrapper import (
    NO_RECORDS,
    ids_command,
    job_directory,
    late_command,
    parse_records,
    read_command,
    shell_path,
)
from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineKind,
    EngineUnavailable,
    ExecutionEngine,
    ForeignJob,
    ForeignNode,
    ForeignQuota,
    ForeignState,
    Outcome,
    Ref,
    Seen,
    Task,
)
from wire.agent.orders import Start
from wire.agent.reports import GpuFacts, NodeFacts
from wire.text import printable

_T = TypeVar("_T")
_Output = TypeVar("_Output", str, Sequence[str])
_SUBMIT_FAILED, _NO_DIRECTORY = 90, 91
_DEFAULT_QUEUE = "default"
"""If the nodes of a PBS belong to no queue, they are together one node of Corral with this name."""
_STATES = {
    Phase.WAITING: ForeignState.WAITING,
    Phase.HELD: ForeignState.WAITING,
    Phase.RUNNING: ForeignState.RUNNING,
    Phase.ENDING: ForeignState.RUNNING,
    Phase.UNKNOWN: ForeignState.RUNNING,
    Phase.ENDED: ForeignState.ENDED,
}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The options of `[engines.NAME]` for the jobs and nodes of a batch system.

    With `place` = "partition" each partition is one node of Corral, and the batch system chooses one of its
    own nodes. With "node" each node of the batch system is a node of Corral, and Corral chooses the node.
    `records` is the directory of scripts, outputs and exit records on the login node and the compute nodes.
    """

    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = "gpu"
    place: str = "partition"
    records: str = "~/.corral/batch"
    shared_account: bool = False
    gpu_memory_mib: int = 0
    extra: tuple[str, ...] = ()


class BatchEngine(ExecutionEngine):
    """The engine of a batch system (Slurm or PBS). A `Dialect` makes its commands, a `CommandRunner` runs
    them.

    1. look() lists all jobs of the account and all nodes in one call, whatever the number of jobs.
    2. ask() writes the script into the directory of the job's records and submits it, in one call. The name
       of the job is the tag (the name of one attempt on one node). The id of the job is kept in the same
       directory, so that a later ask() with the same tag finds it. With `again`, ask() first looks for the
       tag in the list of jobs.
    3. proof() reads the exit record of the wrapper, the list of jobs and the accounting, in one call. The
       exit code comes from the exit record, the cause (time limit, preemption, lost node) from the list or
       the accounting.
    4. end() cancels a job only if its name begins with the tag prefix of this cluster, because a batch
       system can give the id of an earlier job to another job.

    5. A job whose exit record is older than LATE_S seconds has ended, although the batch system or its
       accounting lists it as running. When its record is removed, the driver ends it there as an orphan.

    Invariant: the command of a tag runs at most once, even if the batch system accepts the job twice or runs
    it again, because the wrapper claims the tag (`wrapper.script_body`). Cost: at most four shell commands
    per method, whatever the number of jobs.
    """

    caps = EngineCaps(
        kinds=(EngineKind.DELEGATE,),
        supports=frozenset({"output", "error"}),
        logs=True,
        walltime=True,
    )

    def __init__(
        self, dialect: Dialect, runner: CommandRunner, settings: BatchSettings, tag_prefix: str
    ) -> None:
        self._dialect = dialect
        self._runner = runner
        self._settings = settings
        self._prefix = tag_prefix
        self._account = ""

    # --- methods of ExecutionEngine ---

    async def look(self) -> Seen:
        command = with_sections(
            self._dialect.jobs_command(),
            self._dialect.nodes_command(),
            "id -un",
            ids_command(self._settings.records),
            late_command(self._settings.records),
        )
        jobs_out, nodes_out, account, records_out, late_out = await self._outputs(command, 5)
        self._account = account.out.strip()
        older = self._dialect.fallback(jobs_out.err) if jobs_out.code else None
        if older is not None:
            self._dialect = older
            return await self.look()
        jobs = self._own_jobs(jobs_out)
        nodes = self._read(self._dialect.nodes, self._checked(nodes_out))
        # Leave out ended jobs whose records forget() has removed. The batch system still lists them for some
        # minutes.
        kept = set(self._checked(records_out).split())
        ours = tuple(
            self._foreign_job(each)
            for each in without_late(jobs, late_out.out)
            if each.tag.startswith(self._prefix) and (each.phase.alive or each.id in kept)
        )
        return Seen(True, ours, self._foreign_nodes(nodes))

    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        await self._check_user(task.order)
        job = self._batch_job(task, tag)
        try:
            script = self._dialect.script(job)
        except ValueError as error:
            raise AskRefused(str(error), lasting=True) from None
        if again and (known := await self._find(job)):
            return known
        directory = job_directory(job)
        submit = self._dialect.submit_command('"$directory/script"')
        command = (
            f"umask 077; directory={directory}\n"
            f'mkdir -p "$directory" || exit {_NO_DIRECTORY}\n'
            'if [ -s "$directory/id" ]; then cat "$directory/id"; exit 0; fi\n'
            f'cat > "$directory/script.new" && mv -f "$directory/script.new" "$directory/script" '
            f"|| exit {_NO_DIRECTORY}\n"
            # Submit in the directory /, because some batch systems write files into the directory in which
            # the submit command runs.
            f"cd / && answer=$({submit}) || exit {_SUBMIT_FAILED}\n"
            'printf \'%s\\n\' "$answer" > "$directory/id.new" && mv -f "$directory/id.new" "$directory/id"\n'
            "printf '%s\\n' \"$answer\""
        )
        done = await self._runner.run(command, script.encode("utf-8", "surrogateescape"))
        if done.code == _NO_DIRECTORY:
            raise AskRefused(f"the directory {self._settings.records} cannot be written: {done.last_words}")
        if done.code:
            self._refuse(done)
        return self._read(self._dialect.submitted_id, done.out)

    async def end(self, ref: Ref, grace_s: float) -> None:
        found = await self._status(ref)
        if found is None or not found.phase.alive:
            return
        if not found.tag.startswith(self._prefix):
            return
        self._checked(await self._runner.run(self._dialect.cancel_command(ref)))

    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        command = with_sections(
            read_command(self._settings.records, tag),
            self._dialect.jobs_command(),
            self._dialect.history_command(ref),
            late_command(self._settings.records),
        )
        records_out, jobs_out, history_out, late_out = await self._outputs(command, 4)
        if records_out.code == NO_RECORDS:
            return None
        records = parse_records(self._checked(records_out), tag)
        listed = without_late(self._own_jobs(jobs_out), late_out.out)
        # Ignore a failed accounting command, because a site may have no accounting. The exit record or the
        # list can still prove the end of the job.
        past = self._read(self._dialect.history, history_out.out) if history_out.code == 0 else []
        past = without_late(past, late_out.out)
        return outcome_of(
            records,
            [each for each in listed if each.tag == tag],
            [each for each in self._own(past) if each.tag == tag or each.phase is Phase.UNKNOWN],
        )

    def script(self, task: Task, tag: str) -> str:
        return self._dialect.script(self._batch_job(task, tag))

    async def forget(self, ref: Ref, tag: str) -> None:
        directory = job_directory(BatchJob(tag, (), directory=self._settings.records))
        # Remove the directory again if that failed, because a job that is just ending may write a record
        # meanwhile.
        self._checked(await self._runner.run(f"rm -rf {directory} || rm -rf {directory}"))

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        file = "stderr" if stream == "stderr" else "stdout"
        # With `follow`, end tail when the exit record (`ended`) appears.
        show = (
            f'tail -c +1 -f "$d/{file}" & t=$!; while [ ! -e "$d/ended" ]; do sleep 1; done; sleep 1; kill $t'
            if follow
            else f'cat "$d/{file}"'
        )
        command = (
            f"cd {shell_path(self._settings.records)} 2> /dev/null || exit 0\n"
            f"i=$(grep -lx -- {shlex.quote(ref)} */id 2> /dev/null | head -n 1); d=${{i%/id}}\n"
            f'[ -n "$d" ] || exit 0\n'
            + (f'while [ ! -e "$d/{file}" ] && [ ! -e "$d/ended" ]; do sleep 1; done\n' if follow else "")
            + f'[ -e "$d/{file}" ] || exit 0\n{show}'
        )
        async for piece in self._runner.stream(command):
            yield piece

    async def quota(self, name: str) -> ForeignQuota:
        commands = self._dialect.quota_commands()
        outs = [self._checked(each) for each in await self._outputs(with_sections(*commands), len(commands))]
        return self._read(partial(self._dialect.quota, name), outs)

    async def close(self) -> None:
        await self._runner.close()

    # --- jobs of the batch system ---

    async def _check_user(self, order: Start) -> None:
        """Raise AskRefused if the job must not run under the account with which the engine runs commands."""
        if not self._account:
            # Ask for the account, because no look() has succeeded since the start of the controller.
            self._account = self._checked(await self._runner.run("id -un")).strip()
        if order.user == self._account:
            return
        if self._account == "root":
            # Refuse the job, because it would have all rights on the nodes of the batch system.
            raise AskRefused(
                f"the engine submits jobs as root, but this job belongs to {order.user}. Connect the engine "
                "with another account: run the controller as a user of its own, or set login in the table",
                lasting=True,
            )
        if not self._settings.shared_account:
            raise AskRefused(
                f"the engine submits jobs as {self._account}, but this job belongs to {order.user}. Set "
                "shared_account = true in the engine's table to run the jobs of all users as that account",
                lasting=True,
            )

    def _batch_job(self, task: Task, tag: str) -> BatchJob:
        """Return the attempt as a job of the batch system with the name `tag`. Raise AskRefused for a job
        that requests a part of a GPU.
        """
        order, settings = task.order, self._settings
        if any(hold.milli < 1_000 for hold in order.gpus):
            raise AskRefused("a batch system gives only whole GPUs", lasting=True)
        whole = settings.place == "node"
        partition = ",".join(settings.partitions) if whole else task.node
        if partition == _DEFAULT_QUEUE and not settings.partitions:
            partition = ""
        return BatchJob(
            tag,
            order.command,
            title=order.name,
            cpus=max(1, math.ceil(order.cpu_milli / 1_000)),
            memory_mib=order.memory_mib,
            gpus=len(order.gpus),
            gres=settings.gres,
            node=task.node if whole else "",
            time_limit_s=order.time_limit_s,
            grace_s=order.grace_s,
            partition=partition,
            account=settings.account,
            qos=settings.qos,
            constraint=settings.constraint,
            env={**order.env, "CORRAL_JOB_ID": str(order.job), "CORRAL_ATTEMPT": str(order.attempt)},
            workdir=order.workdir or "~",
            output=order.output,
            error=order.output if order.merge_output else order.error,
            append=order.append,
            umask=order.umask,
            directory=settings.records,
            extra=settings.extra,
        )

    async def _find(self, job: BatchJob) -> Ref | None:
        """Return the id of the job with the tag of `job`, from its records or from the list of jobs. Return
        None if the batch system has no such job.
        """
        directory = job_directory(job)
        command = with_sections(
            f"[ ! -e {directory}/id ] || cat {directory}/id", self._dialect.jobs_command()
        )
        id_out, jobs_out = await self._outputs(command, 2)
        if known := self._checked(id_out).strip():
            return self._read(self._dialect.submitted_id, known)
        listed = self._own_jobs(jobs_out)
        found = sorted(
            (each for each in listed if each.tag == job.tag), key=lambda each: not each.phase.alive
        )
        if not found:
            return None
        keep = f"umask 077; echo {shlex.quote(found[0].id)} > {directory}/id"
        self._checked(await self._runner.run(keep))
        return found[0].id

    async def _status(self, ref: Ref) -> BatchStatus | None:
        done = await self._runner.run(self._dialect.jobs_command())
        return next((each for each in self._own_jobs(done) if each.id == ref), None)

    def _own_jobs(self, done: Completed) -> list[BatchStatus]:
        """Return the jobs of the account in the output of `jobs_command`."""
        return self._own(self._read(self._dialect.jobs, self._checked(done)))

    def _own(self, jobs: Sequence[BatchStatus]) -> list[BatchStatus]:
        # Leave out jobs of other users, because some commands list the jobs of all users, and any user can
        # give a job a tag as its name.
        return [each for each in jobs if each.user in ("", self._account) or not self._account]

    def _refuse(self, done: Completed) -> None:
        words = printable(" ".join(line.strip() for line in done.err.splitlines())[-400:], 400)
        refusal = self._dialect.refusal(done.err)
        if refusal is Refusal.UNKNOWN or done.code != _SUBMIT_FAILED:
            raise EngineUnavailable(f"{self._dialect.name} gave no answer to a submit: {words}")
        raise AskRefused(f"{self._dialect.name}: {words}", lasting=refusal is Refusal.LASTING)

    @staticmethod
    def _foreign_job(status: BatchStatus) -> ForeignJob:
        waits = status.phase in (Phase.WAITING, Phase.HELD)
        return ForeignJob(
            status.tag,
            status.id,
            _STATES[status.phase],
            status.partition if waits else status.node,
            status.reason if waits else "",
        )

    # --- nodes of the batch system ---

    def _foreign_nodes(self, nodes: Sequence[BatchNode]) -> tuple[ForeignNode, ...]:
        chosen = [each for each in nodes if self._chosen_partitions(each)]
        if self._settings.place == "node":
            return tuple(
                ForeignNode(each.name, self._facts(each.name, [each]), not each.why, each.why)
                for each in chosen
            )
        partitions = dict.fromkeys(name for each in chosen for name in self._chosen_partitions(each))
        return tuple(self._partition(name, chosen) for name in partitions)

    def _chosen_partitions(self, node: BatchNode) -> tuple[str, ...]:
        wanted = self._settings.partitions
        if not node.partitions:
            return wanted or (_DEFAULT_QUEUE,)
        return tuple(name for name in node.partitions if not wanted or name in wanted)

    def _partition(self, name: str, nodes: Sequence[BatchNode]) -> ForeignNode:
        inside = [each for each in nodes if name in self._chosen_partitions(each)]
        usable = [each for each in inside if not each.why]
        why = "" if usable else "; ".join(f"{each.name} {each.why}" for each in inside)
        return ForeignNode(name, self._facts(name, usable or inside), bool(usable), printable(why, 300))

    def _facts(self, name: str, nodes: Sequence[BatchNode]) -> NodeFacts:
        """Return the resources of one node, or of all nodes of a partition together."""
        gpus = [each.gpu_model or "GPU" for each in nodes for _ in range(each.gpus)]
        memory = self._settings.gpu_memory_mib
        features = {f"feature-{each}": "true" for node in nodes for each in node.features}
        return NodeFacts(
            cpu_milli=1_000 * sum(each.cpus for each in nodes),
            memory_mib=sum(each.memory_mib for each in nodes),
            gpus=tuple(
                GpuFacts(index, f"{self._prefix}{name}-{index}", model, memory)
                for index, model in enumerate(gpus)
            ),
            labels=features,
            handling={"jobs": f"run as jobs of {self._dialect.name}"},
        )

    # --- shell commands and their output ---

    async def _outputs(self, command: str, count: int) -> list[Completed]:
        return outputs_of(await self._runner.run(command), count, self._dialect.name)

    def _checked(self, done: Completed) -> str:
        if done.code:
            raise EngineUnavailable(f"{self._dialect.name}: {done.last_words}")
        return done.out

    def _read(self, reader: Callable[[_Output], _T], output: _Output) -> _T:
        try:
            return reader(output)
        except (Unreadable, ValueError, KeyError, IndexError) as error:
            raise EngineUnavailable(
                f"{self._dialect.name} gave an answer that Corral cannot read: {error}"
            ) from None
