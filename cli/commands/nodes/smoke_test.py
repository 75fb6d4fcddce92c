"""corral nodes test: runs a short job on a node, which tests its CPUs, memory, disk, GPUs and connection."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from cli import completion
from cli.commands.nodes.preflight import CHECK_S, at_once, show
from cli.commands.nodes.smoke_script import SCRIPT, WAITS
from cli.flags import argument, option, switch
from cli.output.formats import Format, Output
from cli.registry import examples
from wire import amounts
from wire.api.jobs import JobView, ShellGiven, ShellRequest
from wire.api.nodes import Check, NodeRequest, NodeView, Preflight
from wire.http.client import Client, Refused
from wire.job.placement.affinity import Toleration
from wire.job.spec import JobSpec
from wire.names import WHOLE_GPU, GpuHealth, NodeState
from wire.text import counted, duration, printable

Names = Annotated[list[str], argument("NODE", "Names of nodes.", autocompletion=completion.nodes)]
GPU_MIB, MEMORY_MIB, DISK_MIB = 256, 256, 64
"""The amounts of data, in MiB, that the job writes and reads on each GPU, in memory and on the local disk."""
ECHO = os.urandom(1 << 18)
_TIME_LIMIT_S = 600.0
_PAUSE_S = 0.2
_LONG_ECHO_S = 5.0
_READ = 1 << 15
EXAMPLES = examples(
    "corral nodes test gpu01",
    "corral nodes test gpu01 gpu02 --timeout 10m        wait longer for free GPUs",
    "corral nodes test gpu01 --gpus 0                   without GPUs",
    "corral nodes test gpu01 -o json",
)


@dataclass(frozen=True)
class TestOptions:
    """The options of the job that tests a node. If `gpus` is None, the job requests all free healthy GPUs."""

    gpus: int | None
    timeout_s: float
    project: str
    queue: str
    job_only: bool


def run_test(
    names: Names,
    gpus: Annotated[
        int | None,
        option("--gpus", "N", "Number of GPUs to test. Default: all GPUs that are free now.", min=0),
    ] = None,
    timeout: Annotated[
        float,
        option(
            "--timeout",
            "TIME",
            "How long the job may wait for its start (e.g. 10m). Default: 1m.",
            parser=amounts.seconds,
        ),
    ] = 60.0,
    project: Annotated[
        str,
        option(
            "--project", "NAME", "Project of the job. Default: default.", autocompletion=completion.projects
        ),
    ] = "default",
    queue: Annotated[
        str,
        option("--queue", "NAME", "Queue of the job. Default: default.", autocompletion=completion.queues),
    ] = "default",
    job_only: Annotated[
        bool,
        switch("--job-only", "Run only the job, without the checks of 'corral nodes check'."),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Test nodes: repeat the checks of 'corral nodes check', and run a short job on each node.

    The job computes on a CPU, and writes and reads memory and the local disk. It writes two patterns to a
    part of the memory of each GPU, and checks what it reads back. The job needs no CUDA, NCCL or PyTorch,
    only python3 and the GPU driver. Then the command sends data to the node and back, and sends the job a
    signal. The exit code is 1 if a check of any node has failed. Only operators may repeat the checks of
    hosts. For any other user, the command runs only the job.

    No job starts on a drained node. To test such a node, reserve it for yourself and resume it: 'corral
    maintain end --test' does this.
    """
    options = TestOptions(gpus, timeout, project, queue, job_only)
    results = at_once(list(dict.fromkeys(names)), lambda name: tested(name, options))
    return show(results, output)


def tested(name: str, options: TestOptions) -> Preflight:
    """Test one node. Raise Refused if no node has this name."""
    with Client() as client:
        node = client.node(name)
        checks, boot_id = ((), "") if options.job_only else _host_checks(name)
        found = (*checks, *_job_checks(client, node, options))
    ready = all(each.verdict in ("ok", "note") for each in found)
    return Preflight(name, "", ready, found, boot_id=boot_id)


def _host_checks(name: str) -> tuple[tuple[Check, ...], str]:
    """Return the checks of the host, and its boot id. For a user that is not an operator, return no checks
    and an empty boot id.
    """
    try:
        with Client(timeout_s=CHECK_S) as client:
            result = client.preflight(NodeRequest(name))
    except Refused as refused:
        if refused.problem.code != "not_allowed":
            raise
        return (), ""
    return result.checks, result.boot_id


def _job_checks(client: Client, node: NodeView, options: TestOptions) -> Iterator[Check]:
    """Run the job on the node, and yield its checks.

    1. Submit a job that runs on this node only, and tolerates all taints of the node.
    2. Wait at most `timeout_s` seconds for the start of the job. If the job has not started by then, cancel
       it, and yield a check with the reason.
    3. Read what the job prints. When the job waits for a signal, send data to the node and back, then send
       the signal.
    4. At the end, or if a step fails, cancel the job, so that it does not keep resources of the node.
    """
    if node.state is not NodeState.UP:
        remedy = "'corral maintain end NODE --test' tests a drained node before other jobs start there."
        yield Check("job", "failed", f"no job starts on this node: it is {node.state_word}", remedy)
        return
    free = sum(
        each.health is GpuHealth.OK and each.free_milli == WHOLE_GPU and not each.mig for each in node.gpus
    )
    gpus = free if options.gpus is None else options.gpus
    if options.gpus is None and free < len(node.gpus):
        others = counted(len(node.gpus) - free, "GPU")
        yield Check("free GPUs", "note", f"{others} of {len(node.gpus)} not free, and not tested", "")
    try:
        job = client.submit(_spec(node, gpus, options)).ids[0]
    except Refused as refused:
        problem = refused.problem
        yield Check("job", "failed", f"{problem.where}: {problem.message}".lstrip(": "), problem.hint)
        return
    try:
        begin = time.monotonic()
        view = _started(client, job, options.timeout_s)
        if view.state.terminal or not view.attempt:
            why = view.detail or view.reason.value.replace("_", " ")
            what = "has ended" if view.state.terminal else f"has not started in {duration(options.timeout_s)}"
            remedy = f"See 'corral job show {view.label}'; --timeout waits longer, --gpus 0 needs no GPU."
            yield Check("job", "failed", f"job {view.label} {what}: {why}", remedy)
            return
        waited = time.monotonic() - begin
        yield Check(
            "job", "ok", f"job {view.label} started after {waited:.1f} s, with {counted(gpus, 'GPU')}"
        )
        yield from _printed(client, job)
    finally:
        with suppress(Refused):
            client.cancel(job)


def _spec(node: NodeView, gpus: int, options: TestOptions) -> JobSpec:
    asked = {
        "cpus": 1,
        "gpus": gpus,
        "memory_mib": MEMORY_MIB,
        "disk_mib": DISK_MIB,
        "gpu_mib": GPU_MIB,
    }
    return JobSpec(
        ("python3", "-c", SCRIPT, json.dumps(asked)),
        name="node-test",
        project=options.project,
        queue=options.queue,
        cpu_milli=1_000,
        memory_mib=4 * MEMORY_MIB,
        gpus=gpus,
        nodes=1,
        selector={"node": node.name},
        tolerations=(Toleration(),),
        workdir="/",
        time_limit_s=_TIME_LIMIT_S,
        comment=f"corral nodes test {node.name}",
    )


def _started(client: Client, job: int, timeout_s: float) -> JobView:
    deadline = time.monotonic() + timeout_s
    while True:
        view = client.job(job).job
        if view.started_at is not None or view.state.terminal or time.monotonic() > deadline:
            return view
        time.sleep(_PAUSE_S)


def _printed(client: Client, job: int) -> Iterator[Check]:
    """Yield the checks that the job prints, and the check of the connection. If the job ends before its last
    check, yield a failed check with the reason.
    """
    names = set()
    for line in _lines(client.logs(job, follow=True)):
        try:
            said = json.loads(line)
            check = Check(*(printable(str(said[key]), 500) for key in ("name", "verdict", "found", "remedy")))
        except (ValueError, KeyError, TypeError):
            continue
        names.add(check.name)
        if check.name != WAITS:
            yield check
            continue
        with Client(timeout_s=CHECK_S) as other:
            yield _echo(other, job)
            with suppress(Refused):
                other.signal(job, "USR1")
    view = client.job(job).job
    if not names:
        end = b"".join(client.logs(job, stream="stderr", offset=-500)).decode(errors="replace").strip()
        why = end.splitlines()[-1] if end else view.detail or f"exit code {view.exit_code}"
        yield Check("job", "failed", printable(why, 500), "Is python3 in the PATH of jobs on this node?")
    elif "orders" not in names:
        why = view.detail or f"it ended with exit code {view.exit_code}, signal {view.signal}"
        yield Check("job", "failed", why, f"See 'corral job logs {view.label}'.")


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    yield rest


def _echo(client: Client, job: int) -> Check:
    """Send data to a command in the job that returns the data. Return a check, which fails if other data were
    returned.
    """
    begin = time.monotonic()
    try:
        shell = client.open_shell(job, ShellRequest(("cat",)))
        with Client(timeout_s=CHECK_S) as writer:
            for at in range(0, len(ECHO), _READ):
                writer.write_shell(shell, ShellGiven(b64encode(ECHO[at : at + _READ]).decode()))
            writer.write_shell(shell, ShellGiven(end=True))
        back = b"".join(b64decode(each.data) for each in client.read_shell(shell) if each.data)
    except Refused as refused:
        return Check("connection", "failed", refused.problem.message, refused.problem.hint)
    seconds = time.monotonic() - begin
    if back != ECHO:
        found = (
            f"{len(back)} of {len(ECHO)} bytes came back"
            if len(back) != len(ECHO)
            else "other bytes came back"
        )
        return Check("connection", "failed", found, "Check the network between the controller and the node.")
    found = f"{len(ECHO) >> 10} KiB to the node and back in {seconds:.2f} s"
    slow = seconds > _LONG_ECHO_S
    remedy = "Check the network between the controller and the node." if slow else ""
    return Check("connection", "note" if slow else "ok", found, remedy)
