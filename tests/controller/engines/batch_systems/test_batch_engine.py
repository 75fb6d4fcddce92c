"""The engines of batch systems against a real Slurm: by its own commands, as JSON, by SSH, and by qsub."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from controller.engines.batch_systems.batch_engine import BatchEngine
from controller.engines.batch_systems.engine_types import PbsEngineType, SlurmEngineType
from controller.engines.contract import (
    PREEMPTED_THERE,
    AskRefused,
    EngineScope,
    EngineUnavailable,
    ForeignJob,
    ForeignState,
    Outcome,
    Task,
)
from controller.nodes.ssh.known_hosts import key_line
from tests.clients.real_slurm import RealSlurm, missing
from tests.controller.nodes.openssh_server import lacking, running_openssh_server
from tests.limits import PATIENCE_S
from wire.agent.orders import GpuHold, Start

NOT_HERE = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there"),
]
PREFIX = "corral-0f3a9c112233-"
NO_QSUB = "" if shutil.which("qsub", path="/usr/bin") else "needs the package slurm-wlm-torque"


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    # Not in $TMPDIR, because jobs of other users read files there.
    place = Path(tempfile.mkdtemp(prefix="corral-slurm-", dir="/tmp"))
    real = RealSlurm(place, enforced="associations,limits,qos")
    try:
        real.start()
        for words in (
            ("add", "qos", "tight", "set", "GrpTRES=gres/gpu=1"),
            ("add", "qos", "few", "set", "MaxSubmitJobsPU=1"),
            ("modify", "user", "root", "set", "qos+=tight,few"),
        ):
            real.run("sacctmgr", "-i", *words).check_returncode()
        yield real
    finally:
        real.end()
        shutil.rmtree(place, ignore_errors=True)


_T = TypeVar("_T")
numbers = iter(range(1, 1_000_000))


class Bench:
    """An engine with a directory of records, and short ways to ask it."""

    def __init__(self, engine: BatchEngine, user: str, place: Path) -> None:
        self.engine = engine
        self.user = user
        self.place = place

    def task(self, *command: str, node: str = "gpu", **order: object) -> tuple[Task, str]:
        number = next(numbers)
        values = {"time_limit_s": 300.0, **order}
        start = Start(number, 1, command, self.user, 1_000, 100, **values)  # type: ignore[arg-type]
        return Task(node, start), f"{PREFIX}{number}-1-0"

    async def ask(self, *command: str, **order: object) -> tuple[str, str]:
        task, tag = self.task(*command, **order)
        return await self.engine.ask(task, tag, again=False), tag

    async def seen(self, tag: str) -> ForeignJob | None:
        found = [each for each in (await self.engine.look()).jobs if each.tag == tag]
        return found[0] if found else None

    async def until(self, tag: str, true: Callable[[ForeignJob | None], bool]) -> ForeignJob | None:
        async def look() -> tuple[bool, ForeignJob | None]:
            found = await self.seen(tag)
            return true(found), found

        return (await eventually(look))[1]

    async def running(self, tag: str) -> None:
        await self.until(tag, lambda found: found is not None and found.state is ForeignState.RUNNING)

    async def outcome(self, ref: str, tag: str) -> Outcome:
        async def prove() -> tuple[bool, Outcome | None]:
            found = await self.engine.proof(ref, tag)
            return found is not None, found

        found = (await eventually(prove))[1]
        assert found is not None
        return found


async def eventually(ask: Callable[[], Awaitable[tuple[bool, _T]]]) -> tuple[bool, _T]:
    async with asyncio.timeout(PATIENCE_S):
        while not (answer := await ask())[0]:
            await asyncio.sleep(0.1)
        return answer


def scope(timeout_s: float = PATIENCE_S) -> EngineScope:
    return EngineScope("slurm", PREFIX, "", timeout_s)


@pytest.fixture
def bench(slurm: RealSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The commands of Slurm on this machine."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    kind = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",))
    return Bench(kind.connect(scope()), "root", tmp_path)


@pytest.fixture(params=["text", "json", "qsub", "ssh"])
async def any_bench(
    request: pytest.FixtureRequest, slurm: RealSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    """Each way to reach the batch system."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    records = str(tmp_path / "records")
    if request.param == "qsub":
        if NO_QSUB:
            pytest.skip(NO_QSUB)
        pbs = PbsEngineType(records=records, partitions=("gpu",), openpbs=False)
        yield Bench(pbs.connect(scope()), "root", tmp_path)
    elif request.param == "ssh":
        if lacking():
            pytest.skip(lacking())
        with running_openssh_server() as server:
            slurm.run("sacctmgr", "-i", "add", "user", server.user, "account=default").check_returncode()
            (tmp_path / ".ssh").mkdir()
            known = f"[127.0.0.1]:{server.port} {key_line(server.host_key)}\n"
            (tmp_path / ".ssh" / "known_hosts").write_text(known)
            monkeypatch.setenv("HOME", str(tmp_path))
            server.rc(f"export SLURM_CONF={slurm.environment['SLURM_CONF']}\n")
            login = f"{server.user}@127.0.0.1:{server.port}"
            ssh = SlurmEngineType(login=login, identity=str(server.identity), partitions=("gpu",))
            made = ssh.connect(scope())
            yield Bench(made, server.user, server.home)
            await made.close()
            slurm.run("scancel", "-u", server.user)
            await eventually(lambda: _no_jobs(slurm, server.user))
    else:
        kind = SlurmEngineType(records=records, partitions=("gpu",), json=request.param == "json")
        yield Bench(kind.connect(scope()), "root", tmp_path)


async def _no_jobs(slurm: RealSlurm, user: str) -> tuple[bool, None]:
    return slurm.run("squeue", "-h", "-u", user).stdout == "", None


async def test_jobs_end_as_their_commands_end(any_bench: Bench) -> None:
    bench = any_bench
    expected = {
        ("true",): Outcome(0),
        ("sh", "-c", "echo out; echo err >&2; exit 3"): Outcome(3),
        ("sh", "-c", "kill -9 $$"): Outcome(None, 9),
        ("/no/such/program",): Outcome(127),
    }
    asked = {command: await bench.ask(*command) for command in expected}
    ended = {command: await bench.outcome(*each) for command, each in asked.items()}
    assert ended == expected
    ref, _ = asked[("sh", "-c", "echo out; echo err >&2; exit 3")]
    logs = [
        b"".join([piece async for piece in bench.engine.logs(ref, stream, follow=follow)])
        for stream in ("stdout", "stderr")
        for follow in (False, True)
    ]
    assert logs == [b"out\n", b"out\n", b"err\n", b"err\n"]
    for each in asked.values():
        await bench.engine.forget(*each)
    assert [piece async for piece in bench.engine.logs(ref, "stdout", follow=False)] == []


async def test_a_running_job_is_seen_and_ended(any_bench: Bench) -> None:
    bench = any_bench
    ref, tag = await bench.ask("sleep", "1000")
    await bench.running(tag)
    assert await bench.engine.proof(ref, tag) is None
    await bench.engine.end(ref, 1.0)
    assert await bench.outcome(ref, tag) == Outcome(None, 15)
    await bench.engine.end(ref, 1.0)


async def test_a_repeated_ask_finds_the_first_job(any_bench: Bench) -> None:
    bench = any_bench
    task, tag = bench.task("sleep", "1000")
    first = await bench.engine.ask(task, tag, again=False)
    assert await bench.engine.ask(task, tag, again=True) == first
    assert await bench.engine.ask(task, tag, again=False) == first
    assert [each.ref for each in (await bench.engine.look()).jobs if each.tag == tag] == [first]
    await bench.engine.end(first, 1.0)


async def test_a_repeated_ask_finds_the_job_without_its_id(bench: Bench) -> None:
    task, tag = bench.task("sleep", "1000")
    first = await bench.engine.ask(task, tag, again=False)
    (bench.place / "records" / tag / "id").unlink()
    assert await bench.engine.ask(task, tag, again=True) == first
    await bench.engine.end(first, 1.0)


async def test_a_submit_that_timed_out_and_was_accepted_runs_once(
    bench: Bench, slurm: RealSlurm, tmp_path: Path
) -> None:
    hasty = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",)).connect(scope(1.0))
    task, tag = bench.task("sh", "-c", f"echo ran >> {tmp_path}/ran")
    await bench.engine.look()
    with slurm.stopped("slurmctld"):
        with pytest.raises(EngineUnavailable, match="no answer within 1 s"):
            await hasty.ask(task, tag, again=False)
        with pytest.raises(EngineUnavailable):
            await hasty.look()
    ref = await bench.engine.ask(task, tag, again=True)
    assert await bench.outcome(ref, tag) == Outcome(0)
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_job_that_was_accepted_twice_runs_once(
    bench: Bench, slurm: RealSlurm, tmp_path: Path
) -> None:
    ref, tag = await bench.ask("sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 2; exit 3")
    script = tmp_path / "records" / tag / "script"
    second = slurm.run("sbatch", "--parsable", str(script)).stdout.strip()
    outcomes = [await bench.outcome(each, tag) for each in (ref, second)]
    assert outcomes == [Outcome(3), Outcome(3)]
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_a_job_that_slurm_runs_again_does_not_run_its_command_again(
    bench: Bench, slurm: RealSlurm, tmp_path: Path
) -> None:
    ref, tag = await bench.ask("sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 1000")
    await bench.running(tag)
    slurm.run("scontrol", "update", f"JobId={ref}", "Requeue=1").check_returncode()
    slurm.run("scontrol", "requeue", ref).check_returncode()

    async def ended() -> tuple[bool, None]:
        states = slurm.run("squeue", "-h", "-t", "all", "-j", ref, "-o", "%T %r").stdout
        slurm.run("scontrol", "update", f"JobId={ref}", "StartTime=now")
        return "FAILED" in states or "COMPLETED" in states, None

    await eventually(ended)
    outcome = await bench.outcome(ref, tag)
    assert outcome.why.startswith("node_lost: ")
    assert (tmp_path / "ran").read_text() == "ran\n"


async def test_the_reason_of_a_waiting_job_is_that_of_slurm(
    bench: Bench, slurm: RealSlurm, tmp_path: Path
) -> None:
    kind = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",), qos="tight")
    tight = Bench(kind.connect(scope()), "root", tmp_path)
    gpu = {"gpus": (GpuHold("any", 1_000),)}
    first, running = await tight.ask("sleep", "1000", **gpu)
    await tight.running(running)
    second, waiting = await tight.ask("sleep", "1000", **gpu)
    found = await tight.until(waiting, lambda each: each is not None and each.reason == "QOSGrpGRES")
    assert found is not None
    assert (found.state, found.where) == (ForeignState.WAITING, "gpu")
    slurm.run("scontrol", "hold", second).check_returncode()
    await tight.until(waiting, lambda each: each is not None and each.reason == "JobHeldAdmin")
    for ref in (first, second):
        await tight.engine.end(ref, 1.0)
    assert await tight.outcome(second, waiting) == Outcome(None, 15)


async def test_a_job_that_slurm_preempts_has_not_failed(bench: Bench, slurm: RealSlurm) -> None:
    urgent = ("PartitionName=urgent", "Nodes=ALL", "PriorityTier=10", "State=UP")
    slurm.run("scontrol", "create", *urgent).check_returncode()
    ref, tag = await bench.ask("sleep", "1000")
    await bench.running(tag)
    try:
        words = ("-p", "urgent", "-N", "2", "--exclusive", "-o", "/dev/null", "--wrap", "true")
        slurm.run("sbatch", *words).check_returncode()
        assert await bench.outcome(ref, tag) == Outcome(None, 15, PREEMPTED_THERE)
    finally:
        await eventually(lambda: _no_jobs(slurm, "root"))
        slurm.run("scontrol", "delete", "PartitionName=urgent").check_returncode()


async def test_refusals(bench: Bench, slurm: RealSlurm, tmp_path: Path) -> None:
    async def refusal(kind: SlurmEngineType, *command: str, node: str = "gpu", **order: object) -> AskRefused:
        engine = replace(kind, records=str(tmp_path / "records")).connect(scope())
        task, tag = bench.task(*command, node=node, **order)
        await engine.look()
        with pytest.raises(AskRefused) as refused:
            await engine.ask(task, tag, again=False)
        return refused.value

    assert (await refusal(SlurmEngineType(account="nobody"), "true")).lasting
    assert (await refusal(SlurmEngineType(qos="none"), "true")).lasting
    assert (await refusal(SlurmEngineType(), "true", node="nowhere")).lasting
    assert (await refusal(SlurmEngineType(constraint="hbm9"), "true")).lasting
    part = {"gpus": (GpuHold("any", 500),)}
    assert "only whole GPUs" in (await refusal(SlurmEngineType(), "true", **part)).why
    many = {"gpus": tuple(GpuHold(str(index), 1_000) for index in range(5))}
    assert (await refusal(SlurmEngineType(), "true", **many)).lasting
    few = Bench(SlurmEngineType(qos="few", records=str(tmp_path / "few")).connect(scope()), "root", tmp_path)
    ref, _ = await few.ask("sleep", "1000")
    refused = await refusal(SlurmEngineType(qos="few"), "true")
    assert not refused.lasting
    assert "QOSMaxSubmitJobPerUserLimit" in refused.why
    await few.engine.end(ref, 1.0)


@pytest.mark.parametrize("shared", [False, True])
async def test_root_submits_no_jobs_of_other_users(bench: Bench, tmp_path: Path, shared: bool) -> None:
    kind = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",), shared_account=shared)
    engine = kind.connect(scope())
    await engine.look()
    task, tag = bench.task("true")
    theirs = Task(task.node, replace(task.order, user="alice"))
    with pytest.raises(AskRefused, match="submits jobs as root, but this job belongs to alice") as refused:
        await engine.ask(theirs, tag, again=False)
    assert refused.value.lasting


async def test_jobs_of_other_users_need_a_shared_account(bench: Bench, tmp_path: Path) -> None:
    task, tag = bench.task("true")
    theirs = Task(task.node, replace(task.order, user="alice"))
    for shared in (False, True):
        kind = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",), shared_account=shared)
        engine = kind.connect(scope())
        engine._account = "hpc"  # Slurm runs as root in this test, and root submits no jobs of other users.
        if shared:
            assert await bench.outcome(await engine.ask(theirs, tag, again=False), tag) == Outcome(0)
        else:
            with pytest.raises(AskRefused, match="submits jobs as hpc, but this job belongs to alice"):
                await engine.ask(theirs, tag, again=False)


async def test_a_job_without_a_tag_of_this_cluster_is_never_ended(bench: Bench, slurm: RealSlurm) -> None:
    words = ("-p", "gpu", "--mem=50", "-o", "/dev/null", "--wrap", "sleep 1000")
    other = slurm.run("sbatch", "--parsable", "-J", "corral-999999999999-1-1-0", *words).stdout.strip()
    await bench.engine.end(other, 0.0)
    assert slurm.run("squeue", "-h", "-j", other, "-o", "%j").stdout.strip() == "corral-999999999999-1-1-0"
    assert other not in [each.ref for each in (await bench.engine.look()).jobs]
    slurm.run("scancel", other)


async def test_nodes(bench: Bench, slurm: RealSlurm, tmp_path: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan broken").check_returncode()
    try:
        [partition] = (await bench.engine.look()).nodes
        assert (partition.name, partition.facts.cpu_milli, len(partition.facts.gpus)) == ("gpu", 16_000, 4)
        kind = SlurmEngineType(
            place="node", partitions=("gpu",), gpu_memory_mib=81_920, records=str(tmp_path / "records")
        )
        engine = kind.connect(scope())
        first, second = (await engine.look()).nodes
        assert (first.name, first.available, first.facts.gpus[0].model) == ("n1", True, "a100")
        assert (second.available, second.why) == (False, "drained: fan broken")
        task, tag = bench.task("true", node="n1")
        ref = await engine.ask(task, tag, again=False)
        assert await bench.outcome(ref, tag) == Outcome(0)
        shown = slurm.run("scontrol", "show", "job", ref).stdout
        assert "ReqNodeList=n1" in shown
    finally:
        slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME").check_returncode()


async def test_the_job_has_what_was_asked_for(bench: Bench, slurm: RealSlurm) -> None:
    ref, tag = await bench.ask(
        *("sh", "-c", 'echo "$A $CORRAL_JOB_ID $(pwd) $(umask) $CUDA_VISIBLE_DEVICES"'),
        env={"A": "a b"},
        gpus=(GpuHold("x", 1_000), GpuHold("y", 1_000)),
        workdir=str(bench.place),
        output=str(bench.place / "out"),
        umask=0o027,
    )
    assert await bench.outcome(ref, tag) == Outcome(0)
    number = tag.removeprefix(PREFIX).partition("-")[0]
    words = (bench.place / "out").read_text().split()
    assert words[:5] == ["a", "b", number, str(bench.place), "0027"]
    assert len(words[5].split(",")) == 2
    shown = slurm.run("scontrol", "show", "job", ref).stdout
    for text in ("MinMemoryNode=100M", "TimeLimit=00:05:00", "gres:gpu:2", "Requeue=0"):
        assert text in shown


async def test_a_slurm_without_json_is_asked_for_text(bench: Bench, slurm: RealSlurm, tmp_path: Path) -> None:
    programs = tmp_path / "old"
    programs.mkdir()
    real = shutil.which("squeue", path="/usr/bin")
    (programs / "squeue").write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --json ]; then echo "squeue: unrecognized option \'--json\'" >&2; exit 1; fi\n'
        f'exec {real} "$@"\n'
    )
    (programs / "squeue").chmod(0o755)
    ref, _ = await bench.ask("sleep", "1000")
    kind = SlurmEngineType(records=str(tmp_path / "records"), partitions=("gpu",), json=True)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{programs}:{path}"
    try:
        engine = kind.connect(scope())
    finally:
        os.environ["PATH"] = path
    assert ref in [each.ref for each in (await engine.look()).jobs]
    await bench.engine.end(ref, 1.0)


async def test_a_slurmctld_with_an_older_state_lists_a_job_that_has_ended(
    bench: Bench, slurm: RealSlurm
) -> None:
    """The exit record proves the end of the job, and the job can be ended in Slurm afterwards."""
    gate, state, copy = bench.place / "gate", slurm.place / "state", bench.place / "state"
    ref, tag = await bench.ask("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.1; done; exit 3")
    await bench.running(tag)
    seen = time.time()

    async def saved() -> tuple[bool, None]:
        return (state / "job_state").stat().st_mtime > seen, None

    await eventually(saved)
    with slurm.stopped("slurmctld"):
        shutil.copytree(state, copy)
    gate.touch()
    await bench.until(tag, lambda found: found is not None and found.state is ForeignState.ENDED)
    with slurm.killed("slurmctld"):
        shutil.rmtree(state)
        shutil.copytree(copy, state)

    async def listed() -> tuple[bool, str]:
        states = slurm.run("squeue", "-h", "-t", "all", "-j", ref, "-o", "%T").stdout.strip()
        return bool(states), states

    assert (await eventually(listed))[1] == "RUNNING"
    found = await bench.seen(tag)
    assert found is not None
    assert found.state is ForeignState.RUNNING
    assert await bench.engine.proof(ref, tag) is None
    record = bench.place / "records" / tag / "ended"
    os.utime(record, (seen - 600.0, seen - 600.0))
    found = await bench.seen(tag)
    assert found is not None
    assert found.state is ForeignState.ENDED
    assert await bench.outcome(ref, tag) == Outcome(3)
    await bench.engine.forget(ref, tag)
    await bench.running(tag)
    await bench.engine.end(ref, 1.0)
    await bench.until(tag, lambda found: found is None)
