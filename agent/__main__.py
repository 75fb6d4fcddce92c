"""Starts the agent of one node (`python -m agent`). The agent exchanges messages with the controller over
stdin and stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Optional

from agent.agent import Agent
from agent.attempts import lease
from agent.attempts.launch.start_order import UnixAccounts
from agent.attempts.spool import Spool, SpoolUnusable, format_key
from agent.controller_channel import Channel
from agent.gpus.interface import GpuSource, GpusUnknown, NoGpus
from agent.gpus.late_driver import LateDriverGpus
from agent.gpus.nvml_gpus import NvmlGpus, NvmlMissing
from agent.gpus.simulated import SimulatedGpus
from agent.host import facts, preflight
from agent.isolation import cgroup_detection, container_runtimes, scratch
from agent.isolation.container_watch import ContainerWatch
from agent.processes import process_tree
from wire import VERSION, gpudescription
from wire.agent.job_policy import DEFAULT_JOB_POLICY, JobPolicy
from wire.agent.reports import Hello, NodeFacts
from wire.codec import decode

NO_RUNTIME = "none: neither podman, docker nor apptainer works here"
_UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}


def main() -> int:
    """Run the agent until the connection to the controller is closed, and return the exit code. Jobs continue
    without the agent. With --check, only print the report about this host.
    """
    options = _parse(_read_options() if sys.argv[1:] == ["-"] else None)
    os.umask(0o077)
    host = facts.read_host()
    if options.check:
        sought = partial(_find_gpus, options.gpus, options.name)
        checked = options.spool, host, sought, options.run_as_self, options.jobs, options.shared
        print(preflight.report(*checked, options.cluster))
        return 0
    spool = Spool(options.spool, process_tree.boot_id())
    channel = Channel(0, _claim_stdout())
    try:
        gpus = _find_gpus(options.gpus, options.name)
        spool.open(replace=options.replace, cluster=options.cluster, epoch=options.epoch)
    except (SpoolUnusable, GpusUnknown) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    _allow_many_files()
    accounts, policy, offered = UnixAccounts(options.run_as_self), options.jobs, options.cpus or host.cpus
    tag = cgroup_detection.cgroup_tag(options.name, spool.root)
    groups = cgroup_detection.detect(policy.limits, tag)
    runtime = container_runtimes.find_runtime(policy, [gpu.uuid for gpu in gpus.facts] if gpus.real else ())
    area = scratch.ScratchArea(options.scratch_dir, tag, options.scratch, f"{spool.root}/scratch")
    if area.prepare(make=False):
        print(f"agent: this node offers no scratch: {area.problem}", file=sys.stderr)
    try:
        agent = Agent(
            spool,
            channel,
            accounts,
            host,
            gpus,
            options.keep or policy.log_attempts,
            policy,
            groups,
            offered,
            runtime,
            area,
        )
        agent.adopt()
    except OSError as error:
        print(f"agent: cannot start with the spool directory {spool.root}: {error}", file=sys.stderr)
        return 1
    unsettled = agent.unsettled()
    running = [format_key((status.job, status.attempt)) for status in unsettled]
    scratch.delete_in_background(area.leftovers(running))
    ContainerWatch(agent.loop, runtime, policy, spool.root, running).start()
    storage_mib = area.mib(spool.directory((status.job, status.attempt)) for status in unsettled)
    reported = NodeFacts(
        cpu_milli=offered * 1000,
        memory_mib=options.memory or host.memory_mib,
        gpus=gpus.facts,
        numa_nodes=gpus.numa_nodes or max(1, len(host.numa)),
        labels=dict(options.label),
        address=options.address,
        storage_mib=storage_mib,
        driver=gpus.driver,
        cuda=gpus.cuda,
        numa=host.nodes,
        handling={
            "user": accounts.describe(),
            "limits": groups.describe(),
            "end": groups.describe_end(),
            "binding": agent.cpus.describe(),
            "scratch": area.describe(storage_mib),
            "containers": runtime.describe() if runtime is not None else NO_RUNTIME,
        },
        runtime="" if runtime is None else str(runtime),
        image_gpus="" if runtime is None else runtime.gpu_problem,
    )
    hello = Hello(
        options.name,
        VERSION,
        spool.boot_id,
        os.urandom(16).hex(),
        reported,
        unsettled,
        lease.boot_time_s(),
        journal=spool.epochs.journal(),
    )
    with suppress(KeyboardInterrupt):  # Print no traceback if a user ends an agent in a terminal with Ctrl-C.
        agent.serve(hello)
    groups.tidy()
    return 0


def _read_options() -> list[str]:
    """Read the agent's options from stdin, as one line of JSON. They are not given on the command line,
    because a login shell could change their text.
    """
    line = b""
    while not line.endswith(b"\n"):
        # Read single bytes up to the end of the line, because the first messages of the controller follow in
        # the same pipe.
        byte = os.read(0, 1)
        if not byte or len(line) > 1 << 16:
            raise SystemExit("agent: stdin must begin with one line of JSON that has the options")
        line += byte
    return [str(each) for each in json.loads(line)]


def _parse(arguments: Optional[list[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent", description=__doc__)
    parser.add_argument("--name", required=True, help="the node's name")
    parser.add_argument(
        "--spool", required=True, type=Path, metavar="DIR", help="directory for the records of attempts"
    )
    parser.add_argument("--gpus", default="auto", help="auto, nvml, none, or simulated:8xH100")
    parser.add_argument("--cpus", type=int, help="number of CPUs to offer, by default all of the host")
    parser.add_argument(
        "--memory", type=_mib, help="memory to offer, such as 512G, by default all of the host"
    )
    parser.add_argument(
        "--scratch-dir", default="", metavar="DIR", help="parent of scratch directories, by default /var/tmp"
    )
    parser.add_argument(
        "--scratch", type=_mib, help="scratch to offer, such as 2T, by default the free space"
    )
    parser.add_argument("--label", action="append", default=[], type=_label, metavar="KEY=VALUE")
    parser.add_argument("--address", default="127.0.0.1", help="address that other nodes use for this node")
    parser.add_argument(
        "--keep",
        type=int,
        help="number of ended attempts whose logs are kept, by default [jobs] log_attempts",
    )
    parser.add_argument("--run-as-self", action="store_true", help="run every job as the agent's own user")
    parser.add_argument(
        "--cluster",
        default="",
        metavar="ID",
        help="id of the cluster that this agent and its spool belong to",
    )
    parser.add_argument(
        "--epoch",
        default=0,
        type=int,
        metavar="N",
        help="epoch of the leading controller; an agent of an earlier epoch is refused and replaced",
    )
    parser.add_argument("--replace", action="store_true", help="kill another agent that uses the spool")
    parser.add_argument(
        "--shared",
        action="append",
        default=[],
        metavar="FILE",
        help="with --check: a file in a shared directory that must exist on this host",
    )
    parser.add_argument(
        "--check", action="store_true", help="print a report about this host as JSON, and exit"
    )
    parser.add_argument(
        "--jobs",
        default=DEFAULT_JOB_POLICY,
        type=_policy,
        metavar="JSON",
        help="the section [jobs] of scheduler.toml",
    )
    return parser.parse_args(arguments)


def _policy(text: str) -> JobPolicy:
    try:
        return decode(JobPolicy, json.loads(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _find_gpus(description: str, node: str) -> GpuSource:
    if description == "none":
        return NoGpus()
    if description == "nvml":
        return NvmlGpus()
    if description == "auto":
        try:
            return NvmlGpus()
        except NvmlMissing:
            return LateDriverGpus()
    try:
        return SimulatedGpus(node, gpudescription.parse_simulated(description))
    except ValueError as error:
        raise GpusUnknown(str(error)) from None


def _mib(text: str) -> int:
    match = re.fullmatch(r"(\d+)([MGT])(i?B)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write 512G, 1T or 800M")
    return int(match[1]) * _UNITS[match[2]]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write KEY=VALUE")
    return key, value


def _claim_stdout() -> int:
    """Reserve stdout for messages to the controller: return a copy of its descriptor, and redirect all other
    output to stderr.
    """
    frames = os.dup(1)
    os.dup2(2, 1)
    return frames


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit, because the agent needs an open file for each
    supervisor. The fork server restores the old limit for jobs.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
